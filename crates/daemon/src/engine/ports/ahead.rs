// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where something may be done ahead of the fast path: XDP drops, XDP or tc forward by prefixes.

use freeway_cmm::Fitness;
use freeway_kernel::model::{Framing, Link};

use super::super::Engine;
use super::super::poll::wanted_by;
use super::{Carried, Port, Within};

/// Devices, beside network cards, that packets come in at and leave by as they are.
const PLAIN: [&str; 4] = ["veth", "vlan", "bond", "tun"];

/// Why what comes in at a port is not a path's to take.
fn unfit(port: &Port, path: Fitness, name: &str) -> Option<String> {
    let first = || port.reasons.first().cloned();
    (!path.input).then(|| first().unwrap_or_else(|| format!("it is not fit for {name}")))
}

impl Engine {
    /// Why XDP may not, at a port.
    pub(in crate::engine) fn nothing_ahead(&self, link: &Link, port: &Port) -> Option<String> {
        self.engines(link)
            .or_else(|| self.piece(link, port))
            .or_else(|| port.without_xdp())
            .or_else(|| unfit(port, port.xdp, "XDP"))
            .or_else(|| self.taken(link))
    }

    /// Why XDP may not do so for a VLAN, at the device below; or which that is, and the VLAN's number.
    pub(in crate::engine) fn ahead_of_vlan(
        &self,
        link: &Link,
        port: &Port,
        carried: &Carried,
    ) -> Result<(u32, u16), String> {
        let vlan = carried.plain_vlan();
        let vlan = vlan.ok_or("its frames have more around them than one 802.1Q tag")?;
        let below = self.mirror.links().get(&carried.base);
        let below = below.zip(self.ports.by_index.get(&carried.base));
        let (below, port_below) = below.ok_or("the device below is no port")?;
        let waits = || {
            let words = "its tc programs are about to be replaced";
            port_below.sees_all_in_tc().then(|| words.into())
        };
        let of_below = self
            .engines(below)
            .or_else(|| self.piece(below, port_below))
            .or_else(|| port_below.without_xdp())
            .or_else(waits)
            .or_else(|| self.taken(below))
            .map(|why| format!("{}: {why}", below.name));
        let nothing = of_below
            .or_else(|| unfit(port, port.xdp, "XDP"))
            .or_else(|| self.piece(link, port))
            .or_else(|| self.taken(link));
        nothing.map_or(Ok((below.ifindex, vlan)), Err)
    }

    /// Why tc may not, at a port without XDP.
    pub(in crate::engine) fn nothing_ahead_in_tc(
        &self,
        link: &Link,
        port: &Port,
    ) -> Option<String> {
        self.piece(link, port)
            .or_else(|| self.unrouted_in_tc(link))
            .or_else(|| unfit(port, port.tc, "tc"))
            .or_else(|| self.taken(link))
    }

    /// Why packets do not leave by prefixes in tc at such a link, coming in or leaving.
    pub(in crate::engine) fn unrouted_in_tc(&self, link: &Link) -> Option<String> {
        if link.framing() != Framing::Ethernet {
            return Some("its packets have no Ethernet header".into());
        }
        if self.bridge_below(link).is_some() {
            return Some("it is a bridge, or above one".into());
        }
        let kind = link.kind.as_deref();
        match kind.is_none_or(|kind| PLAIN.contains(&kind)) {
            true => None,
            false => Some(format!(
                "it is a device of type {}",
                kind.unwrap_or_default()
            )),
        }
    }

    /// XDP does not see its frames.
    fn engines(&self, link: &Link) -> Option<String> {
        let served = self.cores.serve(link.ifindex);
        served.then(|| "the engine on cores of its own has its frames".into())
    }

    /// It is no port by itself.
    pub(in crate::engine) fn piece(&self, link: &Link, port: &Port) -> Option<String> {
        if port.within != Within::Nothing || link.master.is_some() {
            return Some("it is a part of a bridge, bond or VRF".into());
        }
        if port.stations_of.is_some() {
            return Some("it is a bridge, or above one".into());
        }
        None
    }

    /// Somebody takes frames of it ahead of the kernel's IP layer, or may.
    pub(in crate::engine) fn taken(&self, link: &Link) -> Option<String> {
        // their frames leave ahead of rules and routes, and may be another network namespace's
        let above = |upper: &&Link| {
            upper.link == Some(link.ifindex)
                && upper.link_netnsid.is_none()
                && !upper.is_vlan()
                // a veth names its peer
                && upper.kind.as_deref() != Some("veth")
        };
        if let Some(upper) = self.mirror.links().values().find(above) {
            return Some(format!("{} takes some of its frames", upper.name));
        }
        // and one that is in another namespace only the kernel's own structures show
        if let Some(Ok(function)) = self.polled.takers.get(&link.ifindex) {
            return Some(format!("{function}() takes some of its frames"));
        }
        let socket = self
            .polled
            .taker(|port| port.is_none_or(|port| port == link.ifindex));
        socket.map(wanted_by)
    }
}
