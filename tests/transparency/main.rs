// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same frames through the same router, by the kernel and by Freeway: what leaves is compared byte for byte.
//!
//! ```text
//!                       frames of a case, from its seed
//!                  |                                      |
//!   +--------------v-------------+         +--------------v-------------+
//!   | lan0    the kernel    wan0 |         | lan0     Freeway      wan0 |
//!   |         alone         wan1 |         |                       wan1 |
//!   +--------------|-------------+         +--------------|-------------+
//!             what leaves     ==, at each port and flow     what leaves
//! ```
//!
//! Twins of one router, one of them with a Freeway daemon, get the same configuration and the same frames; GRO is off.
//! Setup, ruleset and frames of a case follow from its seed. By default the cases are always the same ones ([`BLOCKS`]).
//! `FREEWAY_SEED` is the first of others, which count up from it, `FREEWAY_SEED=random` takes any, and so does
//! `FREEWAY_LONG=1`, which runs 520 setups with 1,000,000 frames. `FREEWAY_CASES` is their number, `FREEWAY_FRAMES` that
//! of the frames of each. The daemon stays while setups come and go. VRFs and bonds need modules that this kernel may not
//! have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod case;
mod compare;
mod flow;
mod frame;
mod kinds;
mod record;
mod ruleset;
mod setup;
mod shrink;
mod suite;
mod tally;
mod traffic;

use bench::By;
use suite::{Extent, same};

/// Of the default blocks, those that tc gets, too.
const TC_BLOCKS: usize = 6;
/// And those that go by routes.
const ROUTES_BLOCKS: usize = 3;
const ROUTES_TC_BLOCKS: usize = 3;

#[test]
fn freeway_sends_what_the_kernel_sends() {
    same(By::Path("auto"), Extent::read());
}

/// Setups in which little decides but the destination, by the kernel's routes instead of flows where that can be.
#[test]
fn routes_send_what_the_kernel_sends() {
    let mut extent = Extent::read();
    if !freeway_testkit::long() {
        extent.blocks.truncate(ROUTES_BLOCKS);
    }
    same(By::Routes("auto"), extent);
}

/// The same in tc.
#[test]
fn tc_routes_as_the_kernel_does() {
    let mut extent = Extent::read();
    if !freeway_testkit::long() {
        extent.blocks.truncate(ROUTES_TC_BLOCKS);
    }
    same(By::Routes("tc"), extent);
}

/// The same cases, each flow through tc.
#[test]
fn tc_sends_what_the_kernel_sends() {
    let mut extent = Extent::read();
    if !freeway_testkit::long() {
        extent.blocks.truncate(TC_BLOCKS);
    }
    same(By::Path("tc"), extent);
}

#[test]
fn ports_of_other_kinds_send_what_the_kernel_sends() {
    kinds::same(By::Path("auto"));
}
