// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon with fixed answers.

use std::path::Path;
use std::thread::JoinHandle;

use freeway_api::fake::{drops, explain, flow, hosts, reply_flow, routes, stats, status, top};
use freeway_api::{Flushed, Reloaded, Resynced, Steering, Switched};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::request::{Page, PageQuery, Request};
use super::server;

/// A running fake; dropping it ends it.
pub struct Daemon {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Serves at `path`.
    pub fn start(path: &Path) -> Daemon {
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (requests, queue) = mpsc::channel(4);
                let listener = UnixListener::from_std(listener).unwrap();
                tokio::spawn(async move { axum::serve(listener, server::router(requests)).await });
                tokio::select! {
                    () = answer(queue) => {}
                    _ = stopped => {}
                }
            });
        });
        Daemon {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Both flows, a page each, as a table that is larger than a page would be listed.
fn page(query: &PageQuery) -> Page {
    let flows = [flow(), reply_flow()];
    let hit = flows.get(query.from as usize);
    let hit = hit.filter(|flow| {
        let exact = query
            .filter
            .sport
            .is_none_or(|ports| ports.contains(flow.sport));
        query.filter.matches(flow) && exact
    });
    Page {
        flows: hit
            .filter(|_| query.room > 0)
            .cloned()
            .into_iter()
            .collect(),
        matched: hit.is_some().into(),
        next: (query.from + 1 < 2).then_some(query.from + 1),
        table: 2,
    }
}

async fn answer(mut queue: mpsc::Receiver<Request>) {
    let mut on = true;
    let mut steering = Steering::default();
    while let Some(request) = queue.recv().await {
        // A client may have left.
        match request {
            Request::Status(reply) => drop(reply.send(Ok(status()))),
            Request::Stats(reply) => drop(reply.send(Ok(stats()))),
            Request::Flows(query, reply) => drop(reply.send(Ok(page(&query)))),
            Request::Top(_, reply) => drop(reply.send(Ok(top()))),
            Request::Capture(_, reply) => {
                let failure = freeway_api::Failure::unavailable("nothing to capture", "hint");
                drop(reply.send(Err(failure)));
            }
            Request::CaptureEnded => {}
            Request::Explain(_, reply) => drop(reply.send(Ok(explain()))),
            Request::Switch(switch, reply) => {
                let was_on = std::mem::replace(&mut on, switch.on);
                drop(reply.send(Ok(Switched { on, was_on })));
            }
            Request::Steer(change, reply) => {
                let changed = change.map_or(Ok(()), |change| steering.change(change));
                let refused = |error| freeway_api::Failure::request(error, "hint");
                drop(reply.send(changed.map(|()| steering.clone()).map_err(refused)));
            }
            Request::Dispatch(_, reply) => drop(reply.send(Ok(Default::default()))),
            Request::Flush(reply) => drop(reply.send(Ok(Flushed { flows: 2 }))),
            Request::Drops(reply) => drop(reply.send(Ok(drops()))),
            Request::Routes(_, reply) => drop(reply.send(Ok(routes()))),
            Request::Hosts(reply) => drop(reply.send(Ok(hosts()))),
            Request::Reload(read, reply) => {
                let changes = Vec::new();
                drop(reply.send(read.map(|config| Reloaded {
                    file: config.file.map(|file| file.display().to_string()),
                    changes,
                })));
            }
            Request::HandOver(_, reply) => {
                let failure = freeway_api::Failure::unavailable("nothing to hand over", "hint");
                drop(reply.send(Err(failure)));
            }
            Request::Resync(reply) => drop(reply.send(Ok(Resynced { changes: 3 }))),
        }
    }
}
