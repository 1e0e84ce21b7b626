// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting and ending the daemon.

use std::thread::{self, JoinHandle};

use freeway_console::{Exit, Stop, Terminal};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::reload as reload_layer;

use super::options::Options;
use super::peer::Peer;
use super::reload::{Metrics, Reloader, SetLog};
use super::signals::Hangup;
use super::socket::ControlSocket;
use super::{Request, engine, privilege, reload, server, signals};
use crate::config::{Config, LogLevel};
use crate::journal::Journal;
use crate::supervisor::Supervisor;

/// Questions that may wait for the engine.
const QUEUE: usize = 64;

/// Runs the daemon until a signal or a failure ends it.
pub fn run(options: Options) -> Result<(), Stop> {
    let config = options.read()?;
    privilege::check()?;
    let set_log = start_log(&config);
    let mut socket = ControlSocket::open(config.daemon.socket.as_deref())?;
    let runtime = runtime()?;
    let (requests, queue) = mpsc::channel(QUEUE);
    let supervisor = Supervisor::of_environment();
    let told = supervisor.clone();
    let front = Front::start(options, &config, &mut socket, requests, set_log, told)?;
    let result = runtime.block_on(async {
        let ended = signals::ended()
            .map_err(|error| Stop::failure(format!("cannot handle signals: {error}")))?;
        engine::run(config, socket.path(), queue, supervisor, ended)
            .await
            .map_err(Stop::from)
    });
    front.stop();
    if result.is_ok() {
        tracing::info!("stopped; the kernel forwards everything");
    }
    result
}

/// The control server, on a thread of its own: what it writes to a slow or greedy reader takes no time of the engine's.
struct Front {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Front {
    fn start(
        options: Options,
        config: &Config,
        socket: &mut ControlSocket,
        requests: mpsc::Sender<Request>,
        set_log: SetLog,
        supervisor: Supervisor,
    ) -> Result<Front, Stop> {
        let control = socket.take_listener();
        tracing::debug!("control socket {}", socket.path().display());
        let (file, address) = (config.file.clone(), config.daemon.metrics);
        let listener =
            Metrics::listen(address).map_err(|message| Stop::new(Exit::Config, message))?;
        let (stop, stopped) = oneshot::channel();
        let failed = |error| Stop::failure(format!("cannot start the control server: {error}"));
        let runtime = runtime()?;
        let hangup = {
            let _inside = runtime.enter();
            Hangup::heed().map_err(failed)?
        };
        let work = move || {
            runtime.block_on(async {
                let mut metrics = Metrics::default();
                metrics.serve(address, listener, &requests);
                let asked = requests.clone();
                let reloader = Reloader::new(asked, options, file, metrics, set_log, supervisor);
                if let Some(listener) = control.and_then(|l| UnixListener::from_std(l).ok()) {
                    let router = server::router(requests).merge(reload::router(reloader.clone()));
                    let service = router.into_make_service_with_connect_info::<Peer>();
                    tokio::spawn(async move { axum::serve(listener, service).await });
                }
                tokio::spawn(reloader.follow(hangup));
                // an error says that the other end is gone, which is the end, too
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new().name("freeway-server".into());
        Ok(Front {
            stop,
            thread: thread.spawn(work).map_err(failed)?,
        })
    }

    fn stop(self) {
        drop(self.stop);
        // a panic there was printed there
        let _ = self.thread.join();
    }
}

fn runtime() -> Result<Runtime, Stop> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::failure(format!("cannot start the runtime: {error}")))
}

/// Logs go to standard error, or with their fields to the journal where that leads there; FREEWAY_LOG overrides the level: `LEVEL`, or `TARGET=LEVEL,...`. What comes back sets the
/// level, unless FREEWAY_LOG does.
fn start_log(config: &Config) -> SetLog {
    let filter = std::env::var("FREEWAY_LOG").ok();
    let filter = filter.and_then(|filter| filter.parse::<Targets>().ok());
    let forced = filter.is_some();
    let filter = filter.unwrap_or_else(|| filter_of(config.daemon.log));
    let (filter, handle) = reload_layer::Layer::new(filter);
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // or it would be said, and panic, where nobody can read it
        .log_internal_errors(false)
        .with_ansi(Terminal::stderr().color);
    let log = match (Journal::of_stderr(), std::env::var_os("JOURNAL_STREAM")) {
        (Some(journal), _) => journal.boxed(),
        // journald stamps what it receives
        (None, Some(_)) => log.without_time().boxed(),
        (None, None) => log.boxed(),
    };
    tracing_subscriber::registry().with(filter).with(log).init();
    Box::new(move |level| {
        if !forced && let Err(error) = handle.reload(filter_of(level)) {
            tracing::warn!("how much is logged stays as it is: {error}");
        }
    })
}

fn filter_of(level: LogLevel) -> Targets {
    let level = level.directive().parse();
    Targets::new().with_default(level.unwrap_or(LevelFilter::INFO))
}
