// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of frames on each node.

use std::collections::BTreeMap;

use crate::placement::Placement;
use crate::pool::Pool;

/// What a MiB of memory has for frames: half of it.
const OCTETS_PER_MIB: u64 = 1 << 19;
/// Octets of a buffer beside the frame: its head and headroom, and what a pool puts around it.
const BESIDE: u64 = 512;

/// A pool on each node that has a port, or a worker.
#[derive(Debug)]
pub struct Pools {
    of_node: BTreeMap<u32, Pool>,
    placement: Placement,
}

impl Pools {
    /// For frames of at most so many octets: the longer, the fewer.
    pub fn new(placement: Placement, room: u16) -> Result<Self, String> {
        let nodes = placement.memory_mib.iter();
        let of_node = nodes.map(|(node, mib)| {
            let pool = Pool::new(frames(*mib, room), room, *node)?;
            Ok((*node, pool))
        });
        Ok(Self {
            of_node: of_node.collect::<Result<_, String>>()?,
            placement,
        })
    }

    fn at(&self, node: u32) -> Result<&Pool, String> {
        let pool = self.of_node.get(&node);
        pool.ok_or_else(|| format!("there is no memory of node {node}"))
    }

    /// What a port's frames come in to, by the port's number.
    pub fn of_port(&self, port: usize) -> Result<&Pool, String> {
        let node = self.placement.node_of_port.get(port);
        self.at(*node.ok_or_else(|| format!("there is no port {port}"))?)
    }

    /// What frames of the kernel's come in to.
    pub fn of_worker(&self) -> Result<&Pool, String> {
        self.at(self.placement.home)
    }

    /// The worker's node.
    #[must_use]
    pub fn home(&self) -> u32 {
        self.placement.home
    }

    /// Of each output whose frames are copied: its number, a mask of the inputs, and where they are copied to.
    pub fn copies(&self) -> Result<Vec<(u32, u64, &Pool)>, String> {
        let mut inputs: BTreeMap<usize, u64> = BTreeMap::new();
        for (from, to) in &self.placement.copies {
            *inputs.entry(*to).or_default() |= 1 << from;
        }
        let all = inputs
            .into_iter()
            .map(|(to, mask)| Ok((to as u32, mask, self.of_port(to)?)));
        all.collect()
    }

    /// Frames that are free, and all that there are.
    #[must_use]
    pub fn level(&self) -> (u32, u32) {
        let levels = self.of_node.values().map(Pool::level);
        levels.fold((0, 0), |sum, level| (sum.0 + level.0, sum.1 + level.1))
    }
}

fn frames(memory_mib: u32, room: u16) -> u32 {
    let frames = u64::from(memory_mib) * OCTETS_PER_MIB / (u64::from(room) + BESIDE);
    u32::try_from(frames).unwrap_or(u32::MAX)
}
