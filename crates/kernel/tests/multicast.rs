// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multicast forwarding and memberships against a real kernel.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use common::mirror::{assert_in_step, index, quiet, read_until};
use common::routing::*;
use common::{attempt, in_namespace, run};
use freeway_kernel::Memberships;
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::*;
use freeway_testkit::Moment;

/// Makes a link with a peer of the same name and a "p".
fn link(name: &str) {
    run(&format!("ip link add {name} type veth peer name {name}p"));
    run(&format!("ip link set {name} up"));
    run(&format!("ip link set {name}p up"));
}

/// One IP version's forwarding between three interfaces.
struct Bench {
    routing: Routing,
    mirror: Mirror,
    links: [u32; 3],
    src: IpAddr,
    group: IpAddr,
    table: u32,
}

impl Bench {
    /// In the thread's namespace; `None`, having said why, where the kernel cannot.
    fn new(family: Family) -> Option<Bench> {
        quiet();
        let routing = match Routing::open(family) {
            Ok(routing) => routing,
            Err(error) => {
                eprintln!("skipped: no multicast forwarding of {family:?} in this kernel: {error}");
                return None;
            }
        };
        ["d0", "d1", "d2"].into_iter().for_each(link);
        let mirror = Mirror::open().unwrap();
        assert!(mirror.mroutes().is_empty());
        let links = ["d0", "d1", "d2"].map(|name| index(&mirror, name));
        for (number, ifindex) in links.into_iter().enumerate() {
            routing.interface(ADD_VIF, number as u16, ifindex);
        }
        let (src, group, table) = match family {
            Family::Ipv4 => ([192, 0, 2, 9].into(), [239, 1, 2, 3].into(), 253),
            Family::Ipv6 => (
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).into(),
                Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 3).into(),
                254,
            ),
        };
        Some(Bench {
            routing,
            mirror,
            links,
            src,
            group,
            table,
        })
    }

    /// The entry that forwards between the interfaces of these numbers; those of IPv6 have no thresholds but 1.
    fn entry(&self, iif: usize, outs: &[(usize, u8)]) -> Mroute {
        let ttl = |ttl| if self.group.is_ipv4() { ttl } else { 1 };
        Mroute {
            src: self.src,
            group: self.group,
            iif: self.links[iif],
            oifs: outs
                .iter()
                .map(|&(out, threshold)| Oif {
                    ifindex: self.links[out],
                    ttl: ttl(threshold),
                })
                .collect(),
            table: self.table,
        }
    }

    fn forward(&self, iif: u16, outs: &[(usize, u8)]) {
        self.routing.entry(ADD_MFC, self.src, self.group, iif, outs);
    }

    fn expect(&mut self, what: &str, event: Event) {
        read_until(&mut self.mirror, what, |seen| *seen == event);
        let kept = self
            .mirror
            .mroutes()
            .get(&(self.table, self.src, self.group));
        match &event {
            Event::MrouteChanged(mroute) => assert_eq!(kept, Some(mroute), "{what}"),
            _ => assert_eq!(kept, None, "{what}"),
        }
        assert_in_step(&mut self.mirror);
    }
}

fn entries_come_change_and_go(family: Family) {
    in_namespace(move || {
        let Some(mut bench) = Bench::new(family) else {
            return;
        };
        bench.forward(0, &[(1, 1)]);
        let first = bench.entry(0, &[(1, 1)]);
        bench.expect("new", Event::MrouteChanged(first.clone()));
        assert_eq!(Mirror::open().unwrap().mroutes(), bench.mirror.mroutes());
        let in_snapshot = bench.mirror.snapshot();
        assert!(in_snapshot.contains(&Event::MrouteChanged(first)));
        bench.forward(0, &[(1, 1)]);
        let mut events = Vec::new();
        bench.mirror.read(&mut events).unwrap();
        // of links something may be told late
        events.retain(|e| matches!(e, Event::MrouteChanged(_) | Event::MrouteGone(_)));
        assert_eq!(events, [], "nothing changed");
        bench.forward(0, &[(1, 1), (2, 16)]);
        let both = bench.entry(0, &[(1, 1), (2, 16)]);
        bench.expect("another way out", Event::MrouteChanged(both));
        bench.forward(2, &[(1, 1)]);
        let moved = bench.entry(2, &[(1, 1)]);
        bench.expect("another way in", Event::MrouteChanged(moved.clone()));
        bench.routing.entry(DEL_MFC, bench.src, bench.group, 2, &[]);
        bench.expect("deleted", Event::MrouteGone(moved));
    });
}

#[test]
fn entries_of_ipv4() {
    entries_come_change_and_go(Family::Ipv4);
}

#[test]
fn entries_of_ipv6() {
    entries_come_change_and_go(Family::Ipv6);
}

/// Interfaces that go say nothing of the entries that lose them.
fn interfaces_go(family: Family) {
    in_namespace(move || {
        let Some(mut bench) = Bench::new(family) else {
            return;
        };
        bench.forward(0, &[(1, 1), (2, 1)]);
        let whole = bench.entry(0, &[(1, 1), (2, 1)]);
        bench.expect("new", Event::MrouteChanged(whole.clone()));
        bench.routing.interface(DEL_VIF, 2, bench.links[2]);
        let without = bench.entry(0, &[(1, 1)]);
        bench.expect("an interface taken out", Event::MrouteChanged(without));
        bench.routing.interface(ADD_VIF, 2, bench.links[2]);
        bench.expect("and put back", Event::MrouteChanged(whole));
        run("ip link del d1");
        let without = bench.entry(0, &[(2, 1)]);
        bench.expect("a way out deleted", Event::MrouteChanged(without));
        bench.forward(0, &[(2, 8)]);
        bench.routing.interface(DEL_VIF, 2, bench.links[2]);
        bench.expect("both at once", Event::MrouteChanged(bench.entry(0, &[])));
        bench.routing.interface(ADD_VIF, 2, bench.links[2]);
        bench.forward(0, &[(2, 1)]);
        run("ip link del d2");
        let gone = bench.links[2];
        let is_gone = |e: &Event| matches!(e, Event::LinkGone { ifindex } if *ifindex == gone);
        read_until(&mut bench.mirror, "a link", is_gone);
        assert_in_step(&mut bench.mirror);
        run("ip link del d0");
        let nowhere = Mroute {
            iif: 0,
            ..bench.entry(0, &[])
        };
        bench.expect("the way in deleted", Event::MrouteChanged(nowhere));
    });
}

#[test]
fn interfaces_of_ipv4() {
    interfaces_go(Family::Ipv4);
}

#[test]
fn interfaces_of_ipv6() {
    interfaces_go(Family::Ipv6);
}

fn a_daemon_ends(family: Family) {
    in_namespace(move || {
        let Some(mut bench) = Bench::new(family) else {
            return;
        };
        bench.forward(0, &[(1, 1)]);
        let entry = bench.entry(0, &[(1, 1)]);
        bench.expect("new", Event::MrouteChanged(entry.clone()));
        drop(bench.routing);
        let events = read_until(&mut bench.mirror, "gone", |event| {
            matches!(event, Event::MrouteGone(_))
        });
        // what its interfaces took from it may have been told before
        let gone = events.iter().find_map(|event| match event {
            Event::MrouteGone(gone) => Some(gone),
            _ => None,
        });
        assert_eq!(
            gone.map(|m| (m.src, m.group)),
            Some((entry.src, entry.group))
        );
        assert_in_step(&mut bench.mirror);
        assert!(bench.mirror.mroutes().is_empty());
    });
}

#[test]
fn end_of_ipv4() {
    a_daemon_ends(Family::Ipv4);
}

#[test]
fn end_of_ipv6() {
    a_daemon_ends(Family::Ipv6);
}

#[test]
fn entries_of_one_name() {
    in_namespace(|| {
        let Some(mut bench) = Bench::new(Family::Ipv4) else {
            return;
        };
        bench.src = Ipv4Addr::UNSPECIFIED.into();
        let proxy = |bench: &Bench, option, iif, out| {
            let outs = [(out, 1)];
            bench
                .routing
                .entry(option, bench.src, bench.group, iif, &outs);
        };
        proxy(&bench, ADD_MFC_PROXY, 0, 1);
        let first = bench.entry(0, &[(1, 1)]);
        bench.expect("any source", Event::MrouteChanged(first));
        proxy(&bench, ADD_MFC_PROXY, 1, 2);
        let neither = Mroute {
            iif: 0,
            ..bench.entry(0, &[])
        };
        bench.expect("and another", Event::MrouteChanged(neither));
        proxy(&bench, DEL_MFC_PROXY, 0, 1);
        let second = bench.entry(1, &[(2, 1)]);
        bench.expect("one of them gone", Event::MrouteChanged(second));
    });
}

#[test]
fn a_packet_without_entry() {
    in_namespace(|| {
        let Some(mut bench) = Bench::new(Family::Ipv4) else {
            return;
        };
        run("ip addr add 192.0.2.1/24 dev d0");
        let sender = UdpSocket::bind("192.0.2.1:0").unwrap();
        run("ip route add 239.0.0.0/8 dev d0");
        sender.send_to(&[0], "239.1.2.3:5000").unwrap();
        bench.src = [192, 0, 2, 1].into();
        let unresolved = Mroute {
            iif: 0,
            ..bench.entry(0, &[])
        };
        bench.expect("unresolved", Event::MrouteChanged(unresolved));
        bench.forward(0, &[(1, 1)]);
        let resolved = bench.entry(0, &[(1, 1)]);
        bench.expect("resolved", Event::MrouteChanged(resolved));
    });
}

#[test]
fn rules_that_choose_a_cache() {
    in_namespace(|| {
        quiet();
        let mut mirror = Mirror::open().unwrap();
        for (family, from) in [("-4", "192.0.2.0/24"), ("-6", "2001:db8::/32")] {
            for change in ["add", "del"] {
                let (done, why) =
                    attempt(&format!("ip {family} mrule {change} from {from} table 7"));
                if !done {
                    eprintln!("skipped: no rules of multicast routing in this kernel: {why}");
                    return;
                }
                let of_rule = |event: &Event| *event == Event::MruleChanged;
                read_until(&mut mirror, &format!("{family} {change}"), of_rule);
            }
        }
        assert_in_step(&mut mirror);
    });
}

#[test]
fn memberships_are_those_of_the_namespace() {
    in_namespace(|| {
        quiet();
        link("d0");
        run("ip addr add 192.0.2.1/24 dev d0");
        let d0 = index(&Mirror::open().unwrap(), "d0");
        let before = Memberships::read().unwrap();
        assert_eq!(before, Memberships::read().unwrap());
        assert!(before.ports.is_empty() && !before.raw);
        let (group, other): (Ipv4Addr, _) = ([239, 1, 2, 3].into(), [239, 1, 2, 4].into());
        let socket = UdpSocket::bind("0.0.0.0:5000").unwrap();
        socket
            .join_multicast_v4(&group, &[192, 0, 2, 1].into())
            .unwrap();
        let joined = Memberships::read().unwrap();
        assert!(joined.delivers(d0, group.into(), 5000));
        assert!(!joined.delivers(d0, group.into(), 5001));
        assert!(!joined.delivers(d0, other, 5000));
        assert!(!joined.delivers(d0 + 1, group.into(), 5000));
        let group6 = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 3);
        match UdpSocket::bind("[::]:6000") {
            Ok(socket6) => {
                socket6.join_multicast_v6(&group6, d0).unwrap();
                let joined = Memberships::read().unwrap();
                assert!(joined.delivers(d0, group6.into(), 6000));
                assert!(!joined.delivers(1, group6.into(), 6000));
            }
            Err(error) => eprintln!("skipped: IPv6 memberships, no IPv6 in this kernel: {error}"),
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is given to the call.
        let raw = unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_UDP) };
        assert!(raw >= 0);
        assert!(
            Memberships::read()
                .unwrap()
                .delivers(d0, group.into(), 5001)
        );
        // SAFETY: the descriptor is used by nothing else.
        unsafe { libc::close(raw) };
        drop(socket);
        // what other tests are about to start holds all descriptors for a moment
        let end = Moment::now() + Duration::from_secs(10);
        while Memberships::read().unwrap() != before {
            assert!(Moment::now() < end, "{:?}", Memberships::read());
            thread::sleep(Duration::from_millis(10));
        }
    });
}
