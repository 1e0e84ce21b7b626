// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of `explain`: one question at a time, for all who look, and one a second.

use std::sync::Arc;
use std::time::Duration;

use freeway_api::{Client, Explain, ExplainQuery, Failure, identifier};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// How long packets of the flow are watched at most.
const WATCH_MS: u32 = 2000;
/// After an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// What the form has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    proto: String,
    src: String,
    dst: String,
    #[serde(default)]
    id: String,
}

impl Form {
    fn query(&self) -> Result<ExplainQuery, String> {
        let named = |what: &'static str| move |words: String| format!("{what}: {words}");
        let proto = self.proto.trim().parse().map_err(named("protocol"))?;
        let src = self.src.trim().parse().map_err(named("source"))?;
        let dst = self.dst.trim().parse().map_err(named("destination"))?;
        let id = match self.id.trim() {
            "" => None,
            id => Some(identifier(id).map_err(named("ID"))?),
        };
        ExplainQuery::of(proto, src, dst, id, WATCH_MS)
    }
}

/// Who asks the daemon.
#[derive(Debug)]
pub struct Questions {
    client: Arc<Client>,
    turn: Arc<Semaphore>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The question makes no sense.
    Question(Failure),
    /// Another is being answered.
    Busy(Failure),
    /// The daemon's.
    Daemon(Failure),
}

impl Questions {
    pub fn new(client: Arc<Client>) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Self { client, turn }
    }

    /// Asks the daemon what the form says.
    pub async fn ask(&self, form: &[u8]) -> Result<Explain, Refusal> {
        let wrong = |words: String| {
            Refusal::Question(Failure::request(words, "see `freeway explain --help`"))
        };
        let form: Form = serde_json::from_slice(form).map_err(|error| wrong(error.to_string()))?;
        let query = form.query().map_err(wrong)?;
        let busy = || {
            Failure::unavailable(
                "another question is being answered",
                "ask again in a moment",
            )
        };
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        let turn = turn.map_err(|_| Refusal::Busy(busy()))?;
        let client = Arc::clone(&self.client);
        // to its end, also when who asked has left
        let asked = tokio::spawn(async move {
            let answer = tokio::task::spawn_blocking(move || client.explain(&query)).await;
            tokio::spawn(async move {
                sleep(PAUSE).await;
                drop(turn);
            });
            answer
        });
        match asked.await {
            Ok(Ok(Ok(explain))) => Ok(explain),
            Ok(Ok(Err(stop))) => Err(Refusal::Daemon(Failure::internal(stop.to_string()))),
            Ok(Err(error)) | Err(error) => {
                Err(Refusal::Daemon(Failure::internal(error.to_string())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Questions {
        let nowhere = std::path::Path::new("/nowhere/a.sock");
        Questions::new(Arc::new(Client::new(Some(nowhere)).unwrap()))
    }

    #[test]
    fn forms_are_read() {
        let read = |text: &str| serde_json::from_str::<Form>(text).unwrap().query();
        let query =
            read(r#"{"proto": "tcp", "src": " 192.0.2.1:1", "dst": "192.0.2.2:2 "}"#).unwrap();
        assert_eq!((query.src.port(), query.watch_ms), (1, WATCH_MS));
        let echo = r#"{"proto": "icmp", "src": "192.0.2.1", "dst": "192.0.2.2", "id": "7"}"#;
        assert_eq!(read(echo).unwrap().src.port(), 7);
        for (text, words) in [
            (r#"{"proto": "tpc", "src": "", "dst": ""}"#, "protocol: "),
            (
                r#"{"proto": "tcp", "src": "<b>", "dst": ""}"#,
                "source: write",
            ),
            (
                r#"{"proto": "tcp", "src": "192.0.2.1:1", "dst": "x"}"#,
                "destination: write",
            ),
            (
                r#"{"proto": "tcp", "src": "192.0.2.1", "dst": "192.0.2.2"}"#,
                "a port is missing",
            ),
            (
                r#"{"proto": "esp", "src": "192.0.2.1", "dst": "192.0.2.2", "id": "x"}"#,
                "ID: write",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_answered_at_a_time() {
        let questions = questions();
        let form = br#"{"proto": "udp", "src": "192.0.2.1:1", "dst": "192.0.2.2:2"}"#;
        assert!(matches!(
            questions.ask(b"{}").await,
            Err(Refusal::Question(_))
        ));
        assert!(matches!(questions.ask(form).await, Err(Refusal::Daemon(_))));
        assert!(matches!(questions.ask(form).await, Err(Refusal::Busy(_))));
        sleep(PAUSE * 2).await;
        assert!(matches!(questions.ask(form).await, Err(Refusal::Daemon(_))));
    }
}
