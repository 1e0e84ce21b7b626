// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports other than wires: tunnels without a link layer, vxlan, macvlan, VLANs, bridges, bonds. This kernel may lack some
//! of them; those in the virtual machines (tests/vm) have all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::path::{send, until_path};
use common::tunnel::{TUN, Tunnel};
use common::*;
use freeway_lab::{Filter, Lab, Options};
use serde_json::Value;

/// A port beside the lab's own, between the router and the server.
struct Beside {
    port: &'static str,
    /// Of the client and of the server behind that port.
    client: &'static str,
    server: &'static str,
}

/// The router translates what leaves there.
const MASQUERADE: &str = "table inet beside {\n\
     \tchain postrouting {\n\
     \t\ttype nat hook postrouting priority srcnat;\n\
     \t\toifname { \"tun0\", \"vx0\", \"mv0\", \"vl0\", \"qi0\", \"br0\", \"bo0\" } masquerade\n\
     \t}\n}\n";

fn lab(topology: &str) -> Lab {
    let options = Options {
        filter: Some(Filter::Tracked),
        extra_nft: MASQUERADE.into(),
        static_neighbours: false,
        ..Options::default()
    };
    build_with(topology, options)
}

/// UDP and TCP through the port, both ways in tc, and nothing of it lost or sent again.
fn through(lab: &Lab, beside: &Beside) {
    // what belongs to a bridge or bond takes no part
    let links = lab.router().tool("ip -o link show wan0").unwrap();
    let mut ports = vec!["lan0", beside.port];
    ports.extend((!links.contains(" master ")).then_some("wan0"));
    let router = Router::start_in(lab.router(), &lab.config_toml(""), freeway(), &ports);
    let of = |host: &str, port: u16| -> SocketAddr { format!("{host}:{port}").parse().unwrap() };
    let (client, server) = (beside.client, beside.server);
    let ends = (
        udp(lab.client(), of(client, 40_000)),
        udp(lab.server(), of(server, 5000)),
    );
    until_path(&router, &ends, of(server, 5000), "tc");
    let before = router.stats().fast();
    send(&ends, of(server, 5000), 300);
    let fast = router.stats().fast() - before;
    assert!(fast >= 580, "{fast} fast\n{}", router.stats());

    let listener = listen(lab.server(), of(server, 5001));
    let mut tcp = pair(
        (lab.client(), of(client, 40_001)),
        of(server, 5001),
        &listener,
    );
    let flows = router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut tcp, 10));
    assert!(flows.iter().all(|flow| flow["path"] == "tc"), "{flows:#?}");
    let bare = beside.port == TUN;
    for flow in &flows {
        let leaves_bare = bare && flow["port_out"] == TUN;
        assert_eq!(flow["dst_mac_out"].is_null(), leaves_bare, "{flow:#}");
    }
    let before = router.stats().fast_bytes();
    // emulation is slow
    let blocks = if std::env::var_os("IN_VM").is_some() {
        10
    } else {
        100
    };
    exchange_blocks(&mut tcp, blocks);
    let fast = router.stats().fast_bytes() - before;
    let sent = 2 * blocks as u64 * BLOCK as u64;
    println!("{}: {fast} fast bytes for {sent}", beside.port);
    assert!(
        fast > sent * 8 / 10,
        "{fast} of {sent} bytes fast\n{}",
        router.stats()
    );
    let explained = router.json(&[
        "explain",
        "udp",
        &format!("{client}:40000"),
        &format!("{server}:5000"),
    ]);
    assert_eq!(explained["flow"]["port_out"], beside.port, "{explained:#}");
    router.stop();
}

#[test]
fn tunnels_without_a_link_layer() {
    let Some(_machine) = machine() else { return };
    for (topology, client, ends, server) in [
        (
            "routed",
            "192.0.2.2",
            ["10.9.0.1/24", "10.9.0.2/24"],
            "10.9.0.2",
        ),
        (
            "routed6",
            "[2001:db8:1::2]",
            ["fd09::1/64", "fd09::2/64"],
            "[fd09::2]",
        ),
    ] {
        let lab = lab(topology);
        let tunnel = Tunnel::open(&lab);
        for (host, address) in [lab.router(), lab.server()].into_iter().zip(ends) {
            host.tool(&format!("ip address add {address} dev {TUN}"))
                .unwrap();
            host.tool(&format!("ip link set {TUN} up")).unwrap();
        }
        through(
            &lab,
            &Beside {
                port: TUN,
                client,
                server,
            },
        );
        drop(tunnel);
    }
}

#[test]
fn vxlan() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    for (host, own, peer, address) in [
        (lab.router(), "wan0", "198.51.100.2", "10.8.0.1/24"),
        (lab.server(), "eth0", "198.51.100.1", "10.8.0.2/24"),
    ] {
        let link = format!("link add vx0 type vxlan id 7 remote {peer} dstport 4789 dev {own}");
        let commands = format!("{link}\naddress add {address} dev vx0\nlink set vx0 up\n");
        host.tool_with_input("ip -batch -", &commands).unwrap();
    }
    through(
        &lab,
        &Beside {
            port: "vx0",
            client: "192.0.2.2",
            server: "10.8.0.2",
        },
    );
}

#[test]
fn macvlan() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    let router = "link add mv0 link wan0 type macvlan mode bridge\n\
                  address add 203.0.113.1/24 dev mv0\nlink set mv0 up\n";
    lab.router().tool_with_input("ip -batch -", router).unwrap();
    lab.server()
        .tool("ip address add 203.0.113.2/24 dev eth0")
        .unwrap();
    through(
        &lab,
        &Beside {
            port: "mv0",
            client: "192.0.2.2",
            server: "203.0.113.2",
        },
    );
}

/// Both ends' links as `ip -batch` reads them, each with an address of 203.0.113.0/24 on `port`; false, and says so, where this
/// kernel has no such links.
fn made(lab: &Lab, port: &str, commands: impl Fn(&str) -> String) -> bool {
    for (host, own, address) in [(lab.router(), "wan0", 1), (lab.server(), "eth0", 2)] {
        let addressed =
            format!("address add 203.0.113.{address}/24 dev {port}\nlink set {port} up\n");
        let text = commands(own) + &addressed;
        if let Err(error) = host.tool_with_input("ip -batch -", &text) {
            let unknown = ["Unknown device type", "Operation not supported"];
            assert!(
                unknown.iter().any(|why| error.to_string().contains(why)),
                "{error}"
            );
            println!("skipped: this kernel has no such links as {port}: {error}");
            return false;
        }
    }
    true
}

fn through_beside(lab: &Lab, port: &'static str) {
    let (client, server) = ("192.0.2.2", "203.0.113.2");
    through(
        lab,
        &Beside {
            port,
            client,
            server,
        },
    );
}

#[test]
fn vlan() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    let tagged = |own: &str| format!("link add link {own} name vl0 type vlan id 5\n");
    if made(&lab, "vl0", tagged) {
        through_beside(&lab, "vl0");
    }
}

#[test]
fn vlan_in_vlan() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    let tagged = |own: &str| {
        format!(
            "link add link {own} name vl0 type vlan id 5 protocol 802.1ad\nlink set vl0 up\n\
             link add link vl0 name qi0 mtu 1496 type vlan id 7\n"
        )
    };
    if made(&lab, "qi0", tagged) {
        through_beside(&lab, "qi0");
    }
}

#[test]
fn bond() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    let bonded = |own: &str| {
        format!(
            "link add bo0 type bond mode active-backup\nlink set {own} down\n\
             link set {own} master bo0\n"
        )
    };
    if made(&lab, "bo0", bonded) {
        through_beside(&lab, "bo0");
    }
}

/// Routed to and from a bridge; netfilter must not see what is bridged.
fn through_bridge(aware: bool) {
    let lab = lab("routed");
    let bridged = |own: &str| {
        let filtering = if aware { " vlan_filtering 1" } else { "" };
        format!("link add br0 type bridge{filtering}\nlink set {own} master br0\n")
    };
    if !made(&lab, "br0", bridged) {
        return;
    }
    if aware {
        // untagged frames are VLAN 5's at the router
        let vlans = "vlan add dev wan0 vid 5 pvid untagged\nvlan del dev wan0 vid 1\n\
                     vlan add dev br0 vid 5 pvid untagged self\nvlan del dev br0 vid 1 self\n";
        lab.router()
            .tool_with_input("bridge -batch -", vlans)
            .unwrap();
    }
    let switch = |value: &str| {
        ["", "6"].map(|family| {
            let name = format!("net/bridge/bridge-nf-call-ip{family}tables");
            lab.router().sysctl(&name, value).is_ok()
        })
    };
    if switch("1").contains(&true) {
        let (ports, config) = (["lan0", "br0"], lab.config_toml(""));
        let kept = |status: &Value| status["ports"].to_string().contains("br_netfilter");
        let router = Router::start_until(lab.router(), &config, freeway(), &ports, kept);
        switch("0");
        until("the bridge takes part", Duration::from_secs(5), || {
            (!kept(&router.status())).then_some(())
        });
        router.stop();
    }
    through_beside(&lab, "br0");
}

#[test]
fn bridge() {
    let Some(_machine) = machine() else { return };
    through_bridge(false);
}

#[test]
fn vlan_aware_bridge() {
    let Some(_machine) = machine() else { return };
    through_bridge(true);
}
