// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's address and MAC address on the sender's side: the kernel's route, and its neighbour table.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::{Exit, Stop};
use nix::sys::socket::{setsockopt, sockopt};
use serde::Deserialize;

use super::port::{HostPort, ip, mac};

/// Three requests, a second apart, and a little more.
const PATIENCE: Duration = Duration::from_millis(3500);
const POLL: Duration = Duration::from_millis(100);
/// The discard service (RFC 863).
const DISCARD_PORT: u16 = 9;

/// What `ip -j route get` prints.
#[derive(Debug, Deserialize)]
struct Route {
    #[serde(rename = "type")]
    kind: Option<String>,
    gateway: Option<IpAddr>,
    via: Option<Via>,
}

#[derive(Debug, Deserialize)]
struct Via {
    host: IpAddr,
}

/// What `ip -j neigh` prints.
#[derive(Debug, Deserialize)]
struct Neighbour {
    lladdr: Option<String>,
    #[serde(default)]
    state: Vec<String>,
}

impl Neighbour {
    /// Whether it has answered lately, or need not: another router may be cabled since.
    fn is_sure(&self) -> bool {
        let sure = ["REACHABLE", "PERMANENT", "NOARP"];
        self.state
            .iter()
            .any(|state| sure.contains(&state.as_str()))
    }
}

impl Route {
    /// Refuses what this host does not send to anybody.
    fn check(&self, port: &str, to: IpAddr) -> Result<(), Stop> {
        if matches!(self.kind.as_deref(), Some(kind) if kind != "unicast") {
            return Err(Stop::new(
                Exit::Usage,
                format!(
                    "this host keeps what is sent to {to}, so that its routes do not name the router: name its address at {port} with --gateway"
                ),
            ));
        }
        Ok(())
    }

    /// Who gets what is sent there: without a gateway the destination itself.
    fn next_hop(&self, to: IpAddr) -> IpAddr {
        let via = self.via.as_ref().map(|via| via.host);
        self.gateway.or(via).unwrap_or(to)
    }
}

/// The next hop of frames to an address by a port.
pub fn next_hop(port: &HostPort, to: IpAddr) -> Result<IpAddr, Stop> {
    let name = port.name();
    let address = to.to_string();
    // with a port, the kernel does not look whether the address is its own
    if let Ok(routes) = ip::<Vec<Route>>(&["route", "get", &address]) {
        routes.iter().try_for_each(|route| route.check(name, to))?;
    }
    let routes = ip::<Vec<Route>>(&["route", "get", &address, "oif", name]);
    let routes = routes.map_err(|stop| {
        let message = format!(
            "no route to {to} by {name}: `ip route add {to} via ROUTER dev {name}`, or name the router with --gateway ({stop})"
        );
        Stop::new(stop.exit, message)
    })?;
    let route = routes.first();
    let route = route.ok_or_else(|| Stop::failure(format!("no route to {to} by {name}")))?;
    route.check(name, to)?;
    Ok(route.next_hop(to))
}

/// The MAC address of a neighbour, which the kernel is made to ask for.
pub fn mac_of(port: &HostPort, from: IpAddr, neighbour: IpAddr) -> Result<[u8; 6], Stop> {
    if let Some(found) = known(port, neighbour)? {
        return Ok(found);
    }
    // the kernel would believe an old entry for some seconds more; often there is none
    let address = neighbour.to_string();
    let _ = ip::<Vec<Neighbour>>(&["neighbour", "del", &address, "dev", port.name()]);
    let until = Instant::now() + PATIENCE;
    loop {
        // an error is the neighbour's silence
        let _ = provoke(port, from, neighbour);
        if let Some(found) = known(port, neighbour)? {
            return Ok(found);
        }
        if Instant::now() >= until {
            return Err(Stop::failure(format!(
                "nobody at {} answers for {neighbour}: is it the router's address there, and is the router on? --gateway-mac does without",
                port.name()
            )));
        }
        thread::sleep(POLL);
    }
}

fn known(port: &HostPort, neighbour: IpAddr) -> Result<Option<[u8; 6]>, Stop> {
    let address = neighbour.to_string();
    let listed: Vec<Neighbour> = ip(&["neighbour", "show", &address, "dev", port.name()])?;
    let sure = listed.iter().filter(|entry| entry.is_sure());
    let mut found = sure.filter_map(|entry| entry.lladdr.as_deref());
    Ok(found.find_map(|text| mac(text).ok()))
}

/// Sends a datagram that only the neighbour can get.
fn provoke(port: &HostPort, from: IpAddr, neighbour: IpAddr) -> std::io::Result<()> {
    let any = match neighbour {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let from = if port.has(from) { from } else { any };
    let socket = UdpSocket::bind((from, 0)).or_else(|_| UdpSocket::bind((any, 0)))?;
    setsockopt(&socket, sockopt::BindToDevice, &port.name().into())?;
    let to = match neighbour {
        IpAddr::V4(_) => SocketAddr::new(neighbour, DISCARD_PORT),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, DISCARD_PORT, 0, port.port.ifindex).into(),
    };
    socket.send_to(&[], to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_name_the_next_hop() {
        let to = "198.51.100.2".parse().unwrap();
        for (text, wanted) in [
            (
                r#"{"dst":"198.51.100.2","gateway":"192.0.2.1","dev":"eth0","flags":[],"cache":[]}"#,
                "192.0.2.1",
            ),
            (
                r#"{"dst":"198.51.100.2","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0"}"#,
                "fe80::1",
            ),
            (
                r#"{"type":"unicast","dst":"198.51.100.2","dev":"eth0"}"#,
                "198.51.100.2",
            ),
        ] {
            let route: Route = serde_json::from_str(text).unwrap();
            route.check("eth0", to).unwrap();
            assert_eq!(route.next_hop(to), wanted.parse::<IpAddr>().unwrap());
        }
        let own = r#"{"type":"local","dst":"198.51.100.2","dev":"lo"}"#;
        let own: Route = serde_json::from_str(own).unwrap();
        let refused = own.check("eth0", to).unwrap_err();
        assert!(refused.message.contains("--gateway"), "{refused}");
    }
}
