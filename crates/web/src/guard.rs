// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests are this page's own, and whether who asks has shown the token.

use std::io;
use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, AsHeaderName, COOKIE, HOST, HeaderMap, ORIGIN};

use crate::secret;
use crate::token::Token;

/// The cookie of who has shown the token.
const COOKIE_NAME: &str = "freeway-web";
/// Octets of what it is.
const SESSION: usize = 32;

/// What is admitted.
#[derive(Debug)]
pub struct Guard {
    hosts: Vec<String>,
    token: Option<Token>,
    /// The cookie's value, until this process ends.
    session: String,
}

/// What a request has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All that is asked for.
    Enough,
    /// No token.
    Nothing,
    /// Another token.
    Wrong,
}

impl Guard {
    pub fn new(hosts: Vec<String>, token: Option<Token>) -> io::Result<Self> {
        Ok(Self {
            hosts,
            token,
            session: secret::random(SESSION)?,
        })
    }

    /// Whether the request names this machine. A page elsewhere whose name was made to lead here (DNS rebinding) has that
    /// name; an address leads nowhere else.
    pub fn knows_host(&self, headers: &HeaderMap) -> bool {
        let Some(name) = text(headers, HOST).map(without_port) else {
            return false;
        };
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        address.unwrap_or(name).parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self
                .hosts
                .iter()
                .any(|host| host.eq_ignore_ascii_case(name))
    }

    /// Whether another site's page has the browser ask this. Programs say nothing of where they come from.
    pub fn is_foreign(&self, headers: &HeaderMap) -> bool {
        let site = text(headers, "sec-fetch-site");
        let origin = text(headers, ORIGIN);
        let own = |origin: &str| {
            let (_, host) = origin.split_once("://").unwrap_or_default();
            text(headers, HOST) == Some(host)
        };
        site.is_some_and(|site| !["same-origin", "none"].contains(&site))
            || origin.is_some_and(|origin| !own(origin))
    }

    /// What it has shown: `Authorization: Bearer TOKEN`, or the cookie.
    pub fn shown(&self, headers: &HeaderMap) -> Shown {
        let Some(token) = &self.token else {
            return Shown::Enough;
        };
        if headers.contains_key(AUTHORIZATION) {
            let word = text(headers, AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            return match word.is_some_and(|word| token.is(word.trim())) {
                true => Shown::Enough,
                false => Shown::Wrong,
            };
        }
        let all = headers.get_all(COOKIE).into_iter();
        let cookies = all.filter_map(|line| line.to_str().ok());
        let mut cookies = cookies.flat_map(|line| line.split(';')).map(str::trim);
        let is_session = |cookie: &str| {
            let value = cookie
                .split_once('=')
                .filter(|(name, _)| *name == COOKIE_NAME);
            value.is_some_and(|(_, value)| secret::equal(value.as_bytes(), self.session.as_bytes()))
        };
        match cookies.any(is_session) {
            true => Shown::Enough,
            false => Shown::Nothing,
        }
    }

    /// The cookie for who shows the token.
    pub fn login(&self, word: &str) -> Option<String> {
        let token = self.token.as_ref()?;
        let attributes = "Path=/; HttpOnly; SameSite=Strict";
        let cookie = || format!("{COOKIE_NAME}={}; {attributes}", self.session);
        token.is(word).then(cookie)
    }
}

/// The only value of a header.
fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?.to_str().ok();
    value.filter(|_| values.next().is_none())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn guard(token: Option<&str>) -> Guard {
        let token = token.map(|token| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), token).unwrap();
            Token::read(file.path()).unwrap()
        });
        Guard::new(vec!["router.lan".into()], token).unwrap()
    }

    #[test]
    fn addresses_and_known_names_are_this_machine() {
        let guard = guard(None);
        let knows = |host: &str| guard.knows_host(&headers(&[("host", host)]));
        for own in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.0.2.1:80",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:1",
            "Router.lan:8080",
        ] {
            assert!(knows(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8080",
            "evil.example:80:127.0.0.1",
            "[::1].evil.example",
            "127.0.0.1@evil.example",
            "",
            ":8080",
        ] {
            assert!(!knows(foreign), "{foreign}");
        }
        assert!(!guard.knows_host(&headers(&[])));
        let two = headers(&[("host", "127.0.0.1"), ("host", "evil.example")]);
        assert!(!guard.knows_host(&two));
    }

    #[test]
    fn other_sites_are_told() {
        let guard = guard(None);
        let foreign = |of: &[(&'static str, &str)]| {
            guard.is_foreign(&headers(&[&[("host", "127.0.0.1:8080")], of].concat()))
        };
        assert!(!foreign(&[]));
        assert!(!foreign(&[("sec-fetch-site", "none")]));
        let own = ("origin", "http://127.0.0.1:8080");
        assert!(!foreign(&[("sec-fetch-site", "same-origin"), own]));
        assert!(foreign(&[("sec-fetch-site", "cross-site")]));
        assert!(foreign(&[("sec-fetch-site", "same-site")]));
        for origin in ["http://127.0.0.1:9", "null", "http://evil.example"] {
            assert!(foreign(&[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn the_token_or_the_cookie_is_enough() {
        const TOKEN: &str = "0123456789abcdef";
        let open = guard(None);
        assert_eq!(open.shown(&headers(&[])), Shown::Enough);
        assert_eq!(open.login(TOKEN), None);
        let guard = guard(Some(TOKEN));
        let shown = |name, value: &str| guard.shown(&headers(&[(name, value)]));
        assert_eq!(guard.shown(&headers(&[])), Shown::Nothing);
        assert_eq!(
            shown("authorization", "Bearer 0123456789abcdef"),
            Shown::Enough
        );
        for wrong in [
            "Bearer 0123456789abcdeg",
            "Bearer ",
            "Basic 0123456789abcdef",
            TOKEN,
        ] {
            assert_eq!(shown("authorization", wrong), Shown::Wrong, "{wrong}");
        }
        assert_eq!(guard.login("0123456789abcdeg"), None);
        let cookie = guard.login(TOKEN).unwrap();
        let (value, attributes) = cookie.split_once(';').unwrap();
        assert!(attributes.contains("HttpOnly") && attributes.contains("SameSite=Strict"));
        assert!(!cookie.contains(TOKEN));
        assert_eq!(shown("cookie", value), Shown::Enough);
        assert_eq!(shown("cookie", &format!("a=b; {value}; c")), Shown::Enough);
        for wrong in [
            "freeway-web=",
            "freeway-web=0123456789abcdef",
            "x",
            &value[1..],
        ] {
            assert_eq!(shown("cookie", wrong), Shown::Nothing, "{wrong}");
        }
    }
}
