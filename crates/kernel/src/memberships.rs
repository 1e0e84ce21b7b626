// SPDX-License-Identifier: MIT OR Apache-2.0
//! What multicast this machine itself receives, of which nothing tells when it changes: groups that were joined and
//! sockets for UDP, of the calling thread's network namespace.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::{fs, io};

use serde::Serialize;

/// IPPROTO_UDP, IPPROTO_UDPLITE.
const UDP: [u16; 2] = [17, 136];

/// Groups that were joined, and who may be given their packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memberships {
    /// Interfaces and the groups that were joined there.
    pub groups: BTreeSet<(u32, IpAddr)>,
    /// Local ports of UDP and UDP-Lite sockets of either IP version.
    pub ports: BTreeSet<u16>,
    /// A raw socket gets all of UDP or UDP-Lite.
    pub raw: bool,
}

impl Memberships {
    /// Reads them all; of an IP version or protocol that the kernel lacks there are none.
    ///
    /// # Errors
    ///
    /// If a list cannot be read.
    pub fn read() -> io::Result<Memberships> {
        let mut memberships = Memberships::default();
        memberships.groups.extend(igmp(&list("igmp")?));
        memberships.groups.extend(igmp6(&list("igmp6")?));
        for file in ["udp", "udp6", "udplite", "udplite6"] {
            memberships.ports.extend(local_ports(&list(file)?));
        }
        for file in ["raw", "raw6"] {
            // what is a port elsewhere is a raw socket's protocol
            memberships.raw |= local_ports(&list(file)?).any(|protocol| UDP.contains(&protocol));
        }
        Ok(memberships)
    }

    /// True if a socket may be given packets to this group and port that come in by this interface, which is of no VRF:
    /// there a group joined at the VRF's own interface counts too (`ip_route_input_rcu`).
    pub fn delivers(&self, iif: u32, group: IpAddr, dport: u16) -> bool {
        self.groups.contains(&(iif, group)) && (self.raw || self.ports.contains(&dport))
    }
}

/// A file of /proc/net; nothing if there is none. Names of devices need not be UTF-8.
fn list(file: &str) -> io::Result<String> {
    match fs::read(format!("/proc/thread-self/net/{file}")) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The lines of `igmp_mc_seq_show()`: one of each device, then, indented, its groups as they lie in memory.
pub(crate) fn igmp(text: &str) -> Vec<(u32, IpAddr)> {
    let (mut device, mut groups) = (None, Vec::new());
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with(char::is_whitespace) {
            let group = u32::from_str_radix(word, 16).ok();
            groups.extend(device.zip(group.map(|group| IpAddr::from(group.to_ne_bytes()))));
        } else {
            device = word.parse().ok();
        }
    }
    groups
}

/// The lines of `igmp6_mc_seq_show()`: index and name of the device, group.
pub(crate) fn igmp6(text: &str) -> impl Iterator<Item = (u32, IpAddr)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let device = words.next()?.parse().ok()?;
        let digits = words.nth(1).filter(|digits| digits.len() == 32)?;
        let group = u128::from_str_radix(digits, 16).ok()?;
        Some((device, IpAddr::from(group.to_be_bytes())))
    })
}

/// The local ports in the lines of `udp4_format_sock()` and its like. The heading is none.
pub(crate) fn local_ports(text: &str) -> impl Iterator<Item = u16> {
    text.lines().filter_map(|line| {
        let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn groups_of_ipv4() {
        let word = |group: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(group));
        let text = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
             1\tlo        :     1      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n\
             14\tlan0      :     2      V3\n\t\t\t\t{}     1 0:00000000\t\t0\n\t\t\t\t{}     1 0:00000000\t\t0\n",
            word([224, 0, 0, 1]),
            word([239, 1, 2, 3]),
            word([224, 0, 0, 1]),
        );
        let all = IpAddr::from([224, 0, 0, 1]);
        let expected = [(1, all), (14, [239, 1, 2, 3].into()), (14, all)];
        assert_eq!(igmp(&text), expected);
        for bad in ["\t\t\t\t010000E0 1", "1\tlo\n\tgroup", "x\tlo\n\t010000E0"] {
            assert_eq!(igmp(bad), [], "{bad}");
        }
    }

    #[test]
    fn groups_of_ipv6() {
        let text = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                    4    eth0            ff0200000000000000000001ff000002     1 00000004 0\n";
        let expected: [(u32, IpAddr); 2] = [
            (1, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()),
            (4, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2).into()),
        ];
        assert_eq!(igmp6(text).collect::<Vec<_>>(), expected);
        for bad in [
            "",
            "4 eth0",
            "4 eth0 ff02",
            "x eth0 ff020000000000000000000000000001",
        ] {
            assert_eq!(igmp6(bad).count(), 0, "{bad}");
        }
    }

    #[test]
    fn ports_of_sockets() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    \x20 141: 00000000:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2\n\
                    99999: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07\n";
        assert_eq!(local_ports(text).collect::<Vec<_>>(), [0x14e9, 53]);
        assert_eq!(
            local_ports("1: 00000000 2\n1: 00000000:1ffff 2\n").count(),
            0
        );
    }

    #[test]
    fn deliveries() {
        let group = IpAddr::from([239, 1, 2, 3]);
        let mut memberships = Memberships {
            groups: [(3, group)].into(),
            ports: [5000].into(),
            raw: false,
        };
        assert!(memberships.delivers(3, group, 5000));
        assert!(!memberships.delivers(3, group, 5001));
        memberships.raw = true;
        assert!(memberships.delivers(3, group, 5001));
        assert!(!memberships.delivers(4, group, 5000));
        assert!(!memberships.delivers(3, [239, 1, 2, 4].into(), 5000));
    }
}
