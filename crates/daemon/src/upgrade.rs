// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has another process of the installed program succeed this one: `freeway upgrade`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use axum::routing::post;
use freeway_abi::DIGEST;
use freeway_api::{Failure, Upgrade, Upgraded};
use tokio::task::{spawn, spawn_blocking};

use super::ask::Engine;
use super::gate::Latch;
use super::peer::Peer;
use super::reload::{Live, Reloader};
use super::request::Request;
use super::server::{answer, read};
use super::succession::successor::{Handover, Successor};
use super::succession::words::{Hello, PROTOCOL};

/// The program that was started, by the name that it had then: what is there now is its successor's.
#[derive(Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Of this process. Asked for at the start: later the file may have been replaced.
    pub fn of_process() -> Result<Self, String> {
        std::env::current_exe()
            .map(Self)
            .map_err(|error| format!("cannot tell which program this is: {error}; mount /proc"))
    }
}

/// What is this process's alone, and goes to its successor.
#[derive(Debug)]
pub struct Property {
    pub program: Program,
    pub socket: PathBuf,
    pub control: OwnedFd,
    pub locks: Vec<OwnedFd>,
}

/// Whoever has it can have the daemon upgraded.
#[derive(Clone)]
pub struct Upgrader {
    reloader: Reloader,
    property: Arc<Property>,
    latch: Arc<Latch>,
}

impl Upgrader {
    pub fn new(reloader: Reloader, property: Property, latch: Latch) -> Self {
        Self {
            reloader,
            property: Arc::new(property),
            latch: Arc::new(latch),
        }
    }

    /// One after the other, beside no reload, and to its end: whoever has asked may leave meanwhile.
    async fn upgrade(self, upgrade: Upgrade) -> Result<Upgraded, Failure> {
        let whole = spawn(async move {
            let mut live = self.reloader.hold().await;
            let result = self.hand_over(&mut live, upgrade).await;
            if let Err(failure) = &result {
                tracing::error!("the daemon is not upgraded: {failure}");
            }
            result
        });
        whole.await.map_err(|_| ending())?
    }

    async fn hand_over(&self, live: &mut Live, upgrade: Upgrade) -> Result<Upgraded, Failure> {
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            abi: DIGEST,
            socket: self.property.socket.clone(),
            metrics: live.metrics.address(),
        };
        let property = Arc::clone(&self.property);
        let patience = Duration::from_secs(upgrade.timeout_s.max(1).into());
        let raised =
            spawn_blocking(move || Successor::raise(&property.program.0, &hello, patience));
        let successor = raised.await.map_err(|_| ending())??;
        let failed = |error: std::io::Error| {
            Failure::internal(format!("cannot hand over the control socket: {error}"))
        };
        let locks = self.property.locks.iter().map(OwnedFd::try_clone);
        let handover = Handover {
            successor,
            control: self.property.control.try_clone().map_err(failed)?,
            locks: locks.collect::<Result<_, _>>().map_err(failed)?,
            metrics: live.metrics.listener().map_err(failed)?,
        };
        // from here on who connects is the successor's
        self.latch.send_replace(false);
        live.metrics.pause();
        let handed = ask(live.engine.clone(), handover).await;
        if handed.is_err() {
            live.resume_metrics();
            self.latch.send_replace(true);
        }
        handed
    }
}

async fn ask(engine: Engine, handover: Handover) -> Result<Upgraded, Failure> {
    let (reply, handed) = tokio::sync::oneshot::channel();
    let request = Request::HandOver(Box::new(handover), reply);
    engine.send(request).await.map_err(|_| ending())?;
    handed.await.map_err(|_| ending())?
}

fn ending() -> Failure {
    Failure::unavailable("the daemon is ending", "try again when it runs")
}

/// The request of the control API.
pub fn router(upgrader: Upgrader) -> Router {
    Router::new()
        .route("/v1/upgrade", post(upgrade))
        .with_state(upgrader)
}

/// Whoever may use the socket may not choose when the router's program is another one.
async fn upgrade(
    State(upgrader): State<Upgrader>,
    peer: Option<Extension<ConnectInfo<Peer>>>,
    body: Bytes,
) -> Response {
    if !peer.is_some_and(|Extension(ConnectInfo(peer))| peer.is_trusted()) {
        return answer::<Upgraded>(Err(Failure::privilege("only root may upgrade the daemon")));
    }
    match read(&body) {
        Ok(upgrade) => answer(upgrader.upgrade(upgrade).await),
        Err(failure) => answer::<Upgraded>(Err(failure)),
    }
}
