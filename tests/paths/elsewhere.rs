// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens at one link may move flows at all others, of which the kernel tells nothing.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use freeway_testkit::*;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn flows_wait_when_routes_and_rules_may_go_by_another_link() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let tool = |line: &str| drop(lab.router().tool(line).unwrap());
    tool("ip link add leg type veth peer name far");
    tool("ip link set far up");
    let router = Router::start(&lab);
    let ends = udp_ends(&lab);
    let count = |filter: &str| router.flows(filter).len();
    let fast = |what: &str| {
        until(&format!("fast flows, {what}"), PATIENCE, || {
            path::send(&ends, address(SERVER), 20);
            (count("state fast") == 2 && count("state unconfirmed") == 0).then_some(())
        });
    };
    fast("at first");
    // its next packet is the kernel's; nothing is sent meanwhile, so none is confirmed by chance
    for change in [
        "ip link set leg up",
        "ip link set far down",
        "ip link set far up",
        "ip link set leg group 7",
        "ip link set leg down",
        "ip link set leg name other",
        "ip addr add 203.0.113.1/24 dev other",
        "ip addr del 203.0.113.1/24 dev other",
    ] {
        tool(change);
        // an address that comes decides nothing at other ports
        if change.contains("addr add") {
            continue;
        }
        until(&format!("flows wait after `{change}`"), PATIENCE, || {
            (count("state unconfirmed") == 2).then_some(())
        });
        fast(change);
    }
    router.stop();
}
