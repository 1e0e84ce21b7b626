// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces that a configuration names must be there.

use std::collections::BTreeSet;

use freeway_console::Fault;

use super::Config;
use super::entries::dotted;
use super::places::unnumbered;

impl Config {
    /// An error is the first name that means nothing. `vrf`: whether the link of a name is one; `None`: there is no such link.
    /// `there`: the names of all.
    pub fn check_names(
        &self,
        vrf: impl Fn(&str) -> Option<bool>,
        there: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Fault> {
        if let Some((path, name)) = self.absent(|name| vrf(name).is_some()).first() {
            let message = format!(
                "{name}: no such network interface; there are: {}",
                there().join(", ")
            );
            return Err(self.fault(path, message));
        }
        self.check_kinds(vrf)
    }

    /// The same, but names may mean something later.
    pub fn check_kinds(&self, vrf: impl Fn(&str) -> Option<bool>) -> Result<(), Fault> {
        match self.port.keys().find(|name| vrf(name) == Some(true)) {
            Some(name) => Err(self.fault(
                &path(&["port", name]),
                format!("{name}: a VRF has no path of its own; have a table for each of its ports"),
            )),
            None => Ok(()),
        }
    }

    /// Names that mean nothing, and where they are.
    pub fn absent(&self, there: impl Fn(&str) -> bool) -> Vec<(Vec<String>, &str)> {
        let mut named = self.named();
        named.retain(|(_, name)| !there(name));
        named
    }

    /// The same in words, each name once.
    pub fn absent_words(&self, there: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let words = |name| {
            format!(
                "{name} is named in the configuration and not there: what is said of it holds when it comes"
            )
        };
        let absent = self.absent(there).into_iter();
        let mut all = BTreeSet::new();
        all.extend(absent.map(|(_, name)| words(name)));
        all
    }

    /// True if it names that one.
    pub fn names_port(&self, port: &str) -> bool {
        self.named().iter().any(|(_, name)| *name == port)
    }

    /// True if it names any.
    pub fn names_ports(&self) -> bool {
        !self.named().is_empty()
    }

    /// All names, and where they are.
    fn named(&self) -> Vec<(Vec<String>, &str)> {
        let mut named: Vec<(Vec<String>, &str)> = Vec::new();
        for (name, number) in self.daemon.interfaces.iter().zip(0..) {
            named.push((path(&["daemon", "interfaces", &format!("{number}")]), name));
        }
        for name in self.port.keys() {
            named.push((path(&["port", name]), name));
        }
        let excluded = self.policy.exclude.iter().map(|e| ("exclude", &e.port));
        let steered = self.policy.steer.iter().map(|rule| ("steer", &rule.port));
        // a mirror's are the engine's, which it brings along
        let steered = steered.zip(0..).zip(&self.policy.steer);
        let steered = steered.filter(|(_, rule)| rule.mirror.is_none());
        let lists = excluded.zip(0..).chain(steered.map(|(list, _)| list));
        for ((list, ports), number) in lists {
            for (name, at) in ports.iter().zip(0..) {
                let (number, at) = (format!("{number}"), format!("{at}"));
                named.push((path(&["policy", list, &number, "port", &at]), name));
            }
        }
        for (limit, number) in self.scrub.limit.iter().zip(0..) {
            for (name, at) in limit.port.iter().zip(0..) {
                let (number, at) = (format!("{number}"), format!("{at}"));
                named.push((path(&["scrub", "limit", &number, "port", &at]), name));
            }
        }
        named
    }

    /// Something is wrong with a key.
    pub fn fault(&self, path: &[String], message: String) -> Fault {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        Fault {
            file,
            place: self.places.near(path),
            key: Some(dotted(&unnumbered(path))),
            message,
        }
    }
}

fn path(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_nothing_has_a_line() {
        let check = |text: &str| {
            let mut config = Config::parse(text, "x").unwrap();
            config.file = Some("x.toml".into());
            let vrf = |name: &str| ["lan0", "blue"].contains(&name).then_some(name == "blue");
            let there = || vec!["lan0".to_owned(), "blue".to_owned()];
            config.check_names(vrf, there).map_err(|f| f.to_string())
        };
        assert_eq!(check("[port.lan0]\n"), Ok(()));
        assert_eq!(check("daemon.interfaces = [\"lan0\", \"blue\"]\n"), Ok(()));
        for (text, words) in [
            (
                "\n[port.lan9]\n",
                "x.toml:2:7: key `port.lan9`: lan9: no such network interface; there are: lan0, blue",
            ),
            (
                "[port.blue]\n",
                "x.toml:1:7: key `port.blue`: blue: a VRF has no path",
            ),
            (
                "[daemon]\ninterfaces = [\"lan0\",\n \"lan1\"]\n",
                "x.toml:3:2: key `daemon.interfaces`: lan1",
            ),
            (
                "[[policy.exclude]]\nport = [\"lan1\"]\n",
                "x.toml:2:9: key `policy.exclude.port`: lan1",
            ),
            (
                "[[policy.steer]]\npath = \"xdp\"\nport = [\"lan1\"]\n",
                "x.toml:3:9: key `policy.steer.port`: lan1",
            ),
            (
                "[[scrub.limit]]\nproto = \"udp\"\npackets_per_s = 1\nport = [\"lan0\", \"lan1\"]\n",
                "x.toml:4:17: key `scrub.limit.port`: lan1",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
