// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all who look see: the daemon is asked once a second, for all of them together, and not while nobody looks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{Client, Drops, Failure, Packets, RoutesQuery, Stats, Status, Top, TopQuery};
use freeway_console::Stop;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Flows that are named.
const FLOWS: u32 = 20;

/// What the daemon said last, as it is sent; nothing while nobody looks.
#[derive(Debug)]
pub struct Feed {
    latest: Arc<watch::Sender<Bytes>>,
    wake: SyncSender<()>,
}

/// What the page shows.
#[derive(Debug, Serialize)]
struct Snapshot {
    /// Milliseconds since this process began to ask: for rates of what is counted.
    at_ms: u64,
    status: Status,
    stats: Stats,
    top: Top,
    drops: Drops,
    /// What left by prefixes, where some port has them.
    routed: Option<Packets>,
}

impl Feed {
    /// Begins to wait for somebody who looks.
    pub fn start(client: Arc<Client>) -> std::io::Result<Self> {
        let (latest, _) = watch::channel(Bytes::new());
        let latest = Arc::new(latest);
        let (wake, woken) = sync_channel(1);
        let told = Arc::clone(&latest);
        let work = move || follow(&client, &told, &woken);
        thread::Builder::new()
            .name("freeway-web".into())
            .spawn(work)?;
        Ok(Self { latest, wake })
    }

    /// What is said from now on, for one who looks until the receiver is dropped. Who is slow misses some.
    pub fn look(&self) -> mpsc::Receiver<Bytes> {
        let (sender, parts) = mpsc::channel(1);
        let mut latest = self.latest.subscribe();
        // one that waits is enough
        let _ = self.wake.try_send(());
        tokio::spawn(async move {
            loop {
                let part = latest.borrow_and_update().clone();
                if !part.is_empty() && sender.send(part).await.is_err() {
                    return;
                }
                tokio::select! {
                    changed = latest.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        parts
    }
}

fn follow(client: &Client, latest: &watch::Sender<Bytes>, woken: &Receiver<()>) {
    let start = Instant::now();
    while woken.recv().is_ok() {
        while latest.receiver_count() > 0 {
            let asked = Instant::now();
            let said = match ask(client, start) {
                Ok(snapshot) => event("snapshot", &snapshot),
                Err(stop) => event("away", &Failure::internal(stop.to_string())),
            };
            latest.send_replace(said);
            thread::sleep(INTERVAL.saturating_sub(asked.elapsed()));
        }
        // who comes next is not to see what was
        latest.send_if_modified(|last| {
            *last = Bytes::new();
            false
        });
    }
}

fn ask(client: &Client, start: Instant) -> Result<Snapshot, Stop> {
    let top = client.top(TopQuery { flows: FLOWS })?;
    let status = client.status()?;
    let by_routes = status.ports.iter().any(|port| port.routes);
    let routed = by_routes.then(|| client.routes(&RoutesQuery::default()));
    Ok(Snapshot {
        at_ms: start.elapsed().as_millis() as u64,
        stats: client.stats()?,
        drops: client.drops()?,
        routed: routed.transpose()?.map(|routes| routes.routed),
        status,
        top,
    })
}

/// An event of a stream (`text/event-stream`).
fn event(name: &str, data: &impl Serialize) -> Bytes {
    // in one line, as `data` has to be
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use freeway_api::fake;
    use serde_json::Value;

    use super::*;

    /// Of a daemon that counts what it is asked.
    fn serve(listener: &UnixListener, asked: &SyncSender<String>) {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            let line = String::from_utf8_lossy(&request[..length]);
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let body = match path.as_str() {
                "/v1/status" => serde_json::to_string(&fake::status()),
                "/v1/stats" => serde_json::to_string(&fake::stats()),
                "/v1/top" => serde_json::to_string(&fake::top()),
                _ => serde_json::to_string(&Drops::default()),
            };
            let body = body.unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
            if asked.send(path).is_err() {
                return;
            }
        }
    }

    fn data(part: &[u8], name: &str) -> Value {
        let text = std::str::from_utf8(part).unwrap();
        let rest = text
            .strip_prefix(&format!("event: {name}\ndata: "))
            .unwrap();
        serde_json::from_str(rest.strip_suffix("\n\n").unwrap()).unwrap()
    }

    #[test]
    fn all_share_what_was_asked_once_and_nobody_asks_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, asked) = sync_channel(0);
        thread::spawn(move || serve(&listener, &sender));
        let client = Arc::new(Client::new(Some(&path)).unwrap());
        let feed = Feed::start(client).unwrap();
        assert!(asked.recv_timeout(INTERVAL * 2).is_err(), "nobody looks");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let mut lookers: Vec<_> = (0..3).map(|_| feed.look()).collect();
        let mut questions: Vec<_> = (0..4).map(|_| asked.recv().unwrap()).collect();
        let parts = lookers
            .iter_mut()
            .map(|looker| runtime.block_on(looker.recv()).unwrap());
        let parts: Vec<Bytes> = parts.collect();
        assert!(parts[0] == parts[1] && parts[1] == parts[2]);
        let said = data(&parts[0], "snapshot");
        assert_eq!(said["top"]["ports"][0]["name"], "lan0");
        assert_eq!(said["routed"], Value::Null);
        questions.sort();
        assert_eq!(
            questions,
            ["/v1/drops", "/v1/stats", "/v1/status", "/v1/top"]
        );
        drop(lookers);
        // their tasks end
        runtime.block_on(tokio::task::yield_now());
        // what was under way, and no more
        let later = std::iter::from_fn(|| asked.recv_timeout(INTERVAL * 2).ok());
        assert!(later.take(9).count() < 9, "it goes on asking");
    }

    #[test]
    fn without_a_daemon_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let client = Arc::new(Client::new(Some(&folder.path().join("none"))).unwrap());
        let feed = Feed::start(client).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let said = runtime
            .block_on(async { feed.look().recv().await })
            .unwrap();
        let error = data(&said, "away")["error"].to_string();
        assert!(error.contains("no daemon serves"), "{error}");
    }
}
