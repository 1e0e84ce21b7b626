// SPDX-License-Identifier: MIT OR Apache-2.0
//! A way beside the router, with a bare program in its place: measured while the router's own ports are in use.

use crate::error::LabError;
use crate::frame::FlowSpec;
use crate::generator::Generator;
use crate::lab::{Lab, Port, wait_for_carrier, wire_port};
use crate::netns::Netns;
use crate::reference::{Reference, ReferenceGuard};

/// A pair of ports like the sender's and the router's input, both in the sender's namespace, and a generator that sends
/// through it. Dropping it removes all of it.
#[derive(Debug)]
pub(crate) struct Beside {
    // In this order: programs go before their ports.
    pub(crate) generator: Generator,
    pub(crate) guard: ReferenceGuard,
    _pair: Pair,
}

impl Beside {
    /// Where the pair ends is the reference program; what it redirects goes to the router's output.
    pub(crate) fn new(lab: &Lab, flows: &FlowSpec, reference: Reference) -> Result<Self, LabError> {
        let pair = Pair::new(&lab.sender(flows.direction).netns, reference.name())?;
        let [_, output] = lab.way(flows.direction);
        Ok(Self {
            generator: Generator::new(&pair.near, flows)?,
            guard: reference.attach_at(&pair.far, output)?,
            _pair: pair,
        })
    }
}

#[derive(Debug)]
struct Pair {
    near: Port,
    far: Port,
}

impl Pair {
    fn new(netns: &Netns, name: &str) -> Result<Self, LabError> {
        let ends = [format!("{name}0"), format!("{name}1")];
        let [near, far] = &ends;
        netns.tool(&format!("ip link add {near} type veth peer name {far}"))?;
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
