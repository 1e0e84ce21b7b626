// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoders and analyses on any bytes, for fuzz/.

#[cfg(test)]
mod tests;

use crate::decode as kinds;
use crate::memberships;
use crate::message::messages;
use crate::mirror::dirty::Dirty;
use crate::mirror::state::{State, difference};
use crate::model::Family;
use crate::nft::{LegacyTable, Ruleset};
use crate::reachability::{PacketState, Ways, analyse_state, passage};
use crate::scrub;

/// Runs every decoder over a message's payload.
pub fn decode(payload: &[u8]) {
    let _ = (
        kinds::link::link(payload),
        kinds::link::bridge_port(payload),
    );
    let _ = (kinds::address::addr(payload), kinds::route::route(payload));
    let _ = (kinds::mroute::mroute(payload), kinds::mdb::mdb(payload));
    let _ = (kinds::neigh::neigh(payload), kinds::neigh::fdb(payload));
    let _ = (kinds::rule::rule(payload), kinds::nexthop::nexthop(payload));
    let _ = (
        kinds::nexthop::bucket(payload),
        kinds::netconf::netconf(payload),
    );
    let _ = (kinds::tc::qdisc(payload), kinds::tc::filter(payload));
    let _ = kinds::tc::root_queue(payload);
    let _ = (kinds::xfrm::policy(payload), kinds::xfrm::state(payload));
    let _ = (
        kinds::xfrm::policy_offload(payload),
        kinds::xfrm::state_offload(payload),
    );
    let _ = kinds::connection::connection(payload);
    let _ = (
        crate::netdev::device(payload),
        crate::sockets::packet_socket(payload),
    );
    let _ = crate::hooks::function(payload);
    let text = String::from_utf8_lossy(payload);
    let _ = (memberships::igmp(&text), memberships::igmp6(&text).count());
    let _ = memberships::local_ports(&text).count();
    crate::nft::fuzz(payload);
    let _ = crate::nft::fuzz_legacy(payload);
}

/// Runs every decoder over the payload of each message.
pub fn datagram(bytes: &[u8]) {
    for message in messages(bytes) {
        let _ = message.status();
        decode(message.payload);
    }
}

/// Applies rtnetlink messages to a state, which then does not differ from itself.
pub fn events(bytes: &[u8]) {
    let (mut state, mut dirty, mut out) = (State::default(), Dirty::default(), Vec::new());
    for message in messages(bytes) {
        state.apply(&message, &mut dirty, &mut out);
    }
    assert!(difference(&state, &state.clone()).is_empty());
}

/// Reads nf_tables messages as a ruleset and follows packets through it. Whatever it is, the analysis ends, and is
/// safe only without findings.
pub fn ruleset(bytes: &[u8]) {
    let mut ruleset = Ruleset::default();
    for message in messages(bytes) {
        ruleset.take(message.kind, message.payload);
    }
    follow(&ruleset);
}

/// The same for tables of the legacy iptables: struct ipt_getinfo, then the entries.
pub fn legacy(bytes: &[u8]) {
    let tables = ["ip", "ip6"]
        .into_iter()
        .zip(crate::nft::fuzz_legacy(bytes));
    let legacy = tables.map(|(family, content)| LegacyTable {
        family: family.into(),
        name: "filter".into(),
        rules: None,
        digest: None,
        content,
    });
    follow(&Ruleset {
        legacy: legacy.collect(),
        ..Ruleset::default()
    });
}

fn follow(ruleset: &Ruleset) {
    let found = scrub::find(ruleset, 1, "lo");
    for rule in &found.rules {
        assert!(found.kept.iter().all(|kept| kept.place != rule.place));
    }
    for ip in [Family::Ipv4, Family::Ipv6] {
        let _ = passage(ruleset, ip, 1, "lo", Some("eth0"));
    }
    for state in [
        PacketState::Established,
        PacketState::New,
        PacketState::Untracked,
    ] {
        let analysis = analyse_state(ruleset, state, Ways::Vrf);
        assert_eq!(analysis.safe, analysis.findings.is_empty());
    }
}
