// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting and ending the daemon.

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

use super::socket::ControlSocket;
use super::{engine, privilege, server, signals};
use crate::cli::RunArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};

/// Questions that may wait for the engine.
const QUEUE: usize = 64;

/// Runs the daemon until a signal or a failure ends it.
pub fn run(args: RunArgs) -> Result<(), Stop> {
    let mut config = Config::load(args.config.as_deref())?;
    if !args.interfaces.is_empty() {
        config.daemon.interfaces = args.interfaces;
    }
    config.daemon.socket = args.socket.socket.or(config.daemon.socket);
    config.daemon.metrics = args.metrics.or(config.daemon.metrics);
    config.daemon.log = args.log.unwrap_or(config.daemon.log);
    privilege::check()?;
    start_log(&config);
    let socket = ControlSocket::open(config.daemon.socket.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::failure(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(serve(config, socket));
    if result.is_ok() {
        tracing::info!("stopped; the kernel forwards everything");
    }
    result
}

async fn serve(config: Config, mut socket: ControlSocket) -> Result<(), Stop> {
    let ended = signals::ended()
        .map_err(|error| Stop::failure(format!("cannot handle signals: {error}")))?;
    let (requests, queue) = mpsc::channel(QUEUE);
    if let Some(listener) = socket.take_listener() {
        let listener = UnixListener::from_std(listener).map_err(|error| {
            Stop::failure(format!(
                "cannot serve control socket {}: {error}",
                socket.path().display()
            ))
        })?;
        tracing::debug!("control socket {}", socket.path().display());
        let router = server::router(requests.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
    }
    if let Some(address) = config.daemon.metrics {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Stop::new(
                Exit::Config,
                format!("cannot serve metrics at {address}: {error}"),
            )
        })?;
        tracing::info!("metrics at http://{address}/metrics");
        let router = server::metrics_router(requests.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
    }
    engine::run(config, queue, ended).await?;
    Ok(())
}

/// Logs go to standard error; FREEWAY_LOG overrides the level with the syntax of `tracing_subscriber`.
fn start_log(config: &Config) {
    let filter = EnvFilter::try_from_env("FREEWAY_LOG")
        .unwrap_or_else(|_| EnvFilter::new(config.daemon.log.directive()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(crate::render::Terminal::stderr().color);
    // journald stamps what it receives.
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().init();
    } else {
        log.init();
    }
}
