// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of `freeway flows FILTER`.

use std::str::FromStr;

use crate::{FlowFilter, FlowState, Proto};

/// Reads pairs of words, as `ss` and `conntrack` take them.
pub fn parse(words: &[String]) -> Result<FlowFilter, String> {
    let mut filter = FlowFilter::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(key) = words.next() {
        // `and` between two pairs reads well and means nothing else.
        if key == "and" {
            continue;
        }
        let mut next = |what: &str| {
            words
                .next()
                .ok_or_else(|| format!("`{key}` needs {what} after it"))
        };
        match key {
            "family" => set(&mut filter.family, key, family(next("4 or 6")?)?)?,
            "proto" => set(
                &mut filter.proto,
                key,
                read(next(&format!("{} or a number", Proto::names()))?)?,
            )?,
            "src" => set(
                &mut filter.src,
                key,
                read(next("an address or a network")?)?,
            )?,
            "dst" => set(
                &mut filter.dst,
                key,
                read(next("an address or a network")?)?,
            )?,
            "sport" => set(&mut filter.sport, key, read(next("a port")?)?)?,
            "dport" => set(&mut filter.dport, key, read(next("a port")?)?)?,
            "port" => set(
                &mut filter.port,
                key,
                next("the name of a network port")?.to_owned(),
            )?,
            "state" => set(&mut filter.state, key, state(next("a state")?)?)?,
            key if Proto::is_name(key) => return Err(format!("write `proto {key}`")),
            other => {
                return Err(format!(
                    "`{other}` is no filter; there are family, proto, src, dst, sport, dport, port and state"
                ));
            }
        }
    }
    Ok(filter)
}

fn read<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

fn set<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` is there twice")),
    }
}

fn family(text: &str) -> Result<u8, String> {
    match text {
        "4" | "ip" | "ipv4" | "inet" => Ok(4),
        "6" | "ip6" | "ipv6" | "inet6" => Ok(6),
        _ => Err(format!("`{text}` is no family: write 4 or 6")),
    }
}

fn state(text: &str) -> Result<FlowState, String> {
    FlowState::ALL
        .into_iter()
        .find(|state| state.name() == text || state.word() == text)
        .ok_or_else(|| {
            format!("`{text}` is no state: write fast, learning, suspended or unconfirmed")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<FlowFilter, String> {
        parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn pairs_are_read() {
        let filter = parse_line(
            "proto tcp src 192.0.2.0/24 and dport 80-81 port eth0 state active family 4",
        )
        .unwrap();
        assert_eq!(filter.proto, Some(Proto::TCP));
        assert_eq!(filter.src.unwrap().to_string(), "192.0.2.0/24");
        assert_eq!(filter.dport.unwrap().to_string(), "80-81");
        assert_eq!(filter.port.as_deref(), Some("eth0"));
        assert_eq!(filter.state, Some(FlowState::Active));
        assert_eq!(filter.family, Some(4));
        for (word, state) in [
            ("fast", FlowState::Active),
            ("learning", FlowState::Preparing),
        ] {
            let filter = parse_line(&format!("state {word}")).unwrap();
            assert_eq!(filter.state, Some(state));
        }
        assert_eq!(parse_line("").unwrap(), FlowFilter::default());
    }

    #[test]
    fn errors_say_what_to_write() {
        for (line, words) in [
            ("tcp", "write `proto tcp`"),
            (
                "proto",
                "`proto` needs tcp, udp, icmp, icmpv6, esp, gre or a number after it",
            ),
            ("sport http", "`http` is no port"),
            ("src 192.0.2.0/33", "at most 32 bits"),
            ("colour red", "`colour` is no filter; there are family"),
            ("state slow", "`slow` is no state: write fast, learning"),
            ("dport 1 dport 2", "`dport` is there twice"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn filters_look_at_both_sides_of_a_translation() {
        let flow = crate::fake::flow();
        for line in [
            "src 192.0.2.2",
            "src 198.51.100.1",
            "port wan0",
            "sport 40000",
            "dport 5201 proto tcp",
        ] {
            assert!(parse_line(line).unwrap().matches(&flow), "{line}");
        }
        for line in [
            "src 203.0.113.1",
            "port eth9",
            "proto udp",
            "family 6",
            "state suspended",
            "dport 80",
        ] {
            assert!(!parse_line(line).unwrap().matches(&flow), "{line}");
        }
    }
}
