// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports other than wires: tunnels without a link layer, WireGuard, vxlan, macvlan, VLANs, bridges, bonds. This kernel may
//! lack some of them; those in the virtual machines (tests/vm) have all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeway_lab::{Capture, Filter, Lab, Netns, Options};
use freeway_testkit::path::{send, until_path};
use freeway_testkit::tunnel::{TUN, Tunnel};
use freeway_testkit::*;
use serde_json::Value;

/// The lab's client, and the server at the other end of a link that `made` or `addressed` sees to.
const CLIENT: &str = "192.0.2.2";
const SERVER: &str = "203.0.113.2";
/// A port without a link layer?
fn is_bare(port: &str) -> bool {
    [TUN, "wg0"].contains(&port) || port.starts_with("wgu")
}

/// The router translates what leaves there.
const MASQUERADE: &str = "table inet beside {\n\
     \tchain postrouting {\n\
     \t\ttype nat hook postrouting priority srcnat;\n\
     \t\toifname { \"tun0\", \"wg0\", \"wgu*\", \"vx0\", \"mv0\", \"vl0\", \"qi0\", \"br0\", \"bo0\" } masquerade\n\
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

/// UDP and TCP through a port beside the lab's own, both ways in tc, and nothing of it lost or sent again.
fn through(lab: &Lab, port: &str, client: &str, server: &str) {
    through_on("tc", lab, &[port], client, server);
}

fn forced(path: &str) -> &str {
    if path == "tc" { "tc" } else { "auto" }
}

/// The same through the first of ports one above the other, on a path, which the configuration must want if it is tc's
/// instead of XDP's.
fn through_on(path: &str, lab: &Lab, ports: &[&str], client: &str, server: &str) {
    let port = ports[0];
    // what belongs to a bridge or bond takes no part
    let links = lab.router().tool("ip -o link show wan0").unwrap();
    let mut ports = [&["lan0"], ports].concat();
    ports.extend((!links.contains(" master ")).then_some("wan0"));
    let config = lab.config_toml("") + &format!("[port.{port}]\npath = \"{}\"\n", forced(path));
    let router = Router::start_in(lab.router(), &config, freeway(), &ports);
    let of = |host: &str, port: u16| -> SocketAddr { format!("{host}:{port}").parse().unwrap() };
    let ends = (
        udp(lab.client(), of(client, 40_000)),
        udp(lab.server(), of(server, 5000)),
    );
    until_path(&router, &ends, of(server, 5000), path);
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
    assert!(flows.iter().all(|flow| flow["path"] == path), "{flows:#?}");
    for flow in &flows {
        let leaves_bare = flow["port_out"] == port && is_bare(port);
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
    println!("{port}: {fast} fast bytes for {sent}");
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
    assert_eq!(explained["flow"]["port_out"], port, "{explained:#}");
    router.stop();
}

#[test]
fn tunnels_without_a_link_layer() {
    let Some(_machine) = machine() else { return };
    for (topology, client, ends, server) in [
        ("routed", CLIENT, ["10.9.0.1/24", "10.9.0.2/24"], "10.9.0.2"),
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
        through(&lab, TUN, client, server);
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
    through(&lab, "vx0", CLIENT, "10.8.0.2");
}

/// Segments of merged TCP in a tunnel are longer than what is around them tells. Where they are too long the kernel cuts
/// them.
#[test]
fn tunnels_of_merged_frames_are_the_kernels() {
    const MTU: usize = 1500;
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    for (host, own, peer, inner) in [
        (lab.client(), CLIENT, "198.51.100.2", "10.8.0.1"),
        (lab.server(), "198.51.100.2", CLIENT, "10.8.0.2"),
    ] {
        // one port at both ends: both ways are one conversation
        let link = "link add vx0 type vxlan id 7 dstport 4789 srcport 4789 4790";
        let commands = format!(
            "{link} local {own} remote {peer}\naddress add {inner}/24 dev vx0\nlink set vx0 mtu {MTU} up\n"
        );
        host.tool_with_input("ip -batch -", &commands).unwrap();
    }
    // what leaves here is cut to what a wire would show
    for (host, port, mtu, cut) in [
        (lab.client(), "eth0", 2000, "on"),
        (lab.router(), "lan0", 2000, "on"),
        (lab.router(), "wan0", MTU, "off"),
        // too long ones are to be seen
        (lab.server(), "eth0", 2000, "off"),
    ] {
        host.tool(&format!("ip link set {port} mtu {mtu}")).unwrap();
        let offload = format!("ethtool -K {port} tx {cut} tso {cut} gso {cut} gro on");
        host.tool(&offload).unwrap();
    }
    // its own fit
    let route = "10.8.0.0/24 dev vx0 src 10.8.0.2 mtu 1450 advmss 1460";
    lab.server()
        .tool(&format!("ip route change {route}"))
        .unwrap();
    let config = "[port.lan0]\npath = \"tc\"\nroutes = false\n";
    let router = Router::start_in(lab.router(), config, freeway(), &["lan0", "wan0"]);
    // the flow has carried what is as long as may be
    let long = [0; MTU - 50 - 28];
    let udp_to: SocketAddr = "10.8.0.2:5000".parse().unwrap();
    let sender = udp(lab.client(), "10.8.0.1:40000".parse().unwrap());
    let receiver = udp(lab.server(), udp_to);
    until("long packets are fast", Duration::from_secs(60), || {
        let before = router.stats().fast();
        for _ in 0..20 {
            sender.send_to(&long, udp_to).unwrap();
            let (_, from) = receiver.recv_from(&mut [0; 2000]).unwrap();
            receiver.send_to(&long, from).unwrap();
            sender.recv(&mut [0; 2000]).unwrap();
        }
        (router.stats().fast() - before > 30).then_some(())
    });
    let to = "10.8.0.2:5001".parse().unwrap();
    let listener = listen(lab.server(), to);
    let mut tcp = pair(
        (lab.client(), "10.8.0.1:40001".parse().unwrap()),
        to,
        &listener,
    );
    let forwarded = || {
        let counters = lab.router().tool("cat /proc/net/snmp").unwrap();
        let mut lines = counters.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut all = names.split(' ').zip(values.split(' '));
        let created = all.find(|(name, _)| *name == "FragCreates").unwrap();
        created.1.parse::<u64>().unwrap()
    };
    let merged = || router.stats().reason("protocol");
    let (cut_before, fast_before, merged_before) = (forwarded(), router.stats().fast(), merged());
    let mut capture = Capture::open(lab.server_port()).unwrap();
    exchange_blocks(&mut tcp, 4);
    let too_long = capture.drain(Duration::from_millis(200), |frame| frame.len() > 14 + MTU);
    let (cut, fast) = (
        forwarded() - cut_before,
        router.stats().fast() - fast_before,
    );
    println!("{cut} fragments, {fast} fast frames");
    assert_eq!(too_long.unwrap().len(), 0, "longer than the port's MTU");
    assert!(merged() > merged_before, "they were not merged");
    assert!(cut > 1000, "{cut} fragments");
    // its answers, one way
    assert!(fast > 0, "nothing is fast");
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
    through(&lab, "mv0", CLIENT, SERVER);
}

/// What a macvlan took is not a flow of the port below, where other rules and sniffers would count.
#[test]
fn what_a_macvlan_takes_is_not_the_ports() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    let mac = "02:00:00:00:00:51";
    let router = format!("link add mv0 link lan0 address {mac} type macvlan\nlink set mv0 up\n");
    lab.router()
        .tool_with_input("ip -batch -", &router)
        .unwrap();
    let gateway = format!("ip neighbour replace 192.0.2.1 lladdr {mac} nud permanent dev eth0");
    lab.client().tool(&gateway).unwrap();
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    let refused = || {
        let all = router.stats().0["refused"].clone();
        let mut all = all.as_array().unwrap().iter();
        let station = all.find(|refusal| refusal["name"] == "station").unwrap();
        station["count"].as_u64().unwrap()
    };
    // the answers come in at a port of their own
    let flows = until(
        "one direction is refused, and one fast",
        Duration::from_secs(20),
        || {
            send(&ends, address(freeway_testkit::SERVER), 50);
            let flows = router.flows("proto udp");
            (refused() > 0 && !flows.is_empty()).then_some(flows)
        },
    );
    assert!(
        flows.iter().all(|flow| flow["port_in"] == "wan0"),
        "{flows:#?}"
    );
    router.stop();
}

/// As `ip -batch` reads it: an end of a link with its address.
fn addressed(port: &str, host: u8) -> String {
    format!("address add 203.0.113.{host}/24 dev {port}\nlink set {port} up\n")
}

/// Both ends' links as `ip -batch` reads them, each with an address on `port`; false, and says so, where this kernel has no
/// such links.
fn made(lab: &Lab, port: &str, commands: impl Fn(&str) -> String) -> bool {
    for (host, own, address) in [(lab.router(), "wan0", 1), (lab.server(), "eth0", 2)] {
        let text = commands(own) + &addressed(port, address);
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

/// Through links that are made so.
fn through_made(port: &str, commands: impl Fn(&str) -> String) {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    if made(&lab, port, commands) {
        through(&lab, port, CLIENT, SERVER);
    }
}

/// Tags are in the frames, as on a wire, not beside them.
const INLINE: &str = "ethtool -K eth0 txvlan off tx-vlan-stag-hw-insert off";

/// As `ip -batch` reads it.
fn vlan_5(own: &str, protocol: &str) -> String {
    format!("link add link {own} name vl0 type vlan id 5 protocol {protocol}\n")
}

/// Links made so on a wire; nothing, and says so, where this kernel has none.
fn tagged(port: &str, commands: impl Fn(&str) -> String) -> Option<Lab> {
    let lab = lab("routed");
    lab.server().tool(INLINE).unwrap();
    made(&lab, port, commands).then_some(lab)
}

/// Through the first of VLANs one in another: in XDP at the device below, and in tc.
fn through_vlans(lab: &Lab, ports: &[&str]) {
    for path in ["tc", "xdp"] {
        through_on(path, lab, ports, CLIENT, SERVER);
    }
}

#[test]
fn vlan() {
    let Some(_machine) = machine() else { return };
    if let Some(lab) = tagged("vl0", |own| vlan_5(own, "802.1q")) {
        through_vlans(&lab, &["vl0"]);
    }
}

#[test]
fn vlan_in_vlan() {
    let Some(_machine) = machine() else { return };
    let inner = |own: &str| {
        vlan_5(own, "802.1ad")
            + "link set vl0 up\nlink add link vl0 name qi0 mtu 1496 type vlan id 7\n"
    };
    let Some(lab) = tagged("qi0", inner) else {
        return;
    };
    through_vlans(&lab, &["qi0", "vl0"]);
    // longer than a redirected frame may be
    lab.router().tool("ip link set qi0 mtu 1500").unwrap();
    let ports = ["lan0", "wan0", "vl0", "qi0"];
    let router = Router::start_in(lab.router(), &lab.config_toml(""), freeway(), &ports);
    let status = router.status();
    let path = |name: &str| {
        let mut ports = status["ports"].as_array().unwrap().iter();
        ports.find(|port| port["name"] == name).unwrap()["path"].clone()
    };
    let paths = ["wan0", "vl0", "qi0"].map(path);
    assert_eq!(paths, ["xdp", "xdp", "tc"], "{status:#}");
    router.stop();
}

/// What sees its frames below takes it out of XDP, as long as it is there.
#[test]
fn vlan_is_as_fit_as_what_is_below() {
    let Some(_machine) = machine() else { return };
    let Some(lab) = tagged("vl0", |own| vlan_5(own, "802.1q")) else {
        return;
    };
    let ports = ["lan0", "wan0", "vl0"];
    let router = Router::start_in(lab.router(), &lab.config_toml(""), freeway(), &ports);
    let server: SocketAddr = format!("{SERVER}:5000").parse().unwrap();
    let client: SocketAddr = format!("{CLIENT}:40000").parse().unwrap();
    let ends = (udp(lab.client(), client), udp(lab.server(), server));
    let goes = |path: &str| until_path(&router, &ends, server, path);
    goes("xdp");
    let tool = |command: &str| lab.router().tool(command).unwrap();

    tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 100kb latency 50ms");
    goes("tc");
    tool("tc qdisc del dev wan0 root");
    goes("xdp");

    for filter in ["udp port 5000", "vlan 5 and udp port 5000"] {
        let mut command = Command::new("tcpdump");
        command.args(["-i", "wan0", "-n", filter]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut tcpdump = lab.router().spawn(command.stderr(Stdio::null())).unwrap();
        goes("tc");
        tcpdump.kill().unwrap();
        tcpdump.wait().unwrap();
        goes("xdp");
    }

    // the kernel drops what comes in for it, and so does Freeway
    tool("ip link set vl0 down");
    until("its flows leave", Duration::from_secs(5), || {
        router.flows("proto udp").is_empty().then_some(())
    });
    let before = router.stats().fast();
    for n in 0..100u32 {
        ends.1
            .send_to(&n.to_be_bytes(), "203.0.113.1:40000")
            .unwrap();
    }
    let fast = router.stats().fast() - before;
    assert_eq!(fast, 0, "{}", router.stats());
    tool("ip link set vl0 up");
    goes("xdp");

    // what decides by a tag's priority, which no flow is told by, must see each frame
    let hooked = "table netdev below {\n\tchain in {\n\t\ttype filter hook ingress device wan0 priority 0;\n\
                  \t\tvlan pcp 6 drop\n\t}\n}\n";
    lab.router().tool_with_input("nft -f -", hooked).unwrap();
    until("flows from there leave", Duration::from_secs(5), || {
        let mut flows = router.flows("proto udp").into_iter();
        flows.all(|flow| flow["port_in"] != "vl0").then_some(())
    });
    tool("nft delete table netdev below");
    goes("xdp");

    tool("ip link set vl0 type vlan egress-qos-map 0:3");
    goes("tc");
    let status = router.status();
    let reasons = status["ports"].to_string();
    assert!(reasons.contains("egress-qos-map"), "{status:#}");
    router.stop();
}

#[test]
fn bond() {
    through_made("bo0", |own| {
        format!(
            "link add bo0 type bond mode active-backup\nlink set {own} down\n\
             link set {own} master bo0\n"
        )
    });
}

/// Keys and peers of the two ends' WireGuard devices.
fn acquaint(lab: &Lab, devices: [&str; 2]) {
    let ends = [
        (lab.router(), devices[0], "198.51.100.2"),
        (lab.server(), devices[1], "198.51.100.1"),
    ];
    let keys = ends.each_ref().map(|(netns, ..)| {
        let secret = netns.tool("wg genkey").unwrap();
        let public = netns.tool_with_input("wg pubkey", &secret).unwrap();
        (secret, public)
    });
    for (i, (netns, device, peer)) in ends.iter().enumerate() {
        let settings = format!(
            "wg set {device} listen-port 51820 private-key /dev/stdin peer {} \
             allowed-ips 203.0.113.0/24 endpoint {peer}:51820",
            keys[1 - i].1.trim()
        );
        netns.tool_with_input(&settings, &keys[i].0).unwrap();
    }
}

#[test]
fn wireguard() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    if made(&lab, "wg0", |_| "link add wg0 type wireguard\n".into()) {
        acquaint(&lab, ["wg0", "wg0"]);
        through(&lab, "wg0", CLIENT, SERVER);
    }
}

/// WireGuard's program, which makes a tun device; it ends with this value, and the device with it.
struct WireguardGo {
    child: Child,
    socket: String,
}

impl WireguardGo {
    fn start(netns: &Netns, device: &str) -> Self {
        let mut command = Command::new("wireguard-go");
        command.args(["--foreground", device]).stdin(Stdio::null());
        let program = Self {
            child: netns.spawn(&mut command).unwrap(),
            socket: format!("/var/run/wireguard/{device}.sock"),
        };
        // wg removes a socket that does not answer yet, so this asks
        let ask = || {
            let mut stream = UnixStream::connect(&program.socket)?;
            stream.write_all(b"get=1\n\n")?;
            stream.read_exact(&mut [0])
        };
        // a program of somebody else's starts when it can
        let patience = Duration::from_secs(60);
        until("WireGuard's program answers", patience, || ask().ok());
        program
    }
}

impl Drop for WireguardGo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // a killed one leaves it
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[test]
fn wireguard_in_user_space() {
    let Some(_machine) = machine() else { return };
    let lab = lab("routed");
    // their control sockets have the devices' names, in one folder for all namespaces, and wg prefers them to a kernel's
    // device of that name
    let id = std::process::id();
    let [near, far] = ["a", "b"].map(|end| format!("wgu{id}{end}"));
    let devices = [near.as_str(), &far];
    let hosts = [lab.router(), lab.server()];
    let _programs = [0, 1].map(|i| WireguardGo::start(hosts[i], devices[i]));
    for (i, address) in [(0, 1), (1, 2)] {
        let text = addressed(devices[i], address);
        hosts[i].tool_with_input("ip -batch -", &text).unwrap();
    }
    acquaint(&lab, devices);
    through(&lab, devices[0], CLIENT, SERVER);
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
    if lab.router().show_bridged(true) {
        let (ports, config) = (["lan0", "br0"], lab.config_toml(""));
        let kept = |status: &Value| status["ports"].to_string().contains("br_netfilter");
        let router = Router::start_until(lab.router(), &config, freeway(), &ports, kept);
        lab.router().show_bridged(false);
        until("the bridge takes part", Duration::from_secs(5), || {
            (!kept(&router.status())).then_some(())
        });
        router.stop();
    }
    through(&lab, "br0", CLIENT, SERVER);
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
