// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked, and by whom.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use freeway_api::{Client, Failure};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Bytes};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode};
use tokio::time::{sleep, timeout};

use crate::answer::{self, Answer};
use crate::complaints::Complaints;
use crate::feed::Feed;
use crate::guard::{Guard, Shown};
use crate::question::{Questions, Refusal};

/// Longest body of a request, octets.
const BODY_MAX: usize = 4096;
/// In which it has to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// What who shows another token waits.
const WRONG_PAUSE: Duration = Duration::from_secs(1);

/// The body of a request.
pub trait Said: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>> {}

impl<B: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>> Said for B {}

/// The page and what it asks.
#[derive(Debug)]
pub struct Site {
    guard: Guard,
    feed: Feed,
    questions: Questions,
    wrong_tokens: Complaints,
    foreign: Complaints,
}

impl Site {
    pub fn new(guard: Guard, client: Client) -> std::io::Result<Self> {
        let client = Arc::new(client);
        Ok(Self {
            guard,
            feed: Feed::start(Arc::clone(&client))?,
            questions: Questions::new(client),
            wrong_tokens: Complaints::default(),
            foreign: Complaints::default(),
        })
    }

    /// Answers `peer`.
    pub async fn answer<B: Said>(&self, peer: IpAddr, request: Request<B>) -> Answer {
        let headers = request.headers();
        if !self.guard.knows_host(headers) {
            let named = headers
                .get("host")
                .map(|host| host.as_bytes().escape_ascii());
            let named = named.map_or("none".into(), |name| name.to_string());
            let cut: String = named.chars().take(100).collect();
            self.foreign.warn(format_args!(
                "{peer} asks for host {cut}, which is refused; web.hosts is to name it if it is this machine"
            ));
            return answer::words(
                StatusCode::MISDIRECTED_REQUEST,
                "this machine is not known by that name: use its address, or name it in web.hosts",
            );
        }
        let path = request.uri().path().to_owned();
        if path != "/" && self.guard.is_foreign(headers) {
            return answer::words(StatusCode::FORBIDDEN, "this is for the page itself");
        }
        if path == "/login" {
            return match *request.method() {
                Method::POST => self.login(peer, request).await,
                _ => answer::method("POST"),
            };
        }
        match self.guard.shown(headers) {
            Shown::Enough => {}
            Shown::Nothing => return answer::login(false),
            Shown::Wrong => return self.refuse_token(peer).await,
        }
        match (path.as_str(), request.method()) {
            ("/", &Method::GET | &Method::HEAD) => answer::page(),
            ("/events", &Method::GET) => answer::events(self.feed.look()),
            ("/explain", &Method::POST) => self.explain(request).await,
            ("/", _) => answer::method("GET, HEAD"),
            ("/events", _) => answer::method("GET"),
            ("/explain", _) => answer::method("POST"),
            _ => answer::words(StatusCode::NOT_FOUND, "there is nothing"),
        }
    }

    async fn login<B: Said>(&self, peer: IpAddr, request: Request<B>) -> Answer {
        let form = match body(request).await {
            Ok(form) => form,
            Err(refusal) => return refusal,
        };
        let word = form.strip_prefix(b"token=").and_then(decoded);
        match word.and_then(|word| self.guard.login(word.trim())) {
            Some(cookie) => answer::welcome(&cookie),
            None => self.refuse_token(peer).await,
        }
    }

    async fn refuse_token(&self, peer: IpAddr) -> Answer {
        self.wrong_tokens
            .warn(format_args!("a wrong token from {peer}"));
        sleep(WRONG_PAUSE).await;
        answer::login(true)
    }

    async fn explain<B: Said>(&self, request: Request<B>) -> Answer {
        // other sites' forms cannot have this type
        let kind = request.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/json") {
            return answer::words(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "this takes application/json",
            );
        }
        let form = match body(request).await {
            Ok(form) => form,
            Err(refusal) => return refusal,
        };
        let refuse = |status, failure: Failure| answer::json(status, &failure);
        match self.questions.ask(&form).await {
            Ok(explain) => answer::json(StatusCode::OK, &explain),
            Err(Refusal::Question(failure)) => refuse(StatusCode::BAD_REQUEST, failure),
            Err(Refusal::Busy(failure)) => refuse(StatusCode::TOO_MANY_REQUESTS, failure),
            Err(Refusal::Daemon(failure)) => refuse(StatusCode::BAD_GATEWAY, failure),
        }
    }
}

async fn body<B: Said>(request: Request<B>) -> Result<Bytes, Answer> {
    let whole = Limited::new(request.into_body(), BODY_MAX).collect();
    let whole = timeout(BODY_PATIENCE, async { whole.await.ok() }).await;
    match whole {
        Ok(Some(body)) => Ok(body.to_bytes()),
        Ok(None) => Err(answer::words(
            StatusCode::PAYLOAD_TOO_LARGE,
            "this is too long",
        )),
        Err(_) => Err(answer::words(
            StatusCode::REQUEST_TIMEOUT,
            "this takes too long",
        )),
    }
}

/// A value of a form (`application/x-www-form-urlencoded`).
fn decoded(value: &[u8]) -> Option<String> {
    let mut bytes = value.iter().copied();
    let mut text = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        text.push(match byte {
            b'+' => b' ',
            b'%' => u8::try_from(digit()? << 4 | digit()?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::Response;
    use hyper::header::{LOCATION, SET_COOKIE};

    use super::*;
    use crate::token::Token;

    const TOKEN: &str = "0123456789+/abcd";

    fn site(token: Option<&str>) -> Site {
        let token = token.map(|token| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), token).unwrap();
            Token::read(file.path()).unwrap()
        });
        let nowhere = std::path::Path::new("/nowhere/a.sock");
        let client = Client::new(Some(nowhere)).unwrap();
        Site::new(Guard::new(Vec::new(), token).unwrap(), client).unwrap()
    }

    async fn ask(site: &Site, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:8080");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        site.answer("192.0.2.9".parse().unwrap(), request).await
    }

    fn status<B>(response: &Response<B>) -> u16 {
        response.status().as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn paths_and_methods() {
        let site = site(None);
        let json = ("content-type", "application/json");
        let cross = ("sec-fetch-site", "cross-site");
        let long = "x".repeat(BODY_MAX + 1);
        for (line, headers, body, wanted) in [
            ("GET /", &[][..], "", 200),
            ("HEAD /", &[], "", 200),
            ("POST /", &[], "", 405),
            // by a link
            ("GET /", &[cross], "", 200),
            ("GET /events", &[], "", 200),
            ("GET /events", &[cross], "", 403),
            ("POST /events", &[], "", 405),
            ("GET /explain", &[], "", 405),
            ("POST /explain", &[], "{}", 415),
            (
                "POST /explain",
                &[("content-type", "text/plain")],
                "{}",
                415,
            ),
            ("POST /explain", &[json, cross], "{}", 403),
            (
                "POST /explain",
                &[json, ("origin", "http://evil.example")],
                "{}",
                403,
            ),
            ("POST /explain", &[json], "{}", 400),
            ("POST /explain", &[json], &long, 413),
            ("GET /login", &[], "", 405),
            ("GET /favicon.ico", &[], "", 404),
            ("GET /../etc/passwd", &[], "", 404),
            ("GET /", &[("host", "evil.example:8080")], "", 421),
            ("GET /events", &[("host", "evil.example")], "", 421),
        ] {
            let answer = ask(&site, line, headers, body).await;
            assert_eq!(status(&answer), wanted, "{line} {headers:?}");
            for name in [
                "content-security-policy",
                "x-frame-options",
                "cache-control",
            ] {
                assert!(answer.headers().contains_key(name), "{line} {name}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_for() {
        let site = site(Some(TOKEN));
        for line in ["GET /", "GET /events", "POST /explain", "GET /nothing"] {
            assert_eq!(status(&ask(&site, line, &[], "").await), 401, "{line}");
            let wrong = ("authorization", "Bearer 0123456789abcdef");
            assert_eq!(status(&ask(&site, line, &[wrong], "").await), 401, "{line}");
        }
        let bearer = ("authorization", "Bearer 0123456789+/abcd");
        assert_eq!(status(&ask(&site, "GET /", &[bearer], "").await), 200);
        for form in [
            "token=wrong",
            "token=",
            "",
            "token=%",
            "other=1",
            "token=%ff%fe",
        ] {
            let answer = ask(&site, "POST /login", &[], form).await;
            assert_eq!(status(&answer), 401, "{form}");
            assert!(!answer.headers().contains_key(SET_COOKIE));
        }
        let foreign = ("origin", "http://evil.example");
        let form = "token=0123456789%2B%2Fabcd";
        assert_eq!(
            status(&ask(&site, "POST /login", &[foreign], form).await),
            403
        );
        let answer = ask(&site, "POST /login", &[], form).await;
        assert_eq!(
            (status(&answer), &answer.headers()[LOCATION]),
            (303, &"/".parse().unwrap())
        );
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        let (cookie, _) = cookie.split_once(';').unwrap();
        assert_eq!(
            status(&ask(&site, "GET /", &[("cookie", cookie)], "").await),
            200
        );
    }

    #[test]
    fn forms_are_decoded() {
        assert_eq!(decoded(b"a+b%2Bc%3d").as_deref(), Some("a b+c="));
        for wrong in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
