// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses in any text become made-up ones: an address the same one wherever it stands, and another another.
//!
//! A made-up address shows of what kind the other is, and that it is made up: no host has it. What all networks have in
//! common stays as it is: 0.0.0.0, loopback, netmasks, groups, prefixes of a kind such as 10.0.0.0 and fc00::.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Of Ethernet.
const MAC_LEN: usize = 6;
/// Longest MAC address: InfiniBand's.
const MAC_MAX: usize = 20;
/// Groups of an IPv6 address or such a MAC address, and empty ones around.
const GROUPS_MAX: usize = MAC_MAX + 2;
/// In front of a MAC address in the name of a network port (systemd.net-naming-scheme(7)).
const NAMED_BY_MAC: [&str; 4] = ["enx", "wlx", "wwx", "ibx"];
/// First octets of made-up IPv4 addresses, none of which a host has.
const PUBLIC: u8 = 240;
const PRIVATE: u8 = 250;
const OF_LINK: u8 = 251;
const OF_CARRIER: u8 = 252;
/// Begins what a carrier's translation to IPv4 is reached by (RFC 6052).
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
/// Begin what is no single network's, as rules name it.
const SHARED4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(10, 0, 0, 0),
    Ipv4Addr::new(100, 64, 0, 0),
    Ipv4Addr::new(169, 254, 0, 0),
    Ipv4Addr::new(172, 16, 0, 0),
    Ipv4Addr::new(192, 168, 0, 0),
];

/// What was made up so far.
#[derive(Debug, Default)]
pub struct Redactor {
    v4: HashMap<Ipv4Addr, Ipv4Addr>,
    v6: HashMap<Ipv6Addr, Ipv6Addr>,
    mac: HashMap<Vec<u8>, Vec<u8>>,
}

impl Redactor {
    /// The text with each address replaced.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = match first {
                '\\' => escape(rest),
                _ if is_of_word(first) => {
                    let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                    self.word(&rest[..end], &mut out);
                    rest = &rest[end..];
                    continue;
                }
                _ => first.len_utf8(),
            };
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        out
    }

    fn word(&mut self, word: &str, out: &mut String) {
        if let Some(name) = self.port_name(word) {
            out.push_str(&name);
            return;
        }
        // hexadecimal digits, colons and dots are all that addresses are made of
        let mut rest = word;
        while !rest.is_empty() {
            let of_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
            let end = rest.find(|c| !of_address(c)).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            self.run(run, out);
            let end = after.find(of_address).unwrap_or(after.len());
            out.push_str(&after[..end]);
            rest = &after[end..];
        }
    }

    /// A port that is named by its MAC address.
    fn port_name(&mut self, word: &str) -> Option<String> {
        let prefix = NAMED_BY_MAC.iter().find(|p| word.starts_with(**p))?;
        let digits = word.get(prefix.len()..prefix.len() + 12)?;
        let mac = octets(digits)?;
        let made: String = self.mac(&mac).iter().map(|o| format!("{o:02x}")).collect();
        Some(format!("{prefix}{made}{}", &word[prefix.len() + 12..]))
    }

    /// The longest addresses in what consists of nothing else.
    fn run(&mut self, run: &str, out: &mut String) {
        if !run.contains([':', '.']) {
            out.push_str(run);
            return;
        }
        // where a group begins or ends
        let mut cuts = vec![0];
        for (at, _) in run.match_indices([':', '.']) {
            cuts.extend([at, at + 1]);
        }
        cuts.push(run.len());
        cuts.dedup();
        let mut begin = 0;
        while begin < run.len() {
            let starts = cuts.binary_search(&begin).is_ok();
            let ends = cuts.iter().filter(|cut| **cut > begin);
            let ends: Vec<usize> = ends.take(2 * GROUPS_MAX).copied().collect();
            let found = ends
                .iter()
                .rev()
                .filter(|_| starts)
                .filter(|end| !is_cut_off(&run[begin..**end], &run[**end..]))
                .find_map(|end| Some((*end, self.address(&run[begin..*end])?)));
            let end = match found {
                Some((end, made)) => {
                    out.push_str(&made);
                    end
                }
                None => {
                    let end = ends.first().copied().unwrap_or(run.len());
                    out.push_str(&run[begin..end]);
                    end
                }
            };
            begin = end;
        }
    }

    /// What stands in place of an address; `None`: it is none.
    fn address(&mut self, text: &str) -> Option<String> {
        if let Some(address) = v4(text) {
            return Some(self.v4(address).to_string());
        }
        if !text.contains(':') {
            return None;
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Some(match address.to_ipv4_mapped() {
                Some(inner) => self.v4(inner).to_ipv6_mapped().to_string(),
                None => self.v6(address).to_string(),
            });
        }
        let groups = text.split(':');
        // one of six may be written without leading zeros, as bridges' are
        let short = groups.clone().count() == MAC_LEN;
        let whole = |group: &str| group.len() == 2 || short && group.len() == 1;
        let all = groups.clone().all(whole);
        let mac: String = groups.map(|group| format!("{group:0>2}")).collect();
        let mac = octets(&mac).filter(|mac| all && (MAC_LEN..=MAC_MAX).contains(&mac.len()))?;
        let made = self.mac(&mac);
        if made == mac {
            return Some(text.into());
        }
        let made: Vec<String> = made.iter().map(|o| format!("{o:02x}")).collect();
        Some(made.join(":"))
    }

    fn v4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        let [first, second, ..] = address.octets();
        // the last are netmasks, and the broadcast address
        let common = matches!(first, 0 | 127 | 255) || address.is_multicast();
        if common || SHARED4.contains(&address) {
            return address;
        }
        let class = match (first, second) {
            (10, _) | (172, 16..32) | (192, 168) => PRIVATE,
            (169, 254) => OF_LINK,
            (100, 64..128) => OF_CARRIER,
            _ => PUBLIC,
        };
        let number = self.v4.len() as u32 + 1;
        let made = Ipv4Addr::from_bits(u32::from_be_bytes([class, 0, 0, 0]) + number % (1 << 24));
        *self.v4.entry(address).or_insert(made)
    }

    fn v6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        let segments = address.segments();
        // a group that ends as an address does
        let solicited = segments[..6] == [0xff02, 0, 0, 0, 0, 1] && segments[6] >> 8 == 0xff;
        // all of a class, as rules and routes name it
        let class = segments[1..].iter().all(|segment| *segment == 0) || address == NAT64;
        if class || address.is_loopback() || address.is_multicast() && !solicited {
            return address;
        }
        let number = self.v6.len() as u128 + 1;
        let base = match segments[0] {
            0xff02 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0),
            0xfe80..0xfec0 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0xfe80, 0, 0, 0, 0),
            0xfc00..0xfe00 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0xfd00, 0, 0, 0, 0),
            _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        };
        let made = Ipv6Addr::from_bits(base.to_bits() + number % (1 << 24));
        *self.v6.entry(address).or_insert(made)
    }

    fn mac(&mut self, mac: &[u8]) -> Vec<u8> {
        let same = |octet| mac.iter().all(|o| *o == octet);
        // a group that ends as an IPv6 address does
        let solicited = mac.starts_with(&[0x33, 0x33, 0xff]);
        if same(0) || same(0xff) || mac[0] & 1 == 1 && !solicited {
            return mac.into();
        }
        let number = self.mac.len() as u32 + 1;
        let mut made = vec![0; mac.len()];
        let (head, tail) = made.split_at_mut(mac.len() - 3);
        match solicited {
            true => head.copy_from_slice(&[0x33, 0x33, 0xff]),
            // administered locally, and no program's choice
            false => head[0] = 0xf2,
        }
        tail.copy_from_slice(&number.to_be_bytes()[1..]);
        self.mac.entry(mac.into()).or_insert(made).clone()
    }
}

/// Length of an escape of JSON, whose letters are not the next word's.
fn escape(text: &str) -> usize {
    match text.as_bytes() {
        [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => 6,
        [b'\\', letter, ..] if letter.is_ascii_alphabetic() => 2,
        _ => 1,
    }
}

/// Whether six groups are not all, and a shorter one than others is of what comes before.
fn is_cut_off(text: &str, rest: &str) -> bool {
    let mut groups = text.split(':');
    rest.starts_with(':')
        && groups.clone().count() == MAC_LEN
        && groups.any(|group| group.len() < 2)
}

/// Addresses, and names in which there may be some.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.')
}

/// Leading zeros are taken for what they say.
fn v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.len() <= 3;
        *octet = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Pairs of hexadecimal digits.
fn octets(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn redacted(text: &str) -> String {
        Redactor::default().text(text)
    }

    #[test]
    fn the_same_address_becomes_the_same() {
        let text = "192.0.2.1:80 > 192.0.2.2, [2001:db8:1::1]:80; 192.0.2.1 2001:DB8:1:0::1 \
                    ::ffff:192.0.2.1 02:00:00:00:00:0A 02:00:00:00:00:0a";
        assert_eq!(
            redacted(text),
            "240.0.0.1:80 > 240.0.0.2, [2001:db8::1]:80; 240.0.0.1 2001:db8::1 \
             ::ffff:240.0.0.1 f2:00:00:00:00:01 f2:00:00:00:00:01"
        );
    }

    #[test]
    fn kinds_stay_to_be_seen() {
        let text =
            "192.168.1.1 172.31.0.1 10.1.1.1 172.32.0.1 169.254.7.7 100.64.0.1 fe80::1 fd12::1";
        assert_eq!(
            redacted(text),
            "250.0.0.1 250.0.0.2 250.0.0.3 240.0.0.4 251.0.0.5 252.0.0.6 2001:db8:0:fe80::1 2001:db8:0:fd00::2"
        );
    }

    #[test]
    fn what_all_networks_have_stays() {
        let text = "0.0.0.0/0 127.0.0.1 255.255.255.0 224.0.0.251 ::/0 ::1 ff02::fb fc00::/7 2000::/3 10.0.0.0/8 \
                    00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 01:00:5e:00:00:fb 1:0:5e:0:0:fb Linux 6.18.44 at 23:39:48.123 0000:01:00.0 \
                    64:ff9b::/96 std::io 1.2.3 a.b.c.d 300.1.1.1";
        assert_eq!(redacted(text), text);
    }

    #[test]
    fn groups_that_end_as_addresses_do_become_others() {
        assert_eq!(
            redacted("ff02::1:ff12:3456 33:33:ff:12:34:56"),
            "ff02::1:ff00:1 33:33:ff:00:00:01"
        );
    }

    #[test]
    fn addresses_are_found_in_what_surrounds_them() {
        for (text, expected) in [
            (r#"{"local":"192.0.2.7"}"#, r#"{"local":"240.0.0.1"}"#),
            (r"a\n192.0.2.7\t192.0.2.7", r"a\n240.0.0.1\t240.0.0.1"),
            (r"\u00fc192.0.2.7", r"\u00fc240.0.0.1"),
            ("192.0.2.7.5201 > 192.0.2.7.", "240.0.0.1.5201 > 240.0.0.1."),
            (
                "v192.0.2.7 192.0.2.7/24 192.0.2.7-192.0.2.7",
                "v240.0.0.1 240.0.0.1/24 240.0.0.1-240.0.0.1",
            ),
            ("lan0:192.0.2.7", "lan0:240.0.0.1"),
            ("port:2001:db8:1::7: x", "port:2001:db8::1: x"),
            ("fe80::7%lan0", "2001:db8:0:fe80::1%lan0"),
            ("lan0:02:00:00:00:00:0a.", "lan0:f2:00:00:00:00:01."),
            ("8000.0:d:b9:4a:b:c", "8000.f2:00:00:00:00:01"),
            ("enx02000000000a.7", "enxf20000000001.7"),
            (
                "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:0b",
                "f2:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:01",
            ),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    fn address() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).to_string()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).to_string()),
            any::<u64>().prop_map(|bits| format!("fe80::{:x}:{:x}", bits as u16, bits >> 48)),
            any::<[u8; 6]>().prop_map(|mac| mac.map(|o| format!("{o:02x}")).join(":")),
            // as bridges' identifiers have it
            any::<[u8; 6]>().prop_map(|mac| mac.map(|o| format!("{o:x}")).join(":")),
        ]
    }

    /// Whether an address is one that stays.
    fn stays(address: &str) -> bool {
        Redactor::default().address(address).as_deref() == Some(address)
    }

    proptest! {
        #[test]
        fn none_is_left_and_each_has_its_own(
            words in proptest::collection::vec((address(), "[ \\n,;\"=(/%-]|, via |\\\\n"), 1..40),
        ) {
            let text: String = words.iter().map(|(word, after)| format!("{word}{after}")).collect();
            let mut redactor = Redactor::default();
            let out = redactor.text(&text);
            let mut made = BTreeSet::new();
            let mut expected = String::new();
            for (word, after) in &words {
                let replacement = redactor.address(word).unwrap();
                prop_assert!(stays(word) || !out.contains(word.as_str()), "{word} in {out}");
                expected += &(replacement.clone() + after);
                made.insert(replacement);
            }
            prop_assert_eq!(&out, &expected);
            let different: BTreeSet<_> = words.iter().map(|(word, _)| word).collect();
            prop_assert_eq!(made.len(), different.len());
        }

        #[test]
        fn any_text_is_taken(text in "\\PC*") {
            let mut redactor = Redactor::default();
            let _ = redactor.text(&text);
        }
    }
}
