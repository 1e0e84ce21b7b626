// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bonds: XDP takes their frames at their parts, and leaves it to the kernel's `bond_xdp_xmit()` by which one they leave.

use freeway_cmm::{Fitness, Framing};
use freeway_datapath::DatapathError;
use freeway_kernel::model::{Link, PortDetail};
use freeway_kernel::probe::sends_through_bonds;

use super::Engine;
use super::configured::{forwards, wants_elsewhere, without_xdp};
use super::membership::{is_part, takes};
use super::poll::wanted_by;
use super::ports::Port;
use super::ports::attach::attach_xdp;
use crate::kinds;

impl Engine {
    /// What keeps XDP from a part until the administrator does something about it: it has no program then.
    fn never_at_part(&self, link: &Link, bond: &Link) -> Option<String> {
        let elsewhere = |of: &Link| wants_elsewhere(of, &self.config);
        let configured = elsewhere(link).or_else(|| elsewhere(bond));
        if let Some(reason) = configured.or_else(|| without_xdp(link, &self.config)) {
            return Some(reason);
        }
        if let Err(reason) = kinds::bonded(bond) {
            return Some(reason.into());
        }
        if !sends_through_bonds() {
            return Some("bonds are XDP's from Linux 6.3 on".into());
        }
        if !bond.xdp.is_empty() {
            return Some(format!("{} has a foreign XDP program", bond.name));
        }
        if !self.concerns(bond) {
            return Some(format!("{} does not take part", bond.name));
        }
        if bond.master.is_some() && bond.vrf().is_none() {
            return Some(format!("{} is a part of another device", bond.name));
        }
        let explicit = self.config.daemon.interfaces.contains(&bond.name);
        (!explicit && !forwards(bond, &self.mirror))
            .then(|| format!("{} does not forward", bond.name))
    }

    /// Judges a part for what its bond could do in XDP.
    pub(super) fn judge_part(&mut self, link: &Link, port: &mut Port) {
        port.reasons
            .push("a part of a bond, which takes part instead".into());
        let bond = link
            .master
            .and_then(|index| self.mirror.links().get(&index));
        let never = match bond {
            Some(bond) => self.never_at_part(link, bond),
            None => Some("its bond is not there".into()),
        };
        if let Some(reason) = never {
            port.reasons.push(reason);
            self.leave(link.ifindex, port);
            return;
        }
        if port.enters.is_some() && port.enters != link.master {
            self.close(link.ifindex, port);
        }
        if !port.forget_lost(link) {
            self.leave(link.ifindex, port);
            return;
        }
        if !port.has_xdp() && self.ports.put_off(link.ifindex) {
            port.reasons
                .push("it is new, and its program is about to be attached".into());
            return;
        }
        if let Err(reason) = attach_xdp(&self.datapath, link, port, None, None) {
            port.reasons.push(reason);
            self.leave(link.ifindex, port);
            return;
        }
        let obstacles = self.obstacles(link);
        let mut kept: Vec<String> = obstacles.all.into_iter().chain(obstacles.xdp).collect();
        let chain = self.ruleset.device_chain(&link.name);
        kept.extend(chain.map(|chain| format!("{chain} must see its frames")));
        let mut above = self.mirror.links().values();
        let vlan = above.find(|upper| {
            upper.is_vlan() && upper.link == Some(link.ifindex) && upper.link_netnsid.is_none()
        });
        // vlan_do_receive() comes ahead of the bond
        kept.extend(vlan.map(|vlan| format!("{} takes frames ahead of the bond", vlan.name)));
        if let PortDetail::Bond { queue: 1.., .. } = link.port {
            kept.push("it has a transmit queue of its own (queue_id)".into());
        }
        let sniffer = self.polled.taker(|port| port == Some(link.ifindex));
        kept.extend(sniffer.map(wanted_by));
        let input = kept.is_empty();
        port.reasons.extend(kept);
        let output = self.judge_xdp_output(link, port, true);
        port.part = Some(Fitness { input, output });
    }

    /// How XDP can serve a bond at its parts, which it then does; or why it cannot.
    pub(super) fn by_parts(
        &mut self,
        bond: &Link,
        port: &mut Port,
        slot: u32,
    ) -> Result<Fitness, String> {
        let links = self.mirror.links().values();
        let parts = links.filter(|link| link.master == Some(bond.ifindex) && is_part(link));
        let parts: Vec<(u32, bool)> = parts
            .map(|link| (link.ifindex, takes(bond, link)))
            .collect();
        let fit = self.parts_fit(bond, parts.iter().map(|(part, _)| *part));
        for (ifindex, takes) in parts.iter().copied() {
            let Some(mut part) = self.ports.by_index.remove(&ifindex) else {
                continue;
            };
            let opened = match fit.is_ok() && takes {
                true => self.open(ifindex, &mut part, bond.ifindex),
                false => {
                    self.close(ifindex, &mut part);
                    Ok(())
                }
            };
            self.ports.by_index.insert(ifindex, part);
            opened.map_err(|error| error.to_string())?;
        }
        let fit = fit?;
        let by_parts = Some((bond.carrier, parts));
        if port.by_parts != by_parts {
            // frames that a bond without parts loses say nothing of those that it has now
            self.datapath
                .set_port(slot, bond.ifindex)
                .map_err(|error| error.to_string())?;
            port.by_parts = by_parts;
        }
        Ok(fit)
    }

    /// Bonds that XDP serves at parts of which some, now, is not theirs, or is none of XDP's: drivers may lose what is
    /// sent by a part whose program goes or comes.
    pub(super) fn bonds_that_change(&self) -> Vec<u32> {
        let links = self.mirror.links();
        let changes = |ifindex: u32| {
            let Some(bond) = links.get(&ifindex) else {
                return true;
            };
            let stays = |part: &Link| {
                let port = self.ports.by_index.get(&part.ifindex);
                port.is_some_and(|port| port.part.is_some())
                    && self.never_at_part(part, bond).is_none()
            };
            let is_its = |link: &&Link| link.master == Some(ifindex) && is_part(link);
            let left = |(part, port): (&u32, &Port)| {
                port.enters == Some(ifindex) && !links.get(part).is_some_and(|link| is_its(&link))
            };
            !links.values().filter(is_its).all(stays) || self.ports.by_index.iter().any(left)
        };
        let ports = self.ports.by_index.iter();
        let bonds = ports.filter(|(ifindex, port)| port.by_parts.is_some() && changes(**ifindex));
        bonds.map(|(ifindex, _)| *ifindex).collect()
    }

    /// True of a part at which XDP serves the bond, once the kernel lets it.
    pub(super) fn serves_bond(&self, link: &Link, port: &Port) -> bool {
        let bond = link.master.and_then(|bond| self.ports.by_index.get(&bond));
        port.part.is_some() && bond.is_some_and(|bond| bond.by_parts.is_some())
    }

    /// What all parts together are fit for.
    fn parts_fit(&self, bond: &Link, parts: impl Iterator<Item = u32>) -> Result<Fitness, String> {
        kinds::bonded(bond)?;
        let mut fit = None;
        for ifindex in parts {
            let part = self.ports.by_index.get(&ifindex);
            let at = part.and_then(|port| port.part).filter(|at| at.input);
            let at = at.ok_or_else(|| {
                let name = self.port_name(ifindex);
                format!("XDP cannot serve its part {name}: tc forwards")
            })?;
            let so_far: Fitness = fit.unwrap_or(Fitness::FULL);
            fit = Some(Fitness {
                input: true,
                output: so_far.output && at.output,
            });
        }
        fit.ok_or_else(|| "it has no parts".into())
    }

    /// What comes in at a part is the bond's.
    fn open(&self, ifindex: u32, part: &mut Port, bond: u32) -> Result<(), DatapathError> {
        if part.enters == Some(bond) {
            return Ok(());
        }
        let framing = Framing::default();
        self.datapath
            .set_framing(&framing.record(ifindex), &framing.framed(bond))?;
        part.enters = Some(bond);
        Ok(())
    }

    /// It is the kernel's.
    pub(super) fn close(&self, ifindex: u32, part: &mut Port) {
        if part.enters.take().is_none() {
            return;
        }
        let cleared = self
            .datapath
            .clear_framing(&Framing::default().record(ifindex));
        if let Err(error) = cleared {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bond_takes_what_its_active_parts_receive() {
        let link = |port| Link {
            up: true,
            carrier: true,
            mac: Some(Default::default()),
            port,
            ..Link::default()
        };
        let bond = link(PortDetail::None);
        let part = |state| {
            link(PortDetail::Bond {
                state,
                mii_status: 0,
                queue: 0,
            })
        };
        assert!(takes(&bond, &part(0)));
        assert!(!takes(&bond, &part(1)), "inactive");
        let other = [
            Link {
                up: false,
                ..part(0)
            },
            Link {
                carrier: false,
                ..part(0)
            },
            Link {
                mac: None,
                ..part(0)
            },
        ];
        assert!(other.iter().all(|part| !takes(&bond, part)));
        assert!(!takes(&Link { up: false, ..bond }, &part(0)));
    }
}
