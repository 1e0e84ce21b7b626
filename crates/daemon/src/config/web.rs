// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[web]`: the page of `freeway web`. The daemon checks it and does nothing with it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[web]`: the page of `freeway web`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Web {
    /// Address that serves the page.
    pub listen: SocketAddr,
    /// File with the token that who looks has to know; absent: nobody has to.
    pub token_file: Option<PathBuf>,
    /// Names by which browsers may call this machine, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            token_file: None,
            hosts: Vec::new(),
        }
    }
}

impl Web {
    /// What types cannot express: the key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !self.listen.ip().is_loopback() && self.token_file.is_none() {
            return Err((
                "listen",
                format!(
                    "web.listen: others reach {}, and the page shows who talks to whom; \
                     name a file with a token (web.token_file, --token-file), or listen at 127.0.0.1",
                    self.listen
                ),
            ));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match self
            .hosts
            .iter()
            .find(|host| host.is_empty() || !host.chars().all(is_part))
        {
            Some(host) => Err((
                "hosts",
                format!("web.hosts: {host:?} is no name of a host, such as \"router.lan\""),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_need_a_token() {
        let at = |listen: &str| Web {
            listen: listen.parse().unwrap(),
            ..Web::default()
        };
        for here in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80"] {
            assert_eq!(at(here).check(), Ok(()));
        }
        for there in [
            "192.0.2.1:80",
            "0.0.0.0:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
        ] {
            let (key, words) = at(there).check().unwrap_err();
            assert_eq!(key, "listen");
            assert!(words.contains("web.token_file"), "{words}");
            let with_token = Web {
                token_file: Some("/x".into()),
                ..at(there)
            };
            assert_eq!(with_token.check(), Ok(()));
        }
    }

    #[test]
    fn hosts_are_names() {
        let of = |host: &str| Web {
            hosts: vec![host.into()],
            ..Web::default()
        };
        assert_eq!(of("router.lan").check(), Ok(()));
        for wrong in ["", "router.lan:8080", "http://router", "a b"] {
            assert_eq!(of(wrong).check().unwrap_err().0, "hosts", "{wrong}");
        }
    }
}
