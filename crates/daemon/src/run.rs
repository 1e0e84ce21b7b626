// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting and ending the daemon.

use std::thread::{self, JoinHandle};

use freeway_console::{Exit, Stop};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::log::{self, SetLog};
use super::options::Options;
use super::peer::Peer;
use super::reload::{Metrics, Reloader};
use super::signals::Hangup;
use super::socket::ControlSocket;
use super::{Request, engine, privilege, reload, server, signals};
use crate::config::Config;
use crate::supervisor::Supervisor;

/// Questions that may wait for the engine.
const QUEUE: usize = 64;

/// Runs the daemon until a signal or a failure ends it.
pub fn run(options: Options) -> Result<(), Stop> {
    let config = options.read()?;
    privilege::check()?;
    let set_log = log::start(config.daemon.log);
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
