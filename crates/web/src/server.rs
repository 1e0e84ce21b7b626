// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: few at once, one request each, and none that waits for ever.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use freeway_api::Client;
use freeway_api::serving::{PAUSE, end_untaken, one_request};
use freeway_console::{Exit, Stop};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::guard::Guard;
use crate::places::{Place, Places};
use crate::site::Site;
use crate::token::Token;

/// What is served to whom.
#[derive(Debug)]
pub struct Options {
    /// The address.
    pub listen: SocketAddr,
    /// What who looks has to know.
    pub token: Option<Token>,
    /// Names of this machine.
    pub hosts: Vec<String>,
    /// Who asks the daemon.
    pub client: Client,
}

/// Serves the page until SIGINT or SIGTERM.
///
/// # Errors
/// The address cannot be bound.
pub fn run(options: Options) -> Result<(), Stop> {
    let failed = |error: io::Error| Stop::failure(format!("cannot serve the page: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let result = runtime.block_on(async {
        let mut signals = [SignalKind::interrupt(), SignalKind::terminate()]
            .map(signal)
            .into_iter()
            .collect::<io::Result<Vec<Signal>>>()
            .map_err(failed)?;
        let guard = Guard::new(options.hosts, options.token).map_err(failed)?;
        let site = Site::new(guard, options.client).map_err(failed)?;
        let listener = listen(options.listen).await?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!("the page is at http://{address}/");
        let [interrupt, terminate] = &mut signals[..] else {
            return Ok(());
        };
        tokio::select! {
            () = accept(&listener, Arc::new(site)) => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    });
    // a question that is under way is nobody's any more
    runtime.shutdown_background();
    result
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Stop> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::Privilege,
            _ => Exit::Failure,
        };
        Stop::new(
            exit,
            format!("cannot listen at {address}: {error}; choose another address with --listen or web.listen"),
        )
    })
}

async fn accept(listener: &TcpListener, site: Arc<Site>) {
    let places = Places::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        match places.take(peer.ip()) {
            Some(place) => drop(tokio::spawn(serve(stream, peer, Arc::clone(&site), place))),
            None => tracing::debug!("no room for another connection from {peer}"),
        }
    }
}

/// The place is free again when the connection has ended.
async fn serve(stream: TcpStream, peer: SocketAddr, site: Arc<Site>, _place: Place) {
    if let Err(error) = end_untaken(&stream) {
        tracing::debug!("{peer}: {error}");
    }
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(peer.ip(), request).await) }
    });
    let connection = one_request().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("{peer}: {error}");
    }
}
