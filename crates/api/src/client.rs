// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking the daemon.

use std::fmt;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use freeway_console::{Exit, Stop};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serialize};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::engine::{DispatchQuery, Dispatching};
use crate::{
    CaptureQuery, Drops, Explain, ExplainQuery, Failure, FailureKind, Flow, FlowFilter, Flushed,
    Hosts, Reloaded, Resynced, Routes, RoutesQuery, Stats, Status, SteerChange, Steering, Switch,
    Switched, Top, TopQuery, Upgrade, Upgraded, netns,
};

/// How long the daemon may take beside what it was asked to watch.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much longer a reload may take: programs may have to be attached to many ports.
const RELOAD: Duration = Duration::from_secs(20);

/// What an upgrade takes beside loading the new programs.
const TAKING_OVER: Duration = Duration::from_secs(30);

/// A client of one control socket.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// A client of the daemon at `socket`, or of this network namespace's.
    pub fn new(socket: Option<&Path>) -> Result<Client, Stop> {
        let socket = match socket {
            Some(path) => path.to_path_buf(),
            None => netns::default_socket().map_err(|error| {
                Stop::failure(format!(
                    "cannot identify this network namespace: {error}; mount /proc"
                ))
            })?,
        };
        Ok(Client {
            socket,
            patience: PATIENCE,
        })
    }

    /// The same, but giving up earlier or later.
    pub fn patience(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// `freeway status`.
    pub fn status(&self) -> Result<Status, Stop> {
        self.ask(Method::GET, "/v1/status", &(), Duration::ZERO)
    }

    /// `freeway stats`.
    pub fn stats(&self) -> Result<Stats, Stop> {
        self.ask(Method::GET, "/v1/stats", &(), Duration::ZERO)
    }

    /// `freeway flows`, as it is sent; each part may be as late as any answer.
    pub fn flow_stream(&self, filter: &FlowFilter) -> Result<Stream, Stop> {
        self.stream("/v1/flows", filter)
    }

    /// `freeway capture`: pcapng, of which some comes each second. Dropping it ends the capture.
    pub fn capture(&self, query: &CaptureQuery) -> Result<Stream, Stop> {
        self.stream("/v1/capture", query)
    }

    fn stream(&self, path: &str, body: &impl Serialize) -> Result<Stream, Stop> {
        let runtime = runtime()?;
        let body = serde_json::to_vec(body).map_err(|error| Stop::failure(error.to_string()))?;
        let response = runtime.block_on(async {
            let exchange = async {
                let response = self.send(Method::POST, path, body).await?;
                if response.status().is_success() {
                    return Ok(response.into_body());
                }
                let answer = response.into_body().collect().await;
                Err(refusal(
                    &answer.map_err(|error| self.broken(&error))?.to_bytes(),
                ))
            };
            self.in_time(Duration::ZERO, exchange).await
        })?;
        Ok(Stream {
            client: Client {
                socket: self.socket.clone(),
                patience: self.patience,
            },
            runtime,
            body: response,
            part: Bytes::new(),
            failure: None,
        })
    }

    /// `freeway top`.
    pub fn top(&self, query: TopQuery) -> Result<Top, Stop> {
        self.ask(Method::POST, "/v1/top", &query, Duration::ZERO)
    }

    /// `freeway explain`.
    pub fn explain(&self, query: &ExplainQuery) -> Result<Explain, Stop> {
        self.ask(
            Method::POST,
            "/v1/explain",
            query,
            Duration::from_millis(query.watch_ms.into()),
        )
    }

    /// `freeway on` and `off`.
    pub fn switch(&self, on: bool) -> Result<Switched, Stop> {
        self.ask(Method::POST, "/v1/switch", &Switch { on }, Duration::ZERO)
    }

    /// `freeway steer`: the rules, after a change if there is one.
    pub fn steer(&self, change: Option<&SteerChange>) -> Result<Steering, Stop> {
        match change {
            Some(change) => self.ask(Method::POST, "/v1/steer", change, Duration::ZERO),
            None => self.ask(Method::GET, "/v1/steer", &(), Duration::ZERO),
        }
    }

    /// `freeway engine dispatch`: how frames come to workers, after a change if there is one.
    pub fn dispatch(&self, query: Option<&DispatchQuery>) -> Result<Dispatching, Stop> {
        let path = "/v1/engine/dispatch";
        match query {
            Some(query) => self.ask(Method::POST, path, query, Duration::ZERO),
            None => self.ask(Method::GET, path, &(), Duration::ZERO),
        }
    }

    /// `freeway flush`.
    pub fn flush(&self) -> Result<Flushed, Stop> {
        self.ask(Method::POST, "/v1/flush", &(), Duration::ZERO)
    }

    /// `freeway reload`.
    pub fn reload(&self) -> Result<Reloaded, Stop> {
        self.ask(Method::POST, "/v1/reload", &(), RELOAD)
    }

    /// `freeway upgrade`.
    pub fn upgrade(&self, upgrade: Upgrade) -> Result<Upgraded, Stop> {
        let loading = Duration::from_secs(upgrade.timeout_s.into());
        self.ask(Method::POST, "/v1/upgrade", &upgrade, loading + TAKING_OVER)
    }

    /// `freeway drops`.
    pub fn drops(&self) -> Result<Drops, Stop> {
        self.ask(Method::GET, "/v1/drops", &(), Duration::ZERO)
    }

    /// `freeway routes`.
    pub fn routes(&self, query: &RoutesQuery) -> Result<Routes, Stop> {
        self.ask(Method::POST, "/v1/routes", query, Duration::ZERO)
    }

    /// `freeway hosts`.
    pub fn hosts(&self) -> Result<Hosts, Stop> {
        self.ask(Method::GET, "/v1/hosts", &(), Duration::ZERO)
    }

    /// `freeway resync`.
    pub fn resync(&self) -> Result<Resynced, Stop> {
        self.ask(Method::POST, "/v1/resync", &(), Duration::ZERO)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        extra: Duration,
    ) -> Result<T, Stop> {
        let runtime = runtime()?;
        let body = serde_json::to_vec(body).map_err(|error| Stop::failure(error.to_string()))?;
        let exchange = async {
            let response = self.send(method, path, body).await?;
            let ok = response.status().is_success();
            let answer = response.into_body().collect().await;
            let answer = answer.map_err(|error| self.broken(&error))?.to_bytes();
            if ok {
                Ok(answer)
            } else {
                Err(refusal(&answer))
            }
        };
        let answer = runtime.block_on(self.in_time(extra, exchange))?;
        serde_json::from_slice(&answer).map_err(|error| unreadable(&error))
    }

    async fn in_time<T>(
        &self,
        extra: Duration,
        exchange: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Stop> {
        tokio::time::timeout(self.patience + extra, exchange)
            .await
            .unwrap_or_else(|_| Err(self.silent()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Stop> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| self.absent(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        // it ends with the runtime
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "freeway")
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Stop::failure(error.to_string()))?;
        let response = sender.send_request(request).await;
        response.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &hyper::Error) -> Stop {
        Stop::new(
            Exit::NoDaemon,
            format!("the daemon at {} broke off: {error}", self.socket.display()),
        )
    }

    fn absent(&self, error: &io::Error) -> Stop {
        let socket = self.socket.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Stop::new(
                Exit::Privilege,
                format!("no permission to use {socket}: become root, or a member of group freeway"),
            ),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Stop::new(
                Exit::NoDaemon,
                format!(
                    "no daemon serves this network namespace (no answer at {socket}); start one with `freeway run`"
                ),
            ),
            _ => Stop::new(
                Exit::NoDaemon,
                format!("no daemon answers at {socket}: {error}; see `freeway run --help`"),
            ),
        }
    }

    fn silent(&self) -> Stop {
        let seconds = self.patience.as_secs();
        Stop::new(
            Exit::NoDaemon,
            format!(
                "the daemon at {} has not answered for {seconds} s; its log may say why",
                self.socket.display()
            ),
        )
    }
}

fn runtime() -> Result<Runtime, Stop> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::failure(format!("cannot start the runtime: {error}")))
}

/// What the daemon says instead of an answer.
fn refusal(answer: &[u8]) -> Stop {
    let failure = serde_json::from_slice::<Failure>(answer)
        .unwrap_or_else(|_| Failure::internal(String::from_utf8_lossy(answer)));
    let exit = match failure.kind {
        FailureKind::Request => Exit::Usage,
        FailureKind::Privilege => Exit::Privilege,
        FailureKind::Config => Exit::Config,
        _ => Exit::Failure,
    };
    Stop::new(exit, failure.to_string())
}

fn unreadable(error: &serde_json::Error) -> Stop {
    Stop::failure(format!(
        "the daemon's answer does not parse ({error}); restart it if it is of another version"
    ))
}

/// A long answer as it arrives.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    runtime: Runtime,
    body: Incoming,
    part: Bytes,
    /// What ended it early.
    failure: Option<Stop>,
}

impl Stream {
    /// The next bytes; `None` at its end.
    pub fn next_part(&mut self) -> Result<Option<Bytes>, Stop> {
        let frame = async {
            match self.body.frame().await {
                Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
                Some(Err(error)) => Err(self.client.broken(&error)),
                None => Ok(None),
            }
        };
        let timed = self.client.in_time(Duration::ZERO, frame);
        self.runtime.block_on(timed)
    }

    /// Hands each flow to `each` until that says false; returns how many the filter lets through, if it came that far.
    pub fn each(mut self, each: impl FnMut(Flow) -> bool) -> Result<Option<u64>, Stop> {
        let mut left = false;
        let visitor = Listing {
            each,
            left: &mut left,
        };
        let reader = BufReader::with_capacity(1 << 16, &mut self);
        let result = visitor.deserialize(&mut serde_json::Deserializer::from_reader(reader));
        match (result, self.failure.take()) {
            (_, Some(stop)) => Err(stop),
            _ if left => Ok(None),
            (Ok(total), None) => Ok(Some(total)),
            (Err(error), None) => Err(unreadable(&error)),
        }
    }
}

impl io::Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.next_part() {
                Ok(Some(part)) => self.part = part,
                Ok(None) => return Ok(0),
                Err(stop) => {
                    self.failure = Some(stop);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        let len = room.len().min(self.part.len());
        room[..len].copy_from_slice(&self.part.split_to(len));
        Ok(len)
    }
}

/// Reads the object with `flows` and `total`, a flow at a time.
struct Listing<'a, F> {
    each: F,
    left: &'a mut bool,
}

impl<'de, F: FnMut(Flow) -> bool> DeserializeSeed<'de> for Listing<'_, F> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Flow) -> bool> Visitor<'de> for Listing<'_, F> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with flows and total")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<u64, A::Error> {
        let mut total = 0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "flows" => map.next_value_seed(Rows(&mut self))?,
                "total" => total = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(total)
    }
}

struct Rows<'a, 'b, F>(&'a mut Listing<'b, F>);

impl<'de, F: FnMut(Flow) -> bool> DeserializeSeed<'de> for Rows<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Flow) -> bool> Visitor<'de> for Rows<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of flows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(flow) = seq.next_element()? {
            if !(self.0.each)(flow) {
                *self.0.left = true;
                return Err(serde::de::Error::custom("enough"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_one_line_and_code_2() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let client = Client::new(Some(&path)).unwrap();
        let check = || {
            let stop = client.status().unwrap_err();
            assert_eq!(stop.exit, Exit::NoDaemon);
            assert_eq!(stop.to_string().lines().count(), 1);
        };
        check();
        // A killed daemon leaves its socket.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        check();
    }

    #[test]
    fn a_hung_daemon_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let client = Client::new(Some(&path))
            .unwrap()
            .patience(Duration::from_millis(50));
        let stop = client.status().unwrap_err();
        assert_eq!(stop.exit, Exit::NoDaemon);
        assert!(stop.to_string().contains("has not answered"), "{stop}");
    }
}
