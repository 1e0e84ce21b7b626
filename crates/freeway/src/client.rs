// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking the daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::{
    Explain, ExplainQuery, Failure, FailureKind, FlowFilter, Flows, Flushed, Stats, Status, Switch,
    Switched,
};
use crate::exit::{Exit, Stop};
use crate::netns;

/// How long the daemon may take beside what it was asked to watch.
const PATIENCE: Duration = Duration::from_secs(10);

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

    /// `freeway flows`.
    pub fn flows(&self, filter: &FlowFilter) -> Result<Flows, Stop> {
        self.ask(Method::POST, "/v1/flows", filter, Duration::ZERO)
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

    /// `freeway flush`.
    pub fn flush(&self) -> Result<Flushed, Stop> {
        self.ask(Method::POST, "/v1/flush", &(), Duration::ZERO)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        extra: Duration,
    ) -> Result<T, Stop> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Stop::failure(format!("cannot start the runtime: {error}")))?;
        let body = serde_json::to_vec(body).map_err(|error| Stop::failure(error.to_string()))?;
        let (ok, answer) = runtime.block_on(async {
            let exchange = self.exchange(method, path, body);
            tokio::time::timeout(self.patience + extra, exchange)
                .await
                .unwrap_or_else(|_| Err(self.silent()))
        })?;
        if !ok {
            let failure = serde_json::from_slice::<Failure>(&answer)
                .unwrap_or_else(|_| Failure::internal(String::from_utf8_lossy(&answer)));
            let exit = if failure.kind == FailureKind::Request {
                Exit::Usage
            } else {
                Exit::Failure
            };
            return Err(Stop::new(exit, failure.to_string()));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            Stop::failure(format!("the daemon's answer does not parse ({error}); restart it if it is of another version"))
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(bool, Bytes), Stop> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| self.absent(&error))?;
        let broken = |error: hyper::Error| {
            Stop::new(
                Exit::NoDaemon,
                format!("the daemon at {} broke off: {error}", self.socket.display()),
            )
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "freeway")
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Stop::failure(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let ok = response.status().is_success();
        let answer = response
            .into_body()
            .collect()
            .await
            .map_err(broken)?
            .to_bytes();
        connection.abort();
        Ok((ok, answer))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::fake;
    use crate::testing::TempDir;

    #[test]
    fn every_question_is_answered() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        let _daemon = fake::Daemon::start(&path);
        let client = Client::new(Some(&path)).unwrap();
        assert_eq!(client.status().unwrap(), fake::status());
        assert_eq!(client.stats().unwrap(), fake::stats());
        let all = client.flows(&FlowFilter::default()).unwrap();
        assert_eq!((all.total, all.flows.len()), (2, 2));
        let some = client.flows(&FlowFilter {
            sport: "5201".parse().ok(),
            limit: Some(1),
            ..FlowFilter::default()
        });
        assert_eq!(some.unwrap().total, 1);
        let query = fake::query();
        assert_eq!(client.explain(&query).unwrap(), fake::explain());
        assert_eq!(
            client.switch(false).unwrap(),
            Switched {
                on: false,
                was_on: true
            }
        );
        assert_eq!(
            client.switch(true).unwrap(),
            Switched {
                on: true,
                was_on: false
            }
        );
        assert_eq!(client.flush().unwrap(), Flushed { flows: 2 });
    }

    #[test]
    fn bad_requests_come_back_in_words() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        let _daemon = fake::Daemon::start(&path);
        let client = Client::new(Some(&path)).unwrap();
        let query = ExplainQuery {
            dst: "[2001:db8::1]:1".parse().unwrap(),
            ..fake::query()
        };
        let stop = client.explain(&query).unwrap_err();
        assert_eq!(stop.exit, Exit::Usage);
        assert!(stop.to_string().contains("different families"), "{stop}");
        let stop = client
            .ask::<Status>(Method::GET, "/v1/nothing", &(), Duration::ZERO)
            .unwrap_err();
        assert!(stop.to_string().contains("no such request"), "{stop}");
        let stop = client
            .ask::<Flows>(Method::POST, "/v1/flows", &["x"], Duration::ZERO)
            .unwrap_err();
        assert!(stop.to_string().contains("does not parse"), "{stop}");
    }

    #[test]
    fn without_a_daemon_one_line_and_code_2() {
        let dir = TempDir::new();
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
        let dir = TempDir::new();
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
