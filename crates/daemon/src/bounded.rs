// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP for whoever reaches an address: few connections at once, one request each, and none that waits for ever.

use std::sync::Arc;

use axum::Router;
use freeway_api::serving::{PAUSE, end_untaken, one_request};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn;

/// Connections at once; another one waits in the kernel.
const PLACES: usize = 16;

/// Serves until it is aborted.
pub async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(PLACES));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                spawn(async move {
                    answer(stream, router).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: TcpStream, router: Router) {
    if let Err(error) = end_untaken(&stream) {
        tracing::debug!("a connection for metrics: {error}");
    }
    let service = TowerToHyperService::new(router);
    let connection = one_request().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a connection for metrics: {error}");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_keeps_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/metrics", get(|| async { "said" }));
        let serving = spawn(serve(listener, router));
        let mut silent = Vec::new();
        for _ in 0..2 * PLACES {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        asking.write_all(request).await.unwrap();
        let mut said = String::new();
        asking.read_to_string(&mut said).await.unwrap();
        assert!(
            said.starts_with("HTTP/1.1 200") && said.ends_with("said"),
            "{said}"
        );
        serving.abort();
    }
}
