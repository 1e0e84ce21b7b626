// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[policy.steer]]` and `freeway steer`: whose flows are at ports that XDP and the engine share, and what the engine copies
//! for who looks on.

use serde::{Deserialize, Serialize};

use crate::{FlowFilter, PortRange, Prefix, Proto};

/// Most rules that copy.
const MIRRORS_MAX: usize = 16;
/// Most entries of each of their lists.
const MIRROR_LIST_MAX: usize = 32;
/// Most octets of all of them as JSON: one message to the engine.
const MIRRORS_BYTES_MAX: usize = 48 << 10;

/// Conversations, as the configuration names them: everything that is named must match, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// IP protocol.
    pub proto: Option<Proto>,
    /// Source networks; any of them.
    pub src: Vec<Prefix>,
    /// Destination networks; any of them.
    pub dst: Vec<Prefix>,
    /// Source ports; any of them.
    pub sport: Vec<PortRange>,
    /// Destination ports; any of them.
    pub dport: Vec<PortRange>,
    /// Network ports that the packet comes in or goes out at; any of them.
    pub port: Vec<String>,
}

impl Selection {
    /// It names nothing, and so means all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Selection::default()
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SteerPath {
    /// The engine, on a core of its own.
    Engine,
    /// XDP, on the CPU where a packet comes in.
    Xdp,
}

impl SteerPath {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SteerPath::Engine => "engine",
            SteerPath::Xdp => "xdp",
        }
    }
}

/// One `[[policy.steer]]`, with a path or a mirror. The first with a path that matches counts; a conversation that none
/// matches is XDP's. So does the first with a mirror, for each frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerRule {
    /// Who forwards.
    #[serde(default)]
    pub path: Option<SteerPath>,
    /// The engine's port that has a copy of each frame which comes in or leaves at `port`.
    #[serde(default)]
    pub mirror: Option<String>,
    /// IP protocol.
    #[serde(default)]
    pub proto: Option<Proto>,
    /// Source networks; any of them.
    #[serde(default)]
    pub src: Vec<Prefix>,
    /// Destination networks; any of them.
    #[serde(default)]
    pub dst: Vec<Prefix>,
    /// Source ports; any of them.
    #[serde(default)]
    pub sport: Vec<PortRange>,
    /// Destination ports; any of them.
    #[serde(default)]
    pub dport: Vec<PortRange>,
    /// Network ports that the packet comes in or goes out at; any of them.
    #[serde(default)]
    pub port: Vec<String>,
}

impl SteerRule {
    /// Which conversations.
    #[must_use]
    pub fn flows(&self) -> Selection {
        Selection {
            proto: self.proto,
            src: self.src.clone(),
            dst: self.dst.clone(),
            sport: self.sport.clone(),
            dport: self.dport.clone(),
            port: self.port.clone(),
        }
    }

    /// Of the words of a filter, as `freeway flows` takes them.
    pub fn of(path: SteerPath, filter: FlowFilter) -> Result<Self, String> {
        Ok(Self {
            path: Some(path),
            ..Self::matching(filter)?
        })
    }

    /// The same: copies to a port.
    pub fn to_mirror(mirror: String, filter: FlowFilter) -> Result<Self, String> {
        Ok(Self {
            mirror: Some(mirror),
            ..Self::matching(filter)?
        })
    }

    fn matching(filter: FlowFilter) -> Result<Self, String> {
        if filter.state.is_some() {
            return Err("a rule is for flows of any state: leave out `state`".into());
        }
        if filter.family.is_some() {
            return Err(
                "a rule has no family: write `src 0.0.0.0/0` for IPv4, `src ::/0` for IPv6".into(),
            );
        }
        Ok(Self {
            proto: filter.proto,
            src: filter.src.into_iter().collect(),
            dst: filter.dst.into_iter().collect(),
            sport: filter.sport.into_iter().collect(),
            dport: filter.dport.into_iter().collect(),
            port: filter.port.into_iter().collect(),
            ..Self::default()
        })
    }

    /// Where it leads: `engine`, `xdp`, or `mirror` and a port.
    #[must_use]
    pub fn aim(&self) -> String {
        match (self.path, &self.mirror) {
            (Some(path), _) => path.name().into(),
            (None, Some(port)) => format!("mirror {port}"),
            (None, None) => String::new(),
        }
    }

    /// What types cannot express; an error names the key.
    fn check(&self, owns: &impl Fn(&str) -> Option<bool>) -> Result<(), String> {
        let mirror = match (self.path, &self.mirror) {
            (Some(_), None) => return Ok(()),
            (Some(_), Some(_)) => return Err("path and mirror are two rules".into()),
            (None, None) => return Err("it has neither path nor mirror".into()),
            (None, Some(mirror)) => mirror,
        };
        let own = |name: &String| match owns(name) {
            Some(true) => Ok(()),
            Some(false) => Err(format!(
                "{name} is the kernel's, and shared (af_xdp): the engine does not see all of its frames"
            )),
            None => Err(format!(
                "{name} is no port of the engine; it has to have an [engine.port.{name}]"
            )),
        };
        own(mirror).map_err(|why| format!("mirror: {why}"))?;
        if self.port.is_empty() {
            return Err("a mirror names in port where it looks".into());
        }
        for port in &self.port {
            own(port).map_err(|why| format!("port: {why}"))?;
        }
        let lists = [
            ("port", self.port.len()),
            ("src", self.src.len()),
            ("dst", self.dst.len()),
            ("sport", self.sport.len()),
            ("dport", self.dport.len()),
        ];
        match lists.iter().find(|(_, len)| *len > MIRROR_LIST_MAX) {
            Some((key, _)) => Err(format!(
                "{key}: at most {MIRROR_LIST_MAX} with mirror; make it two rules"
            )),
            None => Ok(()),
        }
    }

    /// As words, those of the filter; of a list with commas.
    #[must_use]
    pub fn words(&self) -> String {
        fn list<T: ToString>(key: &str, values: &[T]) -> Option<String> {
            let values: Vec<_> = values.iter().map(T::to_string).collect();
            (!values.is_empty()).then(|| format!("{key} {}", values.join(",")))
        }
        let words = [
            self.proto.map(|proto| format!("proto {proto}")),
            list("src", &self.src),
            list("dst", &self.dst),
            list("sport", &self.sport),
            list("dport", &self.dport),
            list("port", &self.port),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        match words.is_empty() {
            true => "all".into(),
            false => words.join(" "),
        }
    }
}

/// What is wrong with rules: the place of one, from 0 on, and words. `owns`: whether a port is the engine's own, or shared;
/// `None`: it is none of the engine's.
pub fn check_rules(
    rules: &[SteerRule],
    owns: impl Fn(&str) -> Option<bool>,
) -> Result<(), (usize, String)> {
    let (mut mirrors, mut bytes) = (0, 0);
    for (place, rule) in rules.iter().enumerate() {
        let wrong = |why: String| Err((place, why));
        rule.check(&owns).or_else(wrong)?;
        let Some(mirror) = &rule.mirror else { continue };
        if rules
            .iter()
            .any(|other| other.mirror.is_some() && other.port.contains(mirror))
        {
            return wrong(format!(
                "mirror: a rule copies what is at {mirror}, which would be copies as well"
            ));
        }
        mirrors += 1;
        bytes += serde_json::to_string(rule).map_or(0, |text| text.len() + 1);
        if mirrors > MIRRORS_MAX {
            return wrong(format!("at most {MIRRORS_MAX} rules with mirror"));
        }
        if bytes > MIRRORS_BYTES_MAX {
            return wrong("the lists of rules with mirror are too long together".into());
        }
    }
    Ok(())
}

/// Changes the rules of a running daemon; its configuration stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SteerChange {
    /// A rule more: at this number, from 1 on, or behind all.
    Add {
        /// The rule.
        rule: SteerRule,
        /// Its number then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<usize>,
    },
    /// The rule of this number goes.
    Delete {
        /// From 1 on.
        number: usize,
    },
}

/// `freeway steer`: the rules in their order, which is that of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steering {
    /// The first that matches counts.
    pub rules: Vec<SteerRule>,
    /// Ports that XDP and the engine share at the moment.
    pub ports: Vec<String>,
}

impl Steering {
    /// What becomes of the rules by a change.
    pub fn change(&mut self, change: SteerChange) -> Result<(), String> {
        let there = self.rules.len();
        match change {
            SteerChange::Add { rule, at: None } => self.rules.push(rule),
            SteerChange::Add { rule, at: Some(at) } if (1..=there + 1).contains(&at) => {
                self.rules.insert(at - 1, rule);
            }
            SteerChange::Delete { number } if (1..=there).contains(&number) => {
                self.rules.remove(number - 1);
            }
            SteerChange::Add {
                at: Some(number), ..
            }
            | SteerChange::Delete { number } => {
                return Err(match there {
                    0 => format!("there is no rule {number}: there are none"),
                    _ => format!("there is no rule {number}: the last one is {there}"),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: SteerPath, line: &str) -> Result<SteerRule, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        SteerRule::of(path, crate::filter::parse(&words)?)
    }

    #[test]
    fn rules_read_as_they_were_written() {
        for line in [
            "all",
            "proto udp",
            "proto tcp src 192.0.2.0/24 dst 2001:db8::/32 sport 1-2 dport 443 port lan0",
        ] {
            let rule = rule(SteerPath::Engine, line.trim_start_matches("all")).unwrap();
            assert_eq!(rule.words(), line);
            let json = serde_json::to_string(&rule).unwrap();
            assert_eq!(serde_json::from_str::<SteerRule>(&json).unwrap(), rule);
        }
        for (line, words) in [
            ("state fast", "leave out `state`"),
            ("family 4", "src 0.0.0.0/0"),
            ("tcp", "write `proto tcp`"),
        ] {
            let error = rule(SteerPath::Engine, line).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn mirrors_are_of_the_engines_own_ports() {
        let owns = |name: &str| match name {
            "lan0" | "ids0" => Some(true),
            "eth1" => Some(false),
            _ => None,
        };
        let check = |text: &str| {
            let rule: SteerRule = serde_json::from_str(text).unwrap();
            check_rules(&[rule], owns).map_err(|(_, why)| why)
        };
        assert_eq!(check(r#"{"mirror": "ids0", "port": ["lan0"]}"#), Ok(()));
        assert_eq!(check(r#"{"path": "xdp", "port": ["any"]}"#), Ok(()));
        let many = vec![1; MIRROR_LIST_MAX + 1];
        let many = format!(r#"{{"mirror": "ids0", "port": ["lan0"], "dport": {many:?}}}"#);
        for (rule, words) in [
            (r#"{"port": ["lan0"]}"#, "neither path nor mirror"),
            (r#"{"path": "xdp", "mirror": "ids0"}"#, "are two rules"),
            (r#"{"mirror": "ids0"}"#, "names in port where"),
            (
                r#"{"mirror": "ids1", "port": ["lan0"]}"#,
                "[engine.port.ids1]",
            ),
            (
                r#"{"mirror": "eth1", "port": ["lan0"]}"#,
                "mirror: eth1 is the kernel's",
            ),
            (
                r#"{"mirror": "ids0", "port": ["lan0", "wan0"]}"#,
                "port: wan0 is no port",
            ),
            (
                r#"{"mirror": "ids0", "port": ["eth1"]}"#,
                "port: eth1 is the kernel's",
            ),
            (r#"{"mirror": "ids0", "port": ["ids0"]}"#, "copies as well"),
            (&many, "dport: at most 32"),
        ] {
            let error = check(rule).unwrap_err();
            assert!(error.contains(words), "{rule}: {error}");
        }
        let rule = SteerRule {
            mirror: Some("ids0".into()),
            port: vec!["lan0".into()],
            ..SteerRule::default()
        };
        assert_eq!(rule.aim(), "mirror ids0");
        let error = |rules: &[SteerRule]| check_rules(rules, owns).unwrap_err();
        let (place, why) = error(&vec![rule.clone(); MIRRORS_MAX + 1]);
        assert_eq!(place, MIRRORS_MAX);
        assert!(why.contains("at most 16"), "{why}");
        // one's copies are not another one's frames
        let onwards = SteerRule {
            mirror: Some("lan0".into()),
            port: vec!["ids0".into()],
            ..SteerRule::default()
        };
        let (place, why) = error(&[rule.clone(), onwards]);
        assert!(place == 0 && why.contains("what is at ids0"), "{why}");
        let long: Prefix = "1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap();
        let ports = PortRange {
            first: 60000,
            last: 60001,
        };
        let greatest = SteerRule {
            src: vec![long; MIRROR_LIST_MAX],
            dst: vec![long; MIRROR_LIST_MAX],
            sport: vec![ports; MIRROR_LIST_MAX],
            dport: vec![ports; MIRROR_LIST_MAX],
            ..rule
        };
        let (_, why) = error(&vec![greatest; MIRRORS_MAX]);
        assert!(why.contains("too long together"), "{why}");
    }

    #[test]
    fn rules_are_numbered_from_one_on() {
        let mut all = Steering::default();
        let add = |line: &str, at| SteerChange::Add {
            rule: rule(SteerPath::Engine, line).unwrap(),
            at,
        };
        let lines = |all: &Steering| {
            let words: Vec<_> = all.rules.iter().map(SteerRule::words).collect();
            words.join("; ")
        };
        let none = SteerChange::Delete { number: 1 };
        assert!(all.change(none).unwrap_err().contains("there are none"));
        all.change(add("proto udp", None)).unwrap();
        all.change(add("proto tcp", Some(1))).unwrap();
        all.change(add("dport 53", Some(3))).unwrap();
        assert_eq!(lines(&all), "proto tcp; proto udp; dport 53");
        for at in [0, 5] {
            let error = all.change(add("dport 1", Some(at))).unwrap_err();
            assert!(error.contains("the last one is 3"), "{error}");
        }
        all.change(SteerChange::Delete { number: 2 }).unwrap();
        assert_eq!(lines(&all), "proto tcp; dport 53");
        assert!(all.change(SteerChange::Delete { number: 3 }).is_err());
    }
}
