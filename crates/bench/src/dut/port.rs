// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of this host, as iproute2 tells them, and whether frames may be sent or taken there.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::{Exit, Stop};
use freeway_lab::{Netns, Port};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// Octets of a frame that an MTU does not count: Ethernet header and FCS.
const BEYOND_MTU: u32 = 18;
/// A driver that is given a program may take its link down for a moment.
const CARRIER_PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A port of this host.
#[derive(Debug)]
pub struct HostPort {
    /// The port.
    pub port: Port,
    /// Bytes of L3.
    mtu: u32,
    flags: Vec<String>,
    addresses: Vec<Address>,
    has_program: bool,
}

/// What `ip -j address` prints of a port.
#[derive(Debug, Deserialize)]
struct Listed {
    ifindex: u32,
    ifname: String,
    flags: Vec<String>,
    mtu: u32,
    link_type: String,
    address: Option<String>,
    #[serde(default)]
    addr_info: Vec<Address>,
    xdp: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    local: Option<IpAddr>,
    prefixlen: u8,
    scope: String,
}

/// What `ip -j route` prints of a route.
#[derive(Debug, Deserialize)]
struct DefaultRoute {
    dev: Option<String>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

/// What `ip -j link` prints of who is joined to whom.
#[derive(Debug, Deserialize)]
struct Joined {
    #[serde(default)]
    ifname: String,
    /// What it is a port of, a bridge or a bond;
    master: Option<String>,
    /// or what it is above, as VLANs are.
    link: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NextHop {
    dev: Option<String>,
}

/// What `ip -j` prints.
pub fn ip<T: DeserializeOwned>(arguments: &[&str]) -> Result<T, Stop> {
    let line = format!("ip -j {}", arguments.join(" "));
    let mut command = Command::new("ip");
    let output = command
        .arg("-j")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| {
        let message = format!("cannot run `{line}`: {error}: install iproute2");
        Stop::new(Exit::Unavailable, message)
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Stop::failure(format!("`{line}` failed: {why}")));
    }
    // some say nothing instead of an empty list
    let text = output.stdout.trim_ascii();
    let text = if text.is_empty() { b"[]" } else { text };
    serde_json::from_slice(text)
        .map_err(|error| Stop::failure(format!("`{line}` printed no JSON as expected: {error}")))
}

/// A MAC address as tools write it.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let octets = text.split(':').map(|octet| match octet.len() {
        1 | 2 if octet.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u8::from_str_radix(octet, 16).ok()
        }
        _ => None,
    });
    let octets: Option<Vec<u8>> = octets.collect();
    octets
        .and_then(|octets| octets.try_into().ok())
        .ok_or_else(|| "write a MAC address such as 02:00:5e:10:00:01".into())
}

impl HostPort {
    /// The port of that name in this network namespace.
    pub fn find(name: &str) -> Result<Self, Stop> {
        let listed = ip::<Vec<Value>>(&["address", "show", "dev", name]);
        let listed = listed.map_err(|stop| match stop.exit {
            Exit::Failure => Stop::new(
                Exit::Usage,
                format!("no port is called `{name}`: `ip link` lists them"),
            ),
            _ => stop,
        })?;
        Self::listed(name, listed)
    }

    fn listed(name: &str, listed: Vec<Value>) -> Result<Self, Stop> {
        let mut listed = listed.into_iter();
        let listed = listed.find(|listed| listed.get("ifindex").is_some());
        let listed = listed.ok_or_else(|| Stop::failure(format!("ip tells nothing of {name}")))?;
        let listed: Listed = serde_json::from_value(listed)
            .map_err(|error| Stop::failure(format!("what ip tells of {name}: {error}")))?;
        let own = listed.address.as_deref().map(mac).and_then(Result::ok);
        let own = own.filter(|_| listed.link_type == "ether").ok_or_else(|| {
            let kind = &listed.link_type;
            Stop::new(
                Exit::Usage,
                format!("{name} is no Ethernet port but {kind}: frames need MAC addresses"),
            )
        })?;
        Ok(Self {
            port: Port {
                netns: Netns::own(),
                // it may have been asked for by another
                name: listed.ifname,
                ifindex: listed.ifindex,
                mac: own,
            },
            mtu: listed.mtu,
            flags: listed.flags,
            addresses: listed.addr_info,
            has_program: listed.xdp.is_some(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.port.name
    }

    /// Refuses a port that carries the default route or no link, unless told otherwise.
    pub fn check(&self, force: bool) -> Result<(), Stop> {
        if force {
            return Ok(());
        }
        let name = self.name();
        let joined: Vec<Joined> = ip(&["link", "show"])?;
        let above = above(name, &joined);
        for family in ["-4", "-6"] {
            let routes: Vec<DefaultRoute> = ip(&[family, "route", "show", "default"])?;
            if above
                .iter()
                .any(|port| routes.iter().any(|route| route.leaves_by(port)))
            {
                return Err(Stop::new(
                    Exit::Usage,
                    format!(
                        "{name} carries this host's default route, and what goes there would be disturbed: take another port, or --force"
                    ),
                ));
            }
        }
        if !self.has_flag("UP") {
            return Err(Stop::failure(format!(
                "{name} is down: `ip link set dev {name} up`, or --force"
            )));
        }
        if !self.has_flag("LOWER_UP") {
            return Err(Stop::failure(format!(
                "{name} has no carrier: look at the cable and at its other end, or --force"
            )));
        }
        Ok(())
    }

    /// Refuses a port that has a program, which would take the frames or be replaced.
    pub fn check_free(&self) -> Result<(), Stop> {
        if self.has_program {
            return Err(occupied(self.name()));
        }
        Ok(())
    }

    /// Refuses an address that the port does not have, for nobody would answer when the router asks for its MAC address.
    pub fn check_answers(&self, to: IpAddr, force: bool) -> Result<(), Stop> {
        if force || self.has(to) {
            return Ok(());
        }
        let name = self.name();
        let length = self
            .addresses
            .iter()
            .find(|address| address.local.is_some_and(|ip| ip.is_ipv4() == to.is_ipv4()))
            .map_or("LENGTH".to_owned(), |address| address.prefixlen.to_string());
        Err(Stop::failure(format!(
            "{name} does not have the address {to}, and nobody would answer the router that asks for it: \
             `ip address add {to}/{length} dev {name}` there, or --force there"
        )))
    }

    /// Refuses frames that do not fit.
    pub fn check_frame(&self, frame_bytes: u32) -> Result<(), Stop> {
        let (name, mtu) = (self.name(), self.mtu);
        if frame_bytes <= mtu.saturating_add(BEYOND_MTU) {
            return Ok(());
        }
        let needed = frame_bytes - BEYOND_MTU;
        Err(Stop::new(
            Exit::Usage,
            format!(
                "frames of {frame_bytes} bytes do not fit {name}, whose MTU is {mtu}: `ip link set dev {name} mtu {needed}`, or other --size"
            ),
        ))
    }

    /// Whether it has an address.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|address| address.local == Some(ip))
    }

    /// Its first address that others can send to.
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        let mut global = self
            .addresses
            .iter()
            .filter(|address| address.scope == "global");
        global.find_map(|address| address.local.filter(|ip| ip.is_ipv6() == v6))
    }

    /// Waits for the link that a driver has taken down for a program, if it was there.
    pub fn wait_for_carrier(&self) -> Result<(), Stop> {
        let until = Instant::now() + CARRIER_PATIENCE;
        while self.has_flag("LOWER_UP") && !Self::find(self.name())?.has_flag("LOWER_UP") {
            if Instant::now() >= until {
                return Err(Stop::failure(format!(
                    "{} has lost its carrier since a program was attached: look at its other end",
                    self.name()
                )));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|found| found == flag)
    }
}

impl DefaultRoute {
    fn leaves_by(&self, name: &str) -> bool {
        let hops = self.nexthops.iter().map(|hop| &hop.dev);
        let mut ports = hops.chain([&self.dev]);
        ports.any(|dev| dev.as_deref() == Some(name))
    }
}

/// A port, and what sends by it: its bridge or bond, VLANs above it, and theirs.
fn above<'a>(name: &'a str, joined: &'a [Joined]) -> Vec<&'a str> {
    let mut found = vec![name];
    let mut next = 0;
    while let Some(port) = found.get(next).copied() {
        next += 1;
        let masters = joined.iter().filter(|of| of.ifname == port);
        let masters = masters.filter_map(|of| of.master.as_deref());
        // ends of a veth name each other
        let below = |of: &Joined| {
            joined
                .iter()
                .any(|end| end.ifname == port && end.link.as_deref() == Some(&of.ifname))
        };
        let uppers = joined
            .iter()
            .filter(|of| of.link.as_deref() == Some(port) && !below(of));
        for upper in masters.chain(uppers.map(|of| of.ifname.as_str())) {
            if !found.contains(&upper) {
                found.push(upper);
            }
        }
    }
    found
}

/// That another program is at a port.
pub fn occupied(name: &str) -> Stop {
    Stop::failure(format!(
        "{name} has another XDP program, which would take the frames: end what has attached it, or `ip link set dev {name} xdp off`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eth1(flags: &str, xdp: &str) -> HostPort {
        let text = format!(
            r#"[{{}},{{"ifindex":7,"ifname":"eth1","flags":{flags},"mtu":1500,"link_type":"ether",
                "address":"02:00:00:00:01:0a"{xdp},"addr_info":[
                {{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}},
                {{"family":"inet","local":"198.51.100.2","prefixlen":24,"scope":"global"}}]}}]"#
        );
        HostPort::listed("eth1", serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn ports_are_read() {
        let port = eth1(r#"["UP","LOWER_UP"]"#, "");
        assert_eq!((port.port.ifindex, port.port.mac[5]), (7, 10));
        let own = "198.51.100.2".parse().unwrap();
        assert_eq!((port.address(false), port.address(true)), (Some(own), None));
        port.check_answers(own, false).unwrap();
        port.check_free().unwrap();
        port.check_frame(1518).unwrap();
        let why = port.check_frame(1519).unwrap_err().message;
        assert!(why.contains("mtu 1501"), "{why}");
        let other = "198.51.100.9".parse().unwrap();
        let why = port.check_answers(other, false).unwrap_err().message;
        let hint = "`ip address add 198.51.100.9/24 dev eth1`";
        assert!(why.contains(hint), "{why}");
        port.check_answers(other, true).unwrap();
    }

    #[test]
    fn programs_of_others_are_seen() {
        let port = eth1("[]", r#","xdp":{"mode":1,"prog":{"id":12}}"#);
        let why = port.check_free().unwrap_err().message;
        assert!(why.contains("xdp off"), "{why}");
    }

    #[test]
    fn what_is_no_ethernet_is_refused() {
        let lo = r#"[{"ifindex":1,"ifname":"lo","flags":[],"mtu":65536,"link_type":"loopback","address":"00:00:00:00:00:00"}]"#;
        let refused = HostPort::listed("lo", serde_json::from_str(lo).unwrap()).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("loopback"), "{refused}");
        assert!(HostPort::listed("eth1", Vec::new()).is_err());
    }

    #[test]
    fn default_routes_name_their_ports() {
        let routes = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0"},
            {"dst":"default","nexthops":[{"gateway":"192.0.2.5","dev":"eth2"},{"dev":"eth3"}]}]"#;
        let routes: Vec<DefaultRoute> = serde_json::from_str(routes).unwrap();
        let by = |name: &str| routes.iter().any(|route| route.leaves_by(name));
        assert_eq!(
            ["eth0", "eth1", "eth2", "eth3"].map(by),
            [true, false, true, true]
        );
    }

    #[test]
    fn what_sends_by_a_port_is_found() {
        let links = r#"[{"ifname":"lo"},{"ifname":"eth1","master":"br0"},{"ifname":"eth2"},{"ifname":"br0"},
            {"ifname":"br0.7","link":"br0"},{"ifname":"veth0","link":"veth1"},{"ifname":"veth1","link":"veth0"}]"#;
        let links: Vec<Joined> = serde_json::from_str(links).unwrap();
        assert_eq!(above("eth1", &links), ["eth1", "br0", "br0.7"]);
        assert_eq!(above("eth2", &links), ["eth2"]);
        assert_eq!(above("veth0", &links), ["veth0"]);
    }

    #[test]
    fn mac_addresses() {
        assert_eq!(mac("02:0:5e:FF:00:01"), Ok([2, 0, 0x5e, 0xff, 0, 1]));
        for text in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "+2:00:5e:10:00:01",
            "é:0:0:0:0:0",
        ] {
            assert!(mac(text).is_err(), "{text}");
        }
    }
}
