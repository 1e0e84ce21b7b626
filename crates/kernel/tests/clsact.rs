// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removing clsact where nothing hangs on it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{attempt, in_namespace, run};
use freeway_kernel::clsact::remove_unused;

#[test]
fn clsact_goes_only_without_filters() {
    in_namespace(|| {
        run("ip link add v0 type veth peer name v1");
        let index = nix::net::if_::if_nametoindex("v0").unwrap();
        assert!(remove_unused(index).is_err(), "there is none");
        run("tc qdisc add dev v0 clsact");
        for side in ["ingress", "egress"] {
            let kinds = ["matchall", "basic", "u32 match u32 0 0"];
            let added = kinds.iter().find(|kind| {
                attempt(&format!(
                    "tc filter add dev v0 {side} protocol ip prio 7 {kind}"
                ))
                .0
            });
            if added.is_none() {
                eprintln!("no classifier in this kernel");
                continue;
            }
            assert!(!remove_unused(index).unwrap(), "a filter hangs at {side}");
            assert!(run("tc qdisc show dev v0").contains("clsact"));
            run(&format!("tc filter del dev v0 {side}"));
        }
        assert!(remove_unused(index).unwrap());
        assert!(!run("tc qdisc show dev v0").contains("clsact"));
    });
}
