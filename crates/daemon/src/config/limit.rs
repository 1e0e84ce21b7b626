// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[punts.limits]`: reasons by name, and rates.

use freeway_abi::{REASONS, Reason};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A reason that may have a limit, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limited(pub u32);

impl Limited {
    /// The reason.
    pub fn reason(self) -> &'static Reason {
        Reason::get(self.0)
    }

    fn parse(name: &str) -> Result<Limited, String> {
        let known = REASONS.iter().zip(0..).find(|(r, _)| r.name == name);
        let allowed = || {
            let names: Vec<_> = limitable().collect();
            format!("a limit may be set for {}", names.join(", "))
        };
        match known {
            Some((reason, number)) if reason.limitable => Ok(Limited(number)),
            Some((reason, _)) => Err(format!(
                "`{name}` ({}) cannot be limited; {}",
                reason.words,
                allowed()
            )),
            None => Err(match nearest(name) {
                Some(near) => format!(
                    "`{name}` is no reason, did you mean `{near}`? {}",
                    allowed()
                ),
                None => format!("`{name}` is no reason; {}", allowed()),
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Limited {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Limited::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Serialize for Limited {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.reason().name)
    }
}

/// Packets a second, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketsPerSecond(pub u32);

impl<'de> Deserialize<'de> for PacketsPerSecond {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        let expected = "packets a second, 1 to 4294967295; without the key there is no limit";
        match u32::try_from(number) {
            Ok(rate) if rate > 0 => Ok(PacketsPerSecond(rate)),
            _ => Err(D::Error::invalid_value(
                Unexpected::Signed(number),
                &expected,
            )),
        }
    }
}

fn limitable() -> impl Iterator<Item = &'static str> {
    REASONS.iter().filter(|r| r.limitable).map(|r| r.name)
}

/// The name that differs least, if that is little.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |near: &'static str| (strsim::damerau_levenshtein(name, near), near);
    let (distance, near) = limitable().map(distance).min()?;
    (distance <= near.len() / 2).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_documented() {
        let page = include_str!("../../../../docs/configuration.md");
        let (_, page) = page.split_once("## `[punts.limits]`").unwrap();
        let (section, _) = page.split_once("\n## ").unwrap();
        for name in limitable() {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn near_names_are_found() {
        for (name, near) in [
            ("fragments", Some("fragment")),
            ("icpm", Some("icmp")),
            ("miss-close", Some("miss_close")),
            ("options", Some("ip_options")),
            ("arp", None),
            ("", None),
        ] {
            assert_eq!(nearest(name), near, "{name}");
        }
    }
}
