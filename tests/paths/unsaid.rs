// SPDX-License-Identifier: MIT OR Apache-2.0
//! Without a word in the configuration there are prefix paths, and what might be hidden keeps ports from them.

use freeway_lab::frame::mac_text;

use super::*;

/// A daemon whose ports have prefix paths of its own accord, by which such frames leave.
fn start(lab: &Lab, frames: &[Vec<u8>]) -> Router {
    ip(lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let config = lab.config_toml("routes = true\n");
    let router = Router::start_in(lab.router(), &config, freeway(), &["lan0", "wan0"]);
    wait(&router, "prefix paths", active);
    confirm(lab, &router, frames);
    router
}

/// Packets of a network behind the client.
fn foreign() -> Vec<Vec<u8>> {
    let dst = Ipv4Addr::new(203, 0, 113, 9);
    (0..100)
        .map(|n| packet(Ipv4Addr::new(10, 9, 9, n as u8), dst, n))
        .collect()
}

/// The kernel refuses foreign ones, while others keep their next hop confirmed.
#[track_caller]
fn refused(lab: &Lab, foreign: &[Vec<u8>]) {
    all_to(lab, foreign, "the kernel refuses them", None);
    for _ in 0..5 {
        let others = strangers(200);
        assert_eq!(left(lab, &others).values().sum::<usize>(), others.len());
        assert_eq!(left(lab, foreign), Left::new());
    }
}

/// Where all of them arrive.
fn station_of(lab: &Lab, frames: &[Vec<u8>]) -> Option<[u8; 6]> {
    stations(&left(lab, frames)).into_keys().next()
}

#[test]
fn who_takes_frames_unseen_keeps_a_port_from_it() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let frames = strangers(200);
    let router = start(&lab, &frames);

    // in another namespace, with the port's own MAC address: no link above the port is seen here
    let elsewhere = lab.server().name();
    let line = format!("link add mv0 link lan0 netns {elsewhere} type macvlan mode passthru");
    ip(&lab, &line);
    wait(&router, "the macvlan is seen", |routes| {
        kept_at(routes, "lan0").contains("macvlan_handle_frame() takes some of its frames")
            && routes["ports"] == serde_json::json!(["wan0"])
    });
    let page = String::from_utf8(router.run(&["routes"]).stdout).unwrap();
    assert!(page.contains("macvlan_handle_frame()"), "{page}");
    // all of it is the macvlan's
    lab.server().tool("ip link set mv0 up").unwrap();
    assert_eq!(left(&lab, &frames), Left::new());
    lab.server().tool("ip link del mv0").unwrap();
    wait(&router, "prefix paths again", active);
    confirm(&lab, &router, &frames);
    router.stop();
}

/// With `rp_filter` 0 the kernel looks sources up all the same, once somebody has added a route of type local.
#[test]
fn sources_that_are_local_by_a_route_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    set_rp_filter(&lab, 0);
    let foreign = foreign();
    let router = start(&lab, &foreign);
    let server = station_of(&lab, &foreign);
    assert!(server.is_some());

    ip(&lab, "route add local 10.9.9.0/24 dev lo");
    wait_for_reason(&router, "ipv4", "no packets from 10.9.9.0/24");
    refused(&lab, &foreign);
    // it stays so while all routes are read again
    assert!(router.run(&["resync"]).status.success());
    refused(&lab, &foreign);

    // of two that differ by their metric one is left
    ip(&lab, "route add local 10.9.9.0/24 dev lo metric 5");
    ip(&lab, "route del local 10.9.9.0/24 dev lo metric 5");
    assert!(router.run(&["resync"]).status.success());
    refused(&lab, &foreign);

    ip(&lab, "route del local 10.9.9.0/24 dev lo");
    all_to(&lab, &foreign, "they are forwarded", server);
    wait(&router, "prefix paths again", active);
    confirm(&lab, &router, &foreign);

    // from now on the kernel looks all sources up, and takes none from a network of its own either
    ip(&lab, "address add 10.9.9.200/24 dev lo");
    wait_for_reason(&router, "ipv4", "no packets from 10.9.9.0/24");
    refused(&lab, &foreign);
    ip(&lab, "address del 10.9.9.200/24 dev lo");
    all_to(&lab, &foreign, "they are forwarded", server);
    wait(&router, "prefix paths again", active);
    router.stop();
}

/// `rp_filter` 2 is 1 at a port without an IPv4 address.
#[test]
fn a_port_without_an_address_is_strict() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    set_rp_filter(&lab, 2);
    // the way back is another one
    ip(&lab, "route add 10.9.9.0/24 via 198.51.100.2");
    let foreign = foreign();
    let router = start(&lab, &foreign);
    let server = station_of(&lab, &foreign);

    let shown = lab.router().tool("ip -o -4 addr show dev lan0").unwrap();
    let address = shown.split_whitespace().nth(3).unwrap().to_owned();
    ip(&lab, &format!("addr del {address} dev lan0"));
    // with it the client's network has gone, and the client
    ip(&lab, "route add 192.0.2.0/24 dev lan0");
    let station = mac_text(MAC_CLIENT);
    let client = format!("neigh replace 192.0.2.2 lladdr {station} nud permanent dev lan0");
    ip(&lab, &client);
    wait(&router, "prefix paths", active);
    let before = routed(&router);
    refused(&lab, &foreign);
    assert!(routed(&router) > before, "others leave by prefixes");

    ip(&lab, &format!("addr add {address} dev lan0"));
    all_to(&lab, &foreign, "they are forwarded", server);
    confirm(&lab, &router, &foreign);
    router.stop();
}

/// Whoever wants flows at a port, to see them, says so; a running daemon takes it.
#[test]
fn a_port_may_be_left_out() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |routes: bool| {
        let last = lab.config_toml("routes = true\n");
        let (lan, wan) = last.split_once("[port.\"wan0\"]").unwrap();
        let wan = wan.replace("routes = true", &format!("routes = {routes}"));
        std::fs::write(file.path(), format!("{lan}[port.\"wan0\"]{wan}")).unwrap();
    };
    let at =
        |ports: &'static [&str]| move |routes: &Value| routes["ports"] == serde_json::json!(ports);
    write(false);
    let router = Router::start_by(lab.router(), file.path(), |status| fast_ports(status) == 2);
    let routes = wait(&router, "one port", at(&["lan0"]));
    assert_eq!(
        kept_at(&routes, "wan0"),
        "port.wan0.routes is false in the configuration"
    );
    write(true);
    router.json(&["reload"]);
    wait(&router, "both ports", at(&["lan0", "wan0"]));
    write(false);
    router.json(&["reload"]);
    wait(&router, "one port again", at(&["lan0"]));
    router.stop();
}
