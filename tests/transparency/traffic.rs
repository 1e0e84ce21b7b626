// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random frames of a case's flows; most are what flows of this kind look like.

use crate::flow::{ESP, Flow, GRE, TCP};
use crate::frame::{Plan, Sum};
use crate::ruleset::Rule;
use crate::setup::Setup;
use freeway_testkit::random::Random;

/// What a case sends, in its order. The opening of the connections is not in it.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The longest frames of each flow, so that the others are not longer than what was seen.
    pub first: Vec<Plan>,
    pub rest: Vec<Plan>,
    /// Ordinary frames at the end, which all take one path.
    pub last: Vec<Plan>,
}

impl Traffic {
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.len() + self.last.len()
    }

    pub fn parts(&self) -> [&Vec<Plan>; 3] {
        [&self.first, &self.rest, &self.last]
    }

    /// Without the frames that `keep` refuses.
    pub fn filter(&self, keep: impl Fn(&Plan) -> bool) -> Self {
        let part = |plans: &Vec<Plan>| plans.iter().filter(|plan| keep(plan)).cloned().collect();
        let [first, rest, last] = self.parts().map(part);
        Self { first, rest, last }
    }
}

pub fn random(setup: &Setup, flows: &[Flow], frames: usize, rng: &mut Random) -> Traffic {
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    let base = |index: usize, back: bool, number: u32| {
        let flow = &flows[index];
        let i = usize::from(back);
        Plan {
            ttl: flow.ttl[i],
            tos: flow.dscp[i] << 2,
            label: flow.label[i],
            ..Plan::plain(index, back, number, flow.proto, flow.v6())
        }
    };
    let directions: Vec<(usize, bool)> = (0..flows.len())
        .flat_map(|index| [(index, false), (index, true)])
        .filter(|(index, back)| !back || flows[*index].answered)
        .collect();
    let mut first = Vec::new();
    for _ in 0..3 {
        for (index, back) in &directions {
            let mut plan = base(*index, *back, next());
            plan.payload = plan.payload_for(setup.mtu.into());
            first.push(plan);
        }
    }
    let mut last = Vec::new();
    for _ in 0..4 {
        for (index, back) in &directions {
            if !flows[*index].odd && !flows[*index].wanders {
                last.push(base(*index, *back, next()));
            }
        }
    }
    let mut rest = Vec::new();
    while first.len() + rest.len() + last.len() < frames {
        let (index, back) = rng.of(&directions);
        let mut plan = base(index, back, next());
        vary(&mut plan, &flows[index], setup, rng);
        rest.push(plan);
    }
    Traffic { first, rest, last }
}

fn vary(p: &mut Plan, flow: &Flow, setup: &Setup, rng: &mut Random) {
    if flow.wanders {
        p.ttl = rng.of(&[p.ttl, 64, 63]);
        p.tos = rng.of(&[p.tos, 0, 0x20]);
        p.label = rng.of(&[p.label, 1, 0xf_ffff]);
    }
    p.tos |= rng.below(4) as u8;
    p.id = rng.draw() as u16;
    p.flags = rng.of(&[0x4000, 0x4000, 0, 0x8000, 0xc000]);
    p.seq = 1 + rng.below(20_000) as u32;
    p.tcp_options = rng.permille(200);
    p.tcp_flags = rng.of(&[0x10, 0x10, 0x18, 0x50, 0x90, 0xd8, 0x30]);
    if rng.permille(20) {
        p.reserved = rng.of(&[1, 2, 4, 14]);
    }
    if rng.permille(100) {
        p.pad = rng.below(100);
    }
    p.bare = rng.permille(60);
    if rng.permille(120) {
        p.l4_sum = rng.of(&[Sum::None, Sum::InZero, Sum::InOnes, Sum::OutZero]);
    }
    if rng.permille(80) {
        p.ip_sum = rng.of(&[Sum::InZero, Sum::InOnes, Sum::OutZero]);
    }
    // What is not the fast path's, or has to fail its guard.
    if rng.permille(150) {
        strange(p, flow, rng);
    }
    if setup.ends_by_label() {
        p.label = flow.label[usize::from(p.back)];
        p.extension = None;
    }
    // Such a rule counts what conntrack calls invalid, which the fast path does not see.
    if setup.rules.iter().any(Rule::counts) && p.l4_sum == Sum::Wrong {
        p.l4_sum = Sum::Right;
    }
    if [ESP, GRE].contains(&p.proto) {
        p.l4_sum = Sum::Right;
    }
    size(p, setup, rng);
    if p.l4_sum == Sum::Wrong {
        p.payload = p.payload.max(8);
    }
}

fn size(p: &mut Plan, setup: &Setup, rng: &mut Random) {
    let (mtu, lan) = (p.payload_for(setup.mtu.into()), p.payload_for(1500));
    p.payload = match rng.below(24) {
        0..4 => rng.below(20),
        4..8 => mtu - rng.below(3),
        8..23 => rng.below(mtu + 1),
        // Longer than what may leave, which is the kernel's to fragment or to refuse.
        _ => (mtu + 1 + rng.below(4)).min(lan),
    };
    if rng.permille(4) {
        p.payload = lan + rng.below(5);
    }
}

fn strange(p: &mut Plan, flow: &Flow, rng: &mut Random) {
    match rng.below(17) {
        0 => p.ttl = 1 + rng.below(255) as u8,
        1 => p.tos = rng.draw() as u8,
        2 => p.ttl = rng.of(&[0, 1]),
        3 => p.l4_sum = Sum::Wrong,
        4 => p.ip_sum = Sum::Wrong,
        5 => {
            p.ip_options = vec![1; 4 * (1 + rng.below(10))];
            p.extension = Some(rng.of(&[0, 60]));
        }
        6 => {
            p.split = true;
            p.flags &= 0x8000;
            p.pad = 0;
        }
        7 => p.tcp_flags = rng.of(&[0x00, 0x08, 0x20, 0x28, 0xc0]),
        8 => p.mac_foreign = true,
        9 => p.mac_roams = true,
        10 => p.doff_bad = true,
        11 => p.udp_len = Some(rng.of(&[-1, -3, -2000, 40])),
        12 => p.total_len_bad = true,
        13 => {
            // Priority tags, which the kernel takes for none, tags of no VLAN, and two.
            p.tags = match rng.below(4) {
                0 => vec![(0x8100, (rng.below(8) as u16) << 13)],
                1 => vec![(0x88a8, 0x0064), (0x8100, 0x0007)],
                2 => vec![(0x8100, 0x0007), (0x8100, 0)],
                _ => vec![(0x8100, 1 + rng.below(4094) as u16)],
            };
        }
        14 => p.label = rng.draw() as u32 & 0xf_ffff,
        _ if flow.odd && flow.proto == TCP => {
            // Of a RST that is not the sender's conntrack keeps another state if liberal (docs/limits.md), which
            // shows when a SYN follows: a flow has the one or the other.
            let not = if flow.src.port() & 2 == 0 { 0x02 } else { 0x14 };
            p.tcp_flags = match rng.of(&[0x02, 0x11, 0x14, 0x29, 0xff, 0x03, 0x06]) {
                flags if flags == not => 0x11,
                flags => flags,
            }
        }
        _ => {}
    }
}
