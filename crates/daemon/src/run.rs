// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting and ending the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use freeway_console::{Exit, Stop, Terminal};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use super::socket::ControlSocket;
use super::{Request, engine, privilege, server, signals};
use crate::config::{Config, LogLevel};

/// Questions that may wait for the engine.
const QUEUE: usize = 64;

/// What the command line says beside the configuration, and ahead of it.
#[derive(Debug, Default)]
pub struct Options {
    /// The configuration's file; `None`: the default one, if it exists.
    pub config: Option<PathBuf>,
    /// Ports to accelerate; empty: as configured.
    pub interfaces: Vec<String>,
    /// Control socket.
    pub socket: Option<PathBuf>,
    /// Address that serves Prometheus metrics.
    pub metrics: Option<SocketAddr>,
    /// How much is logged.
    pub log: Option<LogLevel>,
}

/// Runs the daemon until a signal or a failure ends it.
pub fn run(options: Options) -> Result<(), Stop> {
    let mut config = Config::load(options.config.as_deref())?;
    if !options.interfaces.is_empty() {
        config.daemon.interfaces = options.interfaces;
    }
    config.daemon.socket = options.socket.or(config.daemon.socket);
    config.daemon.metrics = options.metrics.or(config.daemon.metrics);
    config.daemon.log = options.log.unwrap_or(config.daemon.log);
    privilege::check()?;
    start_log(&config);
    let mut socket = ControlSocket::open(config.daemon.socket.as_deref())?;
    let runtime = runtime()?;
    let (requests, queue) = mpsc::channel(QUEUE);
    let front = Front::start(&config, &mut socket, requests)?;
    let result = runtime.block_on(async {
        let ended = signals::ended()
            .map_err(|error| Stop::failure(format!("cannot handle signals: {error}")))?;
        engine::run(config, socket.path(), queue, ended)
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
        config: &Config,
        socket: &mut ControlSocket,
        requests: mpsc::Sender<Request>,
    ) -> Result<Front, Stop> {
        let control = socket.take_listener();
        tracing::debug!("control socket {}", socket.path().display());
        let metrics = config.daemon.metrics.map(listen).transpose()?;
        let (stop, stopped) = oneshot::channel();
        let failed = |error| Stop::failure(format!("cannot start the control server: {error}"));
        let runtime = runtime()?;
        let work = move || {
            runtime.block_on(async {
                if let Some(listener) = control.and_then(|l| UnixListener::from_std(l).ok()) {
                    let router = server::router(requests.clone());
                    tokio::spawn(async move { axum::serve(listener, router).await });
                }
                if let Some(listener) = metrics.and_then(|l| TcpListener::from_std(l).ok()) {
                    let router = server::metrics_router(requests);
                    tokio::spawn(async move { axum::serve(listener, router).await });
                }
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

fn listen(address: SocketAddr) -> Result<std::net::TcpListener, Stop> {
    let listener = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| {
            Stop::new(
                Exit::Config,
                format!("cannot serve metrics at {address}: {error}"),
            )
        })?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(listener)
}

fn runtime() -> Result<Runtime, Stop> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::failure(format!("cannot start the runtime: {error}")))
}

/// Logs go to standard error; FREEWAY_LOG overrides the level: `LEVEL`, or `TARGET=LEVEL,...`.
fn start_log(config: &Config) {
    let filter = std::env::var("FREEWAY_LOG").ok();
    let filter = filter.and_then(|filter| filter.parse::<Targets>().ok());
    let level = config.daemon.log.directive().parse();
    let level = level.unwrap_or(LevelFilter::INFO);
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(Terminal::stderr().color);
    // journald stamps what it receives.
    let log = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => log.without_time().boxed(),
        None => log.boxed(),
    };
    tracing_subscriber::registry().with(filter).with(log).init();
}
