// SPDX-License-Identifier: MIT OR Apache-2.0
//! What decides on packets at other ports, too, and of whose effect there the kernel tells nothing.

use std::collections::BTreeMap;

use freeway_kernel::model::{Event, Link};

/// Of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    /// Rules of all kinds go by it.
    name: String,
    /// Likewise (`iifgroup`, `suppress_ifgroup`).
    group: u32,
    /// Multipath routes go by it, and routes in place of others (`fib_sync_up()`, `fib_rebalance()`, `rt6_multipath_rebalance()`);
    /// none lead to what is part of a bridge or bond.
    carries: Option<[bool; 3]>,
}

impl Standing {
    fn of(link: &Link) -> Self {
        let part = link.master.is_some() && link.vrf().is_none();
        Self {
            name: link.name.clone(),
            group: link.group,
            carries: (!part).then_some([link.up, link.running, link.carrier]),
        }
    }

    fn is_up(&self) -> bool {
        self.carries.is_some_and(|[up, ..]| up)
    }
}

/// As they were last.
#[derive(Debug, Default)]
pub(super) struct Standings(BTreeMap<u32, Standing>);

impl Standings {
    /// Takes note of a link as it is.
    pub fn note(&mut self, link: &Link) {
        self.0.insert(link.ifindex, Standing::of(link));
    }

    /// Whether flows at any port may go another way from an event on, or be dropped.
    pub fn heard(&mut self, event: &Event) -> bool {
        match event {
            Event::LinkChanged(link) => {
                let now = Standing::of(link);
                let before = self.0.insert(link.ifindex, now.clone());
                before.map_or(now.is_up(), |before| before != now)
            }
            Event::LinkGone { ifindex } => {
                let before = self.0.remove(ifindex);
                before.is_some_and(|before| before.is_up())
            }
            // routes go with the address that is their source, and with the last one of a device
            Event::AddrGone(address) => address.local.is_ipv4(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use freeway_kernel::model::PortDetail;

    use super::*;

    fn link(change: impl Fn(&mut Link)) -> Event {
        let mut link = Link {
            ifindex: 3,
            name: "wan1".into(),
            up: true,
            ..Link::default()
        };
        change(&mut link);
        Event::LinkChanged(link)
    }

    #[test]
    fn what_others_go_by_is_told() {
        let mut all = Standings::default();
        assert!(all.heard(&link(|_| {})));
        assert!(!all.heard(&link(|_| {})));
        assert!(!all.heard(&link(|link| link.mtu = 1400)));
        let changes: [fn(&mut Link); 5] = [
            |link| link.up = false,
            |link| link.running = true,
            |link| link.carrier = true,
            |link| link.name = "wan9".into(),
            |link| link.group = 7,
        ];
        for change in changes {
            assert!(all.heard(&link(change)));
            assert!(all.heard(&link(|_| {})), "and back");
        }
        assert!(all.heard(&Event::LinkGone { ifindex: 3 }));
        assert!(!all.heard(&Event::LinkGone { ifindex: 3 }));
    }

    #[test]
    fn no_route_leads_to_a_part() {
        let mut all = Standings::default();
        let part = |up: bool, group: u32| {
            link(|link| {
                link.master = Some(9);
                link.up = up;
                link.group = group;
            })
        };
        assert!(!all.heard(&part(true, 0)));
        assert!(!all.heard(&part(false, 0)));
        assert!(all.heard(&part(false, 7)));
        let of_vrf = |up: bool| {
            link(|link| {
                link.master = Some(9);
                link.port = PortDetail::Vrf;
                link.up = up;
                link.group = 7;
            })
        };
        assert!(all.heard(&of_vrf(true)));
        assert!(all.heard(&of_vrf(false)));
    }
}
