// SPDX-License-Identifier: MIT OR Apache-2.0
//! A multicast router between one source and any number of receivers.
//!
//! ```text
//!        hosts              router              hosts
//!   +-------------+   +---------------+   +-------------+
//!   | s0          |---| lan0     wan0 |---| r0          |
//!   +-------------+   |          wan1 |---| r1          |
//!                     |           ... |---| ...         |
//!                     +---------------+   +-------------+
//! ```
//!
//! Both families are routed, from the first address of a [`Plan`](crate::topology::Plan)'s client to any group. The hosts
//! have no addresses, say nothing and join nothing: who is served is the user's choice.

use std::fmt::Write;
use std::iter::once;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::LabError;
use crate::frame::{FlowSpec, group_mac, mac_text};
use crate::lab::{batch, ports_toml, wait_for_carrier};
use crate::mroute::{MROUTE_PORTS, Mroute};
use crate::netns::Netns;
use crate::port::{Port, wire_port};
use crate::reference::{ReferenceGuard, attach_broadcast};
use crate::space::{Run, Space};
use crate::topology::Family;
use crate::twins::{ROUTER_SYSCTLS, host_mac, router_mac, write_sysctls};

/// Groups that are not of a link alone.
const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 1);

/// A router, its ports and their hosts. Dropping it removes everything.
#[derive(Debug)]
pub struct Fanout {
    input: Port,
    outputs: Vec<Port>,
    source: Port,
    receivers: Vec<Port>,
    // Before the namespaces, which their sockets would keep. None once another program routes.
    mroutes: Vec<Mroute>,
    router: Space,
    _hosts: Space,
}

impl Fanout {
    /// Builds it, with nobody served, each port with a MAC address of its own. Leftovers of killed runs are removed
    /// first.
    pub fn build(receivers: usize) -> Result<Fanout, LabError> {
        Self::build_with(receivers, router_mac)
    }

    /// The same; the receivers' ports have one MAC address, as those of a switch (DSA) have.
    pub fn switch(receivers: usize) -> Result<Fanout, LabError> {
        Self::build_with(receivers, |port| router_mac(port.min(1)))
    }

    fn build_with(
        receivers: usize,
        router_mac: impl Fn(usize) -> [u8; 6],
    ) -> Result<Fanout, LabError> {
        let run = Run::begin()?;
        if receivers >= MROUTE_PORTS {
            let most = MROUTE_PORTS - 1;
            let what = format!("{receivers} receivers: there can be {most}");
            return Err(LabError::Invalid(what));
        }
        let (router, hosts) = (run.space("router")?, run.space("hosts")?);
        write_sysctls(&hosts, &[("net/ipv6/conf/default/disable_ipv6", "1")])?;
        write_sysctls(&router, ROUTER_SYSCTLS)?;
        let names = once(["lan0".to_owned(), "s0".to_owned()])
            .chain((0..receivers).map(|i| [format!("wan{i}"), format!("r{i}")]));
        let names: Vec<_> = names.collect();
        batch(&router, &links(&names, &hosts, &router_mac))?;
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (i, [port, host]) in names.iter().enumerate() {
            let mac = router_mac(i);
            near.push(Port {
                mac,
                ..wire_port(&router, port)?
            });
            let mac = host_mac(i);
            far.push(Port {
                mac,
                ..wire_port(&hosts, host)?
            });
        }
        wait_for_carrier(&[&router, &hosts])?;
        batch(&router, &addresses(receivers))?;
        let mroute = |family| {
            let mut mroute = Mroute::open(&router, family)?;
            near.iter()
                .try_for_each(|port| mroute.add_port(port.ifindex))?;
            Ok::<_, LabError>(mroute)
        };
        Ok(Fanout {
            mroutes: vec![mroute(Family::Ipv4)?, mroute(Family::Ipv6)?],
            input: near.remove(0),
            outputs: near,
            source: far.remove(0),
            receivers: far,
            router,
            _hosts: hosts,
        })
    }

    /// The router's namespace.
    pub fn router(&self) -> &Netns {
        &self.router
    }

    /// Gives the port of a receiver another MAC address.
    pub fn set_mac(&mut self, receiver: usize, mac: [u8; 6]) -> Result<(), LabError> {
        let Some(port) = self.outputs.get_mut(receiver) else {
            return Err(LabError::Invalid(format!("receiver {receiver}")));
        };
        let line = format!("ip link set {} address {}", port.name, mac_text(mac));
        self.router.tool(&line)?;
        port.mac = mac;
        Ok(())
    }

    /// The router's port to the source, `lan0`.
    pub fn input(&self) -> &Port {
        &self.input
    }

    /// The router's ports to the receivers, `wan0` and so on.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The source's port.
    pub fn source(&self) -> &Port {
        &self.source
    }

    /// The receivers' ports, in the order of [`Fanout::outputs`].
    pub fn receivers(&self) -> &[Port] {
        &self.receivers
    }

    /// The multicast router of a family.
    pub fn mroute(&self, family: Family) -> &Mroute {
        match family {
            Family::Ipv4 => &self.mroutes[0],
            Family::Ipv6 => &self.mroutes[1],
        }
    }

    /// The same, to give it further ports.
    pub fn mroute_mut(&mut self, family: Family) -> &mut Mroute {
        match family {
            Family::Ipv4 => &mut self.mroutes[0],
            Family::Ipv6 => &mut self.mroutes[1],
        }
    }

    /// Leaves multicast routing to another program, for the kernel has room for one. [`Fanout::mroute`] and
    /// [`Fanout::serve`] are not for use any more.
    pub fn leave_routing(&mut self) {
        self.mroutes.clear();
    }

    /// A flow from the source to a group of this family.
    pub fn flow(&self, family: Family, frame_bytes: u32) -> FlowSpec {
        let group = match family {
            Family::Ipv4 => GROUP4.into(),
            Family::Ipv6 => GROUP6.into(),
        };
        FlowSpec {
            frame_bytes,
            mac_source: self.source.mac,
            mac_destination: group_mac(group),
            near: family.plan().client,
            far: group,
            ..FlowSpec::default()
        }
    }

    /// The same as a receiver gets it.
    pub fn copy(&self, flow: &FlowSpec, receiver: usize) -> FlowSpec {
        FlowSpec {
            mac_source: self.outputs[receiver].mac,
            ttl: flow.ttl - 1,
            ..*flow
        }
    }

    /// From now on these receivers are the group's, and no other.
    pub fn serve(&self, flow: &FlowSpec, receivers: &[usize]) -> Result<(), LabError> {
        let outputs = receivers.iter().map(|i| self.outputs[*i].ifindex);
        let outputs: Vec<u32> = outputs.collect();
        let mroute = self.mroute(flow.family());
        mroute.set(flow.near, flow.far, self.input.ifindex, &outputs)
    }

    /// Puts a bare XDP broadcast in the router's place: every frame of the source reaches these receivers as it is.
    pub fn broadcast(&self, receivers: &[usize]) -> Result<ReferenceGuard, LabError> {
        let outputs: Vec<&Port> = receivers.iter().map(|i| &self.outputs[*i]).collect();
        attach_broadcast(&self.input, &outputs)
    }

    /// The router's interfaces that the Freeway daemon is to serve.
    pub fn interfaces(&self) -> Vec<String> {
        let ports = once(&self.input).chain(&self.outputs);
        ports.map(|port| port.name.clone()).collect()
    }

    /// The daemon's configuration for them, as [`crate::Lab::config_toml`].
    pub fn config_toml(&self, keys: &str) -> String {
        ports_toml(&self.interfaces(), keys)
    }
}

fn links(names: &[[String; 2]], hosts: &Netns, router_mac: impl Fn(usize) -> [u8; 6]) -> String {
    let mut commands = "link set lo up\n".to_owned();
    for (i, [port, host]) in names.iter().enumerate() {
        let (mac, host_mac) = (mac_text(router_mac(i)), mac_text(host_mac(i)));
        let _ = writeln!(
            commands,
            "link add {port} address {mac} type veth peer name {host} address {host_mac} netns {}",
            hosts.name()
        );
    }
    commands
}

/// Of each receiver's network the first; there are 32.
fn addresses(receivers: usize) -> String {
    let mut commands = String::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let plan = family.plan();
        let _ = writeln!(
            commands,
            "address add {}/{} dev lan0",
            plan.lan, plan.prefix_len
        );
    }
    for i in 0..receivers {
        let _ = writeln!(
            commands,
            "address add 198.51.100.{}/29 dev wan{i}\naddress add 2001:db8:2:{i:x}::1/64 dev wan{i}",
            8 * i + 1
        );
    }
    commands
}
