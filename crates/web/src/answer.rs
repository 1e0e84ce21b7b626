// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers, and what browsers are told with each of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body as HttpBody, Bytes, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::secret;

/// With `NONCE` where the number of this answer belongs: without it nothing in the page runs or styles it.
const PAGE: &str = include_str!("page.html");
/// The same, and `WRONG`.
const LOGIN: &str = include_str!("login.html");
const WRONG: &str = r#"<p class="wrong" role="alert">This is not the token.</p>"#;

/// Of everything that is no page.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// An answer's body.
pub enum Body {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes, until its sender goes.
    Parts(mpsc::Receiver<Bytes>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole(body) => Pin::new(body).poll_frame(context),
            Body::Parts(parts) => {
                let part = parts.poll_recv(context);
                part.map(|part| part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(body) => body.is_end_stream(),
            Body::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Body::Whole(body) => body.size_hint(),
            Body::Parts(_) => hyper::body::SizeHint::default(),
        }
    }
}

/// An answer.
pub type Answer = Response<Body>;

fn answer(status: StatusCode, kind: &'static str, policy: &str, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // of letters, digits and signs
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn whole(text: impl Into<Bytes>) -> Body {
    Body::Whole(Full::new(text.into()))
}

/// A sentence.
pub fn words(status: StatusCode, words: &str) -> Answer {
    let body = whole(format!("{words}\n"));
    answer(status, "text/plain; charset=utf-8", NOTHING, body)
}

/// A value as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => answer(status, "application/json", NOTHING, whole(body)),
        Err(error) => words(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A stream of events.
pub fn events(parts: mpsc::Receiver<Bytes>) -> Answer {
    let body = Body::Parts(parts);
    answer(StatusCode::OK, "text/event-stream", NOTHING, body)
}

/// The page.
pub fn page() -> Answer {
    html(
        StatusCode::OK,
        PAGE,
        "script-src 'nonce-NONCE'; connect-src 'self'; ",
    )
}

/// The form for the token.
pub fn login(wrong: bool) -> Answer {
    let text = LOGIN.replace("WRONG", if wrong { WRONG } else { "" });
    let mut response = html(StatusCode::UNAUTHORIZED, &text, "form-action 'self'; ");
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

fn html(status: StatusCode, text: &str, allowed: &str) -> Answer {
    let Ok(nonce) = secret::random(16) else {
        return words(
            StatusCode::INTERNAL_SERVER_ERROR,
            "there is no /dev/urandom",
        );
    };
    let policy = format!(
        "default-src 'none'; {allowed}style-src 'nonce-NONCE'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
    );
    let [text, policy] = [text, &policy].map(|text| text.replace("NONCE", &nonce));
    answer(status, "text/html; charset=utf-8", &policy, whole(text))
}

/// To the page, with the cookie.
pub fn welcome(cookie: &str) -> Answer {
    let mut response = words(StatusCode::SEE_OTHER, "welcome");
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

/// The path is asked by another method.
pub fn method(allowed: &'static str) -> Answer {
    let mut response = words(StatusCode::METHOD_NOT_ALLOWED, "this is asked otherwise");
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is fetched from anywhere, and nothing is put in as markup.
    #[test]
    fn pages_are_of_themselves_alone() {
        for text in [PAGE, LOGIN] {
            let urls = text.match_indices("://");
            let svg = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(urls.count(), svg, "only the name of SVG");
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "import(",
                "@import",
                "url(",
                "src=",
                " style=",
                "onclick=",
                "onload=",
                "WebSocket",
                "sendBeacon",
                "localStorage",
            ] {
                assert!(!text.contains(word), "{word}");
            }
            let scripts = text.matches("<script").count();
            assert_eq!(text.matches("<script nonce=\"NONCE\">").count(), scripts);
            assert_eq!(text.matches("<style nonce=\"NONCE\">").count(), 1);
        }
    }

    #[test]
    fn each_page_has_a_number_of_its_own() {
        let policy = || {
            let headers = page().headers().clone();
            headers[CONTENT_SECURITY_POLICY]
                .to_str()
                .unwrap()
                .to_owned()
        };
        let (one, other) = (policy(), policy());
        assert!(one != other && !one.contains("NONCE"), "{one}");
        assert!(
            one.starts_with("default-src 'none'; script-src 'nonce-"),
            "{one}"
        );
        assert!(!one.contains("unsafe"), "{one}");
        assert_eq!(login(true).status(), StatusCode::UNAUTHORIZED);
    }
}
