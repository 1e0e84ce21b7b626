// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the control server: HTTP as it comes, or a body for one of its paths.

use std::cell::RefCell;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use freeway_api::Flow;
use freeway_daemon::fuzz::{Page, Request, router};

const PATHS: [&str; 8] = [
    "status", "stats", "flows", "top", "explain", "switch", "flush", "resync",
];

const FLOW: &str = r#"{"family":4,"proto":"tcp","src":"192.0.2.2","sport":40000,"dst":"198.51.100.2","dport":5201,
    "port_in":"lan0","to_src":"198.51.100.1","to_sport":40000,"to_dst":"198.51.100.2","to_dport":5201,
    "port_out":"wan0","src_mac_out":"02:00:00:00:02:01","dst_mac_out":"02:00:00:00:02:02","state":"active",
    "path":"xdp","packets":7,"bytes":700,"age_s":1.5,"idle_s":0.5,"confirmed_s_ago":1.0,"length_max":1500,
    "ttl":64,"dscp":0,"connection":true,"mark":0,"reply":false}"#;

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// The first byte says what the others are. Whatever they are, the server answers in HTTP, or not at all.
pub fn run(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    // of a request that may not be complete the end must be told, or it is waited for
    let whole = usize::from(kind) < PATHS.len();
    let sent = match PATHS.get(usize::from(kind)) {
        Some(path) => request(path, rest),
        None => rest.to_vec(),
    };
    RUNTIME.with_borrow_mut(|runtime| {
        let runtime = runtime.get_or_insert_with(|| {
            let built = Builder::new_current_thread().enable_time().build();
            #[allow(clippy::expect_used)]
            built.expect("a runtime")
        });
        let received = runtime.block_on(converse(&sent, whole));
        let http = received.is_empty() || received.starts_with(b"HTTP/1.");
        assert!(http, "{}", String::from_utf8_lossy(&received));
        if whole {
            answer(&received);
        }
    });
}

fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let method = match path {
        "status" | "stats" => "GET",
        _ => "POST",
    };
    let head = format!(
        "{method} /v1/{path} HTTP/1.1\r\nhost: freeway\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What a whole request gets is JSON, and no failure of the server's own.
fn answer(received: &[u8]) {
    let text = String::from_utf8_lossy(received);
    let status = text.split_whitespace().nth(1).unwrap_or_default();
    assert!(matches!(status, "200" | "400" | "503"), "{text}");
    assert!(text.contains("content-type: application/json"), "{text}");
}

async fn converse(sent: &[u8], whole: bool) -> Vec<u8> {
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let (engine, mut questions) = mpsc::channel(4);
    let service = TowerToHyperService::new(router(engine));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(far), service);
    let mut received = Vec::new();
    let client = async {
        let _ = near.write_all(sent).await;
        if !whole {
            let _ = near.shutdown().await;
        }
        let _ = near.read_to_end(&mut received).await;
    };
    let engine = async {
        while let Some(question) = questions.recv().await {
            reply(question);
        }
        // the server is gone, and its last words are under way
        std::future::pending::<()>().await;
    };
    let conversation = async {
        tokio::select! {
            _ = async { tokio::join!(connection, client) } => {}
            () = engine => {}
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(5), conversation).await;
    received
}

/// Listings go on page after page; to all else the engine says nothing, which is an answer, too.
fn reply(question: Request) {
    if let Request::Flows(query, reply) = question {
        let flow: Option<Flow> = serde_json::from_str(FLOW).ok();
        let page = Page {
            flows: flow.into_iter().take(query.room).collect(),
            matched: 1,
            next: (query.from < 2).then_some(query.from + 1),
            table: 3,
        };
        drop(reply.send(Ok(page)));
    }
}
