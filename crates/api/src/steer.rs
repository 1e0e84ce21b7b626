// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose flows are at ports that XDP and the engine share: `[[policy.steer]]` and `freeway steer`.

use serde::{Deserialize, Serialize};

use crate::{FlowFilter, PortRange, Prefix, Proto};

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

/// One `[[policy.steer]]`. The first that matches counts; a conversation that none matches is XDP's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerRule {
    /// Who forwards.
    pub path: SteerPath,
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
        if filter.state.is_some() {
            return Err("a rule is for flows of any state: leave out `state`".into());
        }
        if filter.family.is_some() {
            return Err(
                "a rule has no family: write `src 0.0.0.0/0` for IPv4, `src ::/0` for IPv6".into(),
            );
        }
        Ok(Self {
            path,
            proto: filter.proto,
            src: filter.src.into_iter().collect(),
            dst: filter.dst.into_iter().collect(),
            sport: filter.sport.into_iter().collect(),
            dport: filter.dport.into_iter().collect(),
            port: filter.port.into_iter().collect(),
        })
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
