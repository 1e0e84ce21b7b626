// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths of VLANs: tags come off and on, and each VLAN is a port of its own.

use super::in_tc::TC;
use super::tags::*;
use super::*;

/// As [`add_vlans`] has it; `None`: there are no VLANs.
fn lab_of_vlans() -> Option<Lab> {
    let lab = build("routed");
    add_vlans(&lab).then_some(lab)
}

/// A daemon for them all; `keys` are each port's.
fn start(lab: &Lab, keys: &str) -> Router {
    let of_vlan = |name: &str| format!("[port.\"{name}\"]\n{keys}");
    let vlans = of_vlan("lan0.7") + &of_vlan("wan0.8");
    let config = lab.config_with(keys, ON) + &vlans;
    let router = Router::start_in(lab.router(), &config, freeway(), &PORTS);
    wait_ports(&router, &PORTS);
    router
}

#[test]
fn vlans_in_xdp_leave_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let Some(lab) = lab_of_vlans() else { return };
    let router = start(&lab, "");
    leave_with_their_tags(&lab, &router, "xdp");

    // each is judged by itself
    let nft = |text: &str| {
        let text = format!("flush ruleset\n{text}");
        lab.router().tool_with_input("nft -f -", &text).unwrap();
    };
    let of_vlan = frames(true, true);
    let whole = |what: &str| {
        let there = left(&lab, &of_vlan).values().sum::<usize>();
        assert_eq!(there, of_vlan.len(), "{what}");
    };
    nft("table ip f { chain c {
        type filter hook forward priority 0
        iifname \"lan0.7\" udp dport 9 drop
    }\n}");
    let routes = wait_ports(&router, &["lan0", "wan0", "wan0.8"]);
    let why = kept_at(&routes, "lan0.7");
    assert!(why.contains("chain c of table ip f"), "{why}");
    whole("a rule of the VLAN");
    nft("table netdev f { chain c {
        type filter hook ingress device \"lan0\" priority 0
        udp dport 9 drop
    }\n}");
    let routes = wait_ports(&router, &["wan0", "wan0.8"]);
    let why = kept_at(&routes, "lan0.7");
    assert!(why.contains("looks at its frames at lan0"), "{why}");
    whole("a rule of the device below");
    nft("");
    wait_ports(&router, &PORTS);
    confirm(&lab, &router, &of_vlan);
    whole("no rules");
    // the kernel deletes the routes of what goes down
    ip(&lab, "link set wan0.8 down");
    all_to(&lab, &of_vlan, "no route", None);
    // and a VLAN that goes is nobody's
    ip(&lab, "link del lan0.7");
    wait_ports(&router, &["lan0", "wan0"]);
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let plain = frames(false, true);
    confirm(&lab, &router, &plain);
    assert_eq!(left(&lab, &of_vlan).len(), 0);
    assert_eq!(left(&lab, &plain).values().sum::<usize>(), plain.len());
    router.stop();
}

#[test]
fn vlans_without_xdp_leave_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let Some(lab) = lab_of_vlans() else { return };
    let router = start(&lab, TC);
    leave_with_their_tags(&lab, &router, "tc");
    router.stop();
}
