// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways beside the router, with a bare program in its place: measured while the router's own ports are in use.

use crate::error::LabError;
use crate::frame::FlowSpec;
use crate::generator::Generator;
use crate::lab::{Lab, queue_words, wait_for_carrier};
use crate::netns::Netns;
use crate::port::{Port, wire_port};
use crate::reference::{Reference, ReferenceGuard};
use crate::stream::Way;

/// For each direction a pair of ports like the sender's and the router's input, both in the sender's namespace, and a
/// generator that sends through them. Dropping it removes all of it.
#[derive(Debug)]
pub(crate) struct Beside {
    // In this order: programs go before their ports.
    pub(crate) generator: Generator,
    guards: Vec<ReferenceGuard>,
    _pairs: Vec<Pair>,
}

impl Beside {
    /// Where a pair ends is the reference program; what it redirects goes to the router's output.
    pub(crate) fn new(
        lab: &Lab,
        flows: &[FlowSpec],
        reference: Reference,
    ) -> Result<Self, LabError> {
        let pairs = flows.iter().map(|flows| {
            let netns = &lab.sender(flows.direction).netns;
            Pair::new(netns, reference.name(), lab.options().mtu, 1)
        });
        let pairs: Vec<Pair> = pairs.collect::<Result<_, _>>()?;
        let each = || flows.iter().zip(&pairs);
        let ways = each().map(|(flows, pair)| Way {
            port: &pair.near,
            flows: *flows,
        });
        let ways: Vec<Way<'_>> = ways.collect();
        let guards = each().map(|(flows, pair)| {
            let [_, output] = lab.way(flows.direction);
            reference.attach_at(&pair.far, output)
        });
        Ok(Self {
            generator: Generator::by_turns(&ways)?,
            guards: guards.collect::<Result<_, _>>()?,
            _pairs: pairs,
        })
    }

    /// As [`ReferenceGuard::counted`].
    pub(crate) fn counted(&self) -> Result<u64, LabError> {
        self.guards.iter().map(ReferenceGuard::counted).sum()
    }
}

/// Two ports that are joined, in one namespace.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) near: Port,
    pub(crate) far: Port,
}

impl Pair {
    /// With as many receive and transmit queues.
    pub(crate) fn new(netns: &Netns, name: &str, mtu: u32, queues: u32) -> Result<Self, LabError> {
        let ends = [format!("{name}0"), format!("{name}1")];
        let [near, far] = &ends;
        let shape = format!("mtu {mtu}{}", queue_words(queues));
        let line = format!("ip link add {near} {shape} type veth peer name {far} {shape}");
        netns.tool(&line)?;
        let pair = Self {
            near: wire_port(netns, near)?,
            far: wire_port(netns, far)?,
        };
        wait_for_carrier(&[netns])?;
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let Port { netns, name, .. } = &self.near;
        // Where this fails the namespace is gone, and the ports with it.
        let _ = netns.tool(&format!("ip link delete {name}"));
    }
}
