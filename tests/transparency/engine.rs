// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases of `main.rs` with the engine in the place of Freeway's programs: its ports are `net_af_xdp` on the veths,
//! and what the routers' ports were is TAPs (`net_af_packet` puts IPv4 fragments together, docs/engine.md). Setups, frames and
//! comparison are the same ones. Of the default cases it has some, with more frames each.
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
use suite::{Extent, SHARE_MIN, same};

/// Of the default blocks.
const BLOCKS: usize = 6;
/// Two that found something: a RST that conntrack would believe, which tc sends of the engine's flows.
const FOUND: [u64; 2] = [0xd_88f2_298c_7084, 0xd_88f2_298c_70d8];
const FRAMES: usize = 4400;
/// And those that go by routes.
const ROUTES_BLOCKS: usize = 3;

#[test]
fn engine_sends_what_the_kernel_sends() {
    let mut extent = Extent::read();
    let asked = ["FREEWAY_CASES", "FREEWAY_SEED", "FREEWAY_FRAMES"];
    let default = asked.iter().all(|name| std::env::var_os(name).is_none());
    let long = freeway_testkit::long();
    if default && !long {
        extent.blocks.truncate(BLOCKS);
        extent.blocks.push(FOUND.into());
        extent.frames = FRAMES;
    }
    let Some(tally) = same(By::Engine, extent) else {
        return;
    };
    if default {
        let wanted = if long { 1_000_000 } else { 100_000 };
        assert!(tally.frames >= wanted, "{} frames", tally.frames);
        let share = tally.learnable_share();
        assert!(share >= SHARE_MIN, "the engine had {:.1} %", 100.0 * share);
    }
}

/// Setups in which little decides but the destination, by the kernel's routes.
#[test]
fn engine_routes_as_the_kernel_does() {
    let mut extent = Extent::read();
    if !freeway_testkit::long() {
        extent.blocks.truncate(ROUTES_BLOCKS);
    }
    same(By::EngineRoutes, extent);
}

#[test]
fn ports_of_other_kinds_send_what_the_kernel_sends() {
    kinds::same(By::Engine);
}
