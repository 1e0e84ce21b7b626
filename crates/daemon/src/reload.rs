// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the configuration again: for `freeway reload`, and at SIGHUP.
//!
//! What can fail comes first: the file is read, the metrics' new address bound, and the engine asked. Then nothing can.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use freeway_api::{Failure, Reloaded};
use freeway_console::Fault;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, listen, setsockopt,
    socket, sockopt,
};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::task::{JoinHandle, spawn, spawn_blocking};

use super::ask::Engine;
use super::bounded;
use super::log::SetLog;
use super::options::Options;
use super::request::Request;
use super::server::{answer, metrics_router};
use super::signals::Hangup;
use crate::supervisor::Supervisor;

/// Whoever has it can have the configuration read again.
#[derive(Clone)]
pub struct Reloader(Arc<Mutex<Live>>);

/// What the engine knows nothing of.
pub struct Live {
    pub engine: Engine,
    options: Options,
    pub metrics: Metrics,
    set_log: SetLog,
    supervisor: Supervisor,
}

/// The metrics' listener.
#[derive(Default)]
pub struct Metrics {
    address: Option<SocketAddr>,
    /// Where connections are taken, once more.
    listener: Option<std::net::TcpListener>,
    serving: Option<JoinHandle<()>>,
}

/// An address that the machine has, or may have later: at boot the network's configuration may still be under way.
fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::IpFreebind, &true)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

impl Metrics {
    /// Binds an address, if there is one.
    pub fn listen(address: Option<SocketAddr>) -> Result<Option<std::net::TcpListener>, String> {
        let Some(address) = address else {
            return Ok(None);
        };
        let listener =
            bind(address).map_err(|error| format!("cannot serve metrics at {address}: {error}"))?;
        Ok(Some(listener))
    }

    /// Serves there, and no longer where it did.
    pub fn serve(
        &mut self,
        address: Option<SocketAddr>,
        listener: Option<std::net::TcpListener>,
        engine: &Engine,
    ) {
        self.pause();
        self.address = address;
        self.listener = listener.as_ref().and_then(|own| own.try_clone().ok());
        let listener = listener.and_then(|listener| TcpListener::from_std(listener).ok());
        let Some(listener) = listener else { return };
        if let Some(address) = address {
            tracing::info!("metrics at http://{address}/metrics");
        }
        let router = metrics_router(engine.clone());
        self.serving = Some(spawn(async move {
            // it ends with the daemon, or by being aborted
            bounded::serve(listener, router).await;
        }));
    }

    /// Where.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The listener, for another process.
    pub fn listener(&self) -> io::Result<Option<OwnedFd>> {
        let own = self.listener.as_ref();
        own.map(|own| Ok(own.try_clone()?.into())).transpose()
    }

    /// Serves nobody, but who connects waits.
    pub fn pause(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

impl Reloader {
    /// By what the daemon was started with; `file`: what it has read.
    pub fn new(
        engine: Engine,
        options: Options,
        file: Option<PathBuf>,
        metrics: Metrics,
        set_log: SetLog,
        supervisor: Supervisor,
    ) -> Self {
        let options = Options {
            config: file.or(options.config.clone()),
            ..options
        };
        Self(Arc::new(Mutex::new(Live {
            engine,
            options,
            metrics,
            set_log,
            supervisor,
        })))
    }

    /// One after the other, and to its end: whoever has asked may leave meanwhile.
    async fn reload(&self) -> Result<Reloaded, Failure> {
        let live = Arc::clone(&self.0);
        let whole = spawn(async move {
            let mut live = live.lock_owned().await;
            live.supervisor.reloading();
            let result = live.reload().await;
            live.supervisor.reloaded();
            result
        });
        let ending = |_| Failure::unavailable("the daemon is ending", "try again when it runs");
        whole.await.map_err(ending)?
    }

    /// Nothing is reloaded meanwhile.
    pub async fn hold(&self) -> OwnedMutexGuard<Live> {
        Arc::clone(&self.0).lock_owned().await
    }

    /// At each SIGHUP; the engine logs what becomes of it.
    pub async fn follow(self, mut hangup: Hangup) {
        while hangup.next().await {
            tracing::info!("SIGHUP: reading the configuration again");
            let _ = self.reload().await;
        }
    }
}

impl Live {
    /// Goes on after a pause.
    pub fn resume_metrics(&mut self) {
        let (address, listener) = (self.metrics.address, self.metrics.listener.take());
        self.metrics.serve(address, listener, &self.engine);
    }

    async fn reload(&mut self) -> Result<Reloaded, Failure> {
        let ending = || Failure::unavailable("the daemon is ending", "try again when it runs");
        let options = self.options.clone();
        // a file system that hangs must not hold up the other requests
        let read = spawn_blocking(move || options.read_again()).await;
        let read = read.map_err(|_| ending())?.map_err(refused);
        let mut listener = None;
        let read = read.and_then(|config| {
            if config.daemon.metrics != self.metrics.address {
                listener = Metrics::listen(config.daemon.metrics).map_err(|message| {
                    let path = ["daemon", "metrics"].map(str::to_owned);
                    refused(config.fault(&path, message))
                })?;
            }
            Ok(Box::new(config))
        });
        let wanted = read.as_ref().ok();
        let wanted = wanted.map(|config| {
            (
                config.daemon.metrics,
                config.daemon.log,
                config.file.clone(),
            )
        });
        let (reply, applied) = oneshot::channel();
        let request = Request::Reload(read, reply);
        self.engine.send(request).await.map_err(|_| ending())?;
        let applied = applied.await.map_err(|_| ending())??;
        if let Some((address, log, file)) = wanted {
            if address != self.metrics.address {
                self.metrics.serve(address, listener, &self.engine);
            }
            (self.set_log)(log);
            self.options.config = file.or(self.options.config.take());
        }
        Ok(applied)
    }
}

fn refused(fault: Fault) -> Failure {
    Failure::config(fault.to_string(), "nothing was changed")
}

/// The request of the control API.
pub fn router(reloader: Reloader) -> Router {
    Router::new()
        .route("/v1/reload", post(reload))
        .with_state(reloader)
}

async fn reload(State(reloader): State<Reloader>) -> Response {
    answer(reloader.reload().await)
}
