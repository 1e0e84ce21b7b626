// SPDX-License-Identifier: MIT OR Apache-2.0
//! What leaves by prefixes ahead of the fast path, and as what; what asks the kernel, and what is nobody's but the
//! kernel's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use freeway_abi::{
    FW_CLOCKS_DIFFER, FW_HOP_TC, FW_LEAF_FIRST, FW_LEAVES6, FW_MISSES_MAX, FW_R_ROUTE_ASKED,
    FW_ROUTES_IPV4, FW_ROUTES_IPV6, FW_RP_LOOSE, FW_RP_OFF, FW_RP_STRICT, FW_ST_ACTIVE, fw_hop,
    fw_route_here,
};
use freeway_datapath::{
    Datapath, Hook, LoadOptions, RouteHook, RouteTable, RoutedFamily, RoutedHere,
};
use freeway_prefix::{NextHop, Prefix, Prefix4, Prefix6, Trie, fw_prefix4, fw_prefix6};
use support::frame::{Frame, mac};
use support::random::Random;
use support::run::{Skb, run_as};
use support::target::Loaded;

/// `lo`, where test runs come in; frames leave at another port.
const PORT: u32 = 1;
const OUT: u32 = 7;
const SLOT: u32 = 3;
const MAC: &str = "02:00:00:00:00:01";
const NEXT: &str = "02:00:00:00:00:aa";
const OWN: &str = "02:00:00:00:00:bb";
const LEAF: NextHop = FW_LEAF_FIRST as NextHop;
const LEAF6: NextHop = (FW_LEAVES6 + FW_LEAF_FIRST) as NextHop;
/// A second of the programs, which no test sees the end of.
const LONG: u32 = 1_000_000;

/// What the fast path behind it, or it itself, leaves to the kernel: XDP_PASS, TCX_NEXT.
fn passed(hook: RouteHook) -> u32 {
    match hook {
        RouteHook::Xdp => 2,
        RouteHook::Tc => u32::MAX,
    }
}

/// XDP_REDIRECT, TCX_REDIRECT.
fn redirected(hook: RouteHook) -> u32 {
    match hook {
        RouteHook::Xdp => 4,
        RouteHook::Tc => 7,
    }
}

/// Tries the same in XDP and in tc.
fn in_both(test: impl Fn(Bench)) {
    for hook in RouteHook::ALL {
        println!("{hook:?}");
        Bench::new(hook).into_iter().for_each(&test);
    }
}

struct Bench {
    hook: RouteHook,
    datapath: Datapath,
    table: RouteTable,
    here: fw_route_here,
    /// Of VLANs above the port, in XDP.
    vlans: RoutedHere,
}

impl Bench {
    fn new(hook: RouteHook) -> Option<Bench> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: loading BPF programs needs root");
            return None;
        }
        let options = LoadOptions {
            routes: true,
            hz: Some(LONG),
            ..Loaded::options()
        };
        let datapath = Datapath::load(&options).unwrap();
        datapath.set_port(SLOT, PORT).unwrap();
        let table = datapath.route_table(0).unwrap();
        let (without, own) = (datapath.memory(), table.memory());
        // both families' prefixes, which no other program has
        let prefixes = (size_of::<fw_prefix4>() + size_of::<fw_prefix6>()) as u64;
        let beside = own.iter().filter(|(id, _)| !without.contains_key(id));
        assert!(beside.map(|(_, octets)| octets).sum::<u64>() >= prefixes);
        assert!(
            own.keys().any(|id| without.contains_key(id)),
            "some are shared"
        );
        let here = fw_route_here {
            mac: mac(MAC),
            rp_filter: FW_RP_OFF as u16,
            port: PORT,
            families: FW_ROUTES_IPV4 | FW_ROUTES_IPV6,
        };
        let mut bench = Bench {
            hook,
            datapath,
            table,
            here,
            vlans: RoutedHere::new(),
        };
        bench.datapath.control.set_on(true);
        // tc asks under a token
        bench.datapath.control.set_learn(1);
        bench
            .datapath
            .control
            .set_deadline(bench.tick(LONG.cast_signed()));
        bench.set("198.51.100.0/24", Some(LEAF));
        bench.set("2001:db8:100::/48", Some(LEAF6));
        assert!(bench.table.set_hop(LEAF, 0, Some(hop(OUT, 1500))));
        assert!(bench.table.set_hop(LEAF6, 0, Some(hop6(OUT, 1500))));
        bench.table.set_valid::<u32>(true);
        bench.table.set_valid::<u128>(true);
        bench.confirm(LEAF);
        bench.confirm(LEAF6);
        Some(bench)
    }

    fn tick(&self, later: i32) -> u32 {
        let now = self.datapath.clock.now_tick().unwrap();
        now.wrapping_add_signed(later)
    }

    fn confirm(&self, leaf: NextHop) {
        self.table.confirm(leaf, 1, self.tick(LONG.cast_signed()));
    }

    fn set(&mut self, prefix: &str, leaf: Option<NextHop>) {
        let (address, length) = prefix.split_once('/').unwrap();
        let length = length.parse().unwrap();
        match address.parse().unwrap() {
            IpAddr::V4(address) => self.set_prefix(address.to_bits(), length, leaf),
            IpAddr::V6(address) => self.set_prefix(address.to_bits(), length, leaf),
        }
    }

    fn set_prefix<A: RoutedFamily>(&mut self, address: A, length: u8, leaf: Option<NextHop>) {
        let prefix = Prefix::new(address, length).unwrap();
        self.table.set_prefixes([(prefix, leaf)]).unwrap();
    }

    fn run(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        self.run_as(frame, Skb::default()).0
    }

    /// In tc as such an skb, which is also what it is then.
    fn run_as(&mut self, frame: &[u8], mut skb: Skb) -> ((u32, Vec<u8>), Skb) {
        let (plain, skb_of_tc) = match self.hook {
            RouteHook::Xdp => (Hook::Xdp, None),
            RouteHook::Tc => (Hook::IngressAlone, Some(&mut skb)),
        };
        let next = self.datapath.prog(plain).unwrap();
        let mut heres = BTreeMap::from([(0, self.here)]);
        if self.hook == RouteHook::Xdp {
            heres.extend(self.vlans.iter().map(|(vlan, here)| (*vlan, *here)));
        }
        let prog = self.table.at(self.hook, PORT, &heres, next.as_fd());
        (run_as(prog.unwrap().as_fd(), frame, 1, skb_of_tc), skb)
    }

    /// It leaves, as the kernel would have sent it.
    #[track_caller]
    fn sends(&mut self, frame: &Frame) {
        let (verdict, out) = self.run(&frame.bytes());
        assert_eq!(verdict, redirected(self.hook), "{frame:?}");
        let sent = Frame {
            dst_mac: NEXT.into(),
            src_mac: OWN.into(),
            ttl: frame.ttl - 1,
            padding: 0,
            ..frame.clone()
        };
        assert_eq!(out, sent.bytes(), "{frame:?}");
    }

    /// It is the kernel's, as it came; whether a next hop is asked for with it.
    #[track_caller]
    fn passes(&mut self, frame: &Frame) -> bool {
        let before = self.asked();
        let (verdict, out) = self.run(&frame.bytes());
        assert_eq!(verdict, passed(self.hook), "{frame:?}");
        assert!(out.ends_with(&frame.bytes()), "{frame:?}");
        self.asked() > before
    }

    /// None of them leaves, or asks.
    #[track_caller]
    fn keeps_from_all(&mut self, frames: &[Frame]) {
        // the kernel tests tc with none that is cut
        let in_tc = self.hook == RouteHook::Tc;
        for frame in frames.iter().filter(|frame| !in_tc || frame.cut.is_none()) {
            assert!(!self.passes(frame), "{frame:?}");
        }
    }

    fn asked(&self) -> u64 {
        self.datapath.reasons().unwrap()[FW_R_ROUTE_ASKED as usize]
    }
}

fn hop(port: u32, len_max: u16) -> fw_hop {
    let mut hop = fw_hop {
        port,
        len_max,
        devmap_slot: SLOT,
        status: FW_ST_ACTIVE,
        tc: 1,
        ..fw_hop::default()
    };
    hop.l2[..6].copy_from_slice(&mac(NEXT));
    hop.l2[6..12].copy_from_slice(&mac(OWN));
    hop.l2[12..].copy_from_slice(&[8, 0]);
    hop
}

fn hop6(port: u32, len_max: u16) -> fw_hop {
    let mut hop = hop(port, len_max);
    hop.l2[12..].copy_from_slice(&[0x86, 0xdd]);
    hop
}

fn to(dst: [u8; 4]) -> Frame {
    Frame {
        dst: dst.into(),
        ..Frame::default()
    }
}

fn to6(dst: &str) -> Frame {
    Frame {
        src: Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 1).into(),
        dst: dst.parse().unwrap(),
        ..Frame::default()
    }
}

#[test]
fn what_is_plain_leaves_as_the_kernel_would_send_it() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        bench.sends(&plain);
        // whatever it carries
        for proto in [1, 6, 17, 47, 50, 132, 255] {
            bench.sends(&Frame {
                proto,
                ..plain.clone()
            });
        }
        for ttl in [2, 255] {
            bench.sends(&Frame {
                ttl,
                ..plain.clone()
            });
        }
        for tos in [1, 0xb8] {
            bench.sends(&Frame {
                tos,
                ..plain.clone()
            });
        }
        bench.sends(&Frame {
            padding: 7,
            ..plain.clone()
        });
        bench.sends(&Frame {
            frag: 0,
            ..plain.clone()
        });
        // checksums around where they wrap
        let mut wraps = 0;
        for id in 0..=u16::MAX {
            let frame = Frame {
                id,
                ..plain.clone()
            };
            let bytes = frame.bytes();
            let check = u16::from_be_bytes([bytes[24], bytes[25]]);
            let near = (0xfef0..=0xff0f).contains(&check);
            wraps += u32::from(check == 0xfeff);
            if id % 251 == 0 || id > 0xfff0 || near {
                bench.sends(&frame);
            }
        }
        assert!(wraps > 0);
        let count = bench.table.count(LEAF);
        assert!(count.packets > 250, "{count:?}");
        assert!(count.bytes > count.packets * 60, "{count:?}");
    });
}

#[test]
fn what_is_plain_of_ipv6_leaves_as_the_kernel_would_send_it() {
    in_both(|mut bench| {
        let plain = to6("2001:db8:100::2");
        bench.sends(&plain);
        // whatever it carries but extension headers
        for proto in [1, 6, 17, 50, 58, 59, 63, 64, 107, 108, 124, 255] {
            bench.sends(&Frame {
                proto,
                ..plain.clone()
            });
        }
        for ttl in [2, 255] {
            bench.sends(&Frame {
                ttl,
                ..plain.clone()
            });
        }
        for (tos, flow_label) in [(1, 0), (0xb8, 0xfffff), (0, 1)] {
            bench.sends(&Frame {
                tos,
                flow_label,
                ..plain.clone()
            });
        }
        bench.sends(&Frame {
            padding: 7,
            ..plain.clone()
        });
        let count = bench.table.count(LEAF6);
        assert!(count.packets > 15, "{count:?}");
        assert_eq!(bench.table.count(LEAF).packets, 0);
    });
}

#[test]
fn what_is_not_plain_of_ipv6_is_the_kernels() {
    in_both(|mut bench| {
        let plain = to6("2001:db8:100::2");
        let from = |src: &str| Frame {
            src: src.parse().unwrap(),
            ..plain.clone()
        };
        // extension headers: hop-by-hop, routing, fragment, AH, destination options
        let extended = [0, 43, 44, 51, 60].map(|proto| Frame {
            proto,
            ..plain.clone()
        });
        bench.keeps_from_all(&extended);
        let frames = [
            to6("2001:db8:101::2"),
            Frame {
                dst_mac: "02:00:00:00:00:09".into(),
                ..plain.clone()
            },
            Frame {
                dst_mac: "33:33:00:00:00:01".into(),
                ..plain.clone()
            },
            Frame {
                ethertype: Some(0x0800),
                ..plain.clone()
            },
            Frame {
                version: 4,
                ..plain.clone()
            },
            Frame {
                ttl: 1,
                ..plain.clone()
            },
            Frame {
                ttl: 0,
                ..plain.clone()
            },
            Frame {
                ip_len: Some(2000),
                ..plain.clone()
            },
            Frame {
                payload: 1453,
                ..plain.clone()
            },
            Frame {
                cut: Some(53),
                ..plain.clone()
            },
            from("::"),
            from("::1"),
            from("::ffff:192.0.2.1"),
            from("fe80::1"),
            from("febf::1"),
            from("ff02::1"),
        ];
        bench.keeps_from_all(&frames);
        bench.sends(&from("fec0::1"));
        bench.sends(&from("fd00::1"));
        bench.sends(&plain);
        // a port that has prefix paths for IPv4 alone
        bench.here.families = FW_ROUTES_IPV4;
        assert!(!bench.passes(&plain));
        bench.sends(&to([198, 51, 100, 2]));
        bench.here.families = FW_ROUTES_IPV6;
        bench.sends(&plain);
        assert!(!bench.passes(&to([198, 51, 100, 2])));
    });
}

#[test]
fn what_is_not_plain_is_the_kernels() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        let frames = [
            to([198, 51, 101, 2]),
            Frame {
                dst_mac: "02:00:00:00:00:09".into(),
                ..plain.clone()
            },
            Frame {
                dst_mac: "ff:ff:ff:ff:ff:ff".into(),
                ..plain.clone()
            },
            Frame {
                ethertype: Some(0x0806),
                ..plain.clone()
            },
            Frame {
                version_ihl: 0x46,
                ..plain.clone()
            },
            Frame {
                frag: 0x2000,
                ..plain.clone()
            },
            Frame {
                frag: 1,
                ..plain.clone()
            },
            Frame {
                ttl: 1,
                ..plain.clone()
            },
            Frame {
                ttl: 0,
                ..plain.clone()
            },
            Frame {
                ip_check: Some(1),
                ..plain.clone()
            },
            Frame {
                ip_len: Some(2000),
                ..plain.clone()
            },
            Frame {
                ip_len: Some(19),
                ..plain.clone()
            },
            Frame {
                payload: 1473,
                ..plain.clone()
            },
            Frame {
                src: "2001:db8::1".parse().unwrap(),
                dst: "2001:db8::2".parse().unwrap(),
                ..plain.clone()
            },
            Frame {
                cut: Some(33),
                ..plain.clone()
            },
        ];
        bench.keeps_from_all(&frames);
        bench.sends(&plain);
    });
}

#[test]
fn sources_that_the_kernel_refuses_are_its_own() {
    in_both(|mut bench| {
        bench
            .table
            .set_own([Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 9, 8, 7)]);
        let from = |src: [u8; 4]| Frame {
            src: src.into(),
            ..to([198, 51, 100, 2])
        };
        for src in [
            [0, 0, 0, 1],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [239, 1, 2, 3],
            [240, 0, 0, 1],
            [255, 255, 255, 255],
            [192, 0, 2, 1],
            [10, 9, 8, 7],
        ] {
            assert!(!bench.passes(&from(src)), "{src:?}");
        }
        for src in [[1, 0, 0, 1], [126, 1, 1, 1], [128, 1, 1, 1], [223, 1, 1, 1]] {
            bench.sends(&from(src));
        }
        // with rp_filter
        bench.here.rp_filter = FW_RP_LOOSE as u16;
        assert!(!bench.passes(&from([1, 0, 0, 1])));
        bench.set("1.0.0.0/8", Some(freeway_abi::FW_LEAF_UNICAST as NextHop));
        bench.sends(&from([1, 0, 0, 1]));
        bench.here.rp_filter = FW_RP_STRICT as u16;
        assert!(!bench.passes(&from([1, 0, 0, 1])));
        bench.set("1.0.0.0/8", Some(LEAF + 1));
        bench.table.set_hop(LEAF + 1, 0, Some(hop(PORT, 1500)));
        bench.sends(&from([1, 0, 0, 1]));
        bench.table.set_hop(LEAF + 1, 0, Some(hop(OUT, 1500)));
        assert!(!bench.passes(&from([1, 0, 0, 1])));
    });
}

#[test]
fn a_next_hop_carries_while_the_kernel_confirms_it() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        // the kernel's confirmation is over
        bench.table.doubt_hop(LEAF);
        bench.table.confirm(LEAF, 0, bench.tick(0));
        assert!(bench.passes(&plain));
        bench.confirm(LEAF);
        bench.sends(&plain);
        // another epoch: it asks, however long it was confirmed for
        bench.datapath.control.set_epoch(2);
        assert!(bench.passes(&plain));
        // once a tick, on a CPU whose clock is behind, too; whoever is held up for longer is late
        let mut rests = |ahead: u32| {
            let at = bench.tick(ahead.cast_signed());
            bench.table.confirm(LEAF, 1, at);
            !bench.passes(&plain)
        };
        assert!((0..100).any(|_| rests(FW_CLOCKS_DIFFER + 1)));
        bench.table.confirm(LEAF, 2, bench.tick(LONG.cast_signed()));
        bench.sends(&plain);
        // due: it asks
        for _ in 0..FW_MISSES_MAX {
            bench.table.confirm(LEAF, 2, bench.tick(0));
            assert!(bench.passes(&plain));
            assert_eq!(bench.table.hop(LEAF).unwrap().misses, 1);
        }
        // nor is it put off until a tick that only seems to lie ahead: it was never written, or is of long ago
        bench.table.confirm(LEAF, 2, bench.tick(i32::MAX / 2));
        assert!(bench.passes(&plain));
        // the same of addresses behind it
        bench.table.confirm(LEAF, 2, bench.tick(LONG.cast_signed()));
        bench.table.put_off(bench.tick(i32::MAX / 2));
        assert!(bench.passes(&plain));
        bench.sends(&plain);
        // another hop takes the leaf's place: unconfirmed
        bench.confirm(LEAF);
        assert!(bench.table.set_hop(LEAF, 0, Some(hop(OUT, 1400))));
        assert_eq!(bench.table.hop(LEAF).unwrap().epoch, 0);
        bench.passes(&plain);
        // none
        assert!(bench.table.set_hop(LEAF, 0, None));
        assert!(!bench.passes(&plain));
        // where it came in the kernel would send a redirect
        assert!(bench.table.set_hop(LEAF, 0, Some(hop(PORT, 1400))));
        bench.table.confirm(LEAF, 2, bench.tick(LONG.cast_signed()));
        assert!(!bench.passes(&plain));
    });
}

#[test]
fn a_leaf_rests_before_it_is_anothers() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        bench.sends(&plain);
        // at once the kernel has it, and not the other
        assert!(!bench.table.set_hop(LEAF, 1, Some(hop(OUT, 1500))));
        assert!(bench.table.hop(LEAF).is_none());
        assert!(!bench.passes(&plain));
        assert!(!bench.table.set_hop(LEAF, 1, Some(hop(OUT, 1500))));
        // the same one may come back
        assert!(bench.table.set_hop(LEAF, 0, Some(hop(OUT, 1500))));
        assert!(bench.table.set_hop(LEAF, 0, None));
        let other = |bench: &mut Bench| bench.table.set_hop(LEAF, 1, Some(hop(OUT, 1500)));
        while !other(&mut bench) {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        bench.confirm(LEAF);
        bench.sends(&plain);
    });
}

#[test]
fn switches_give_everything_to_the_kernel() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        bench.sends(&plain);
        let plain6 = to6("2001:db8:100::2");
        bench.table.set_valid::<u32>(false);
        assert!(!bench.passes(&plain));
        bench.sends(&plain6);
        bench.table.set_valid::<u32>(true);
        bench.table.set_valid::<u128>(false);
        bench.sends(&plain);
        assert!(!bench.passes(&plain6));
        bench.table.set_valid::<u128>(true);
        bench.datapath.control.set_on(false);
        assert!(!bench.passes(&plain));
        assert!(!bench.passes(&plain6));
        bench.datapath.control.set_on(true);
        bench.datapath.control.set_deadline(bench.tick(-1));
        assert!(!bench.passes(&plain));
        bench
            .datapath
            .control
            .set_deadline(bench.tick(LONG.cast_signed()));
        bench.sends(&plain);
    });
}

/// Of random tables, near to each other.
fn answers_as_a_trie<A: RoutedFamily>(
    mut bench: Bench,
    first: NextHop,
    hop: fn(u32, u16) -> fw_hop,
    prefix: impl Fn(&mut Random) -> Prefix<A>,
    frame: impl Fn(A) -> Frame,
) {
    let mut random = Random(0x5eed);
    let mut trie = Trie::default();
    bench.set("198.51.100.0/24", None);
    bench.set("2001:db8:100::/48", None);
    let leaves: Vec<NextHop> = (0..6).map(|n| first + n).collect();
    for leaf in &leaves {
        let port = OUT + u32::from(*leaf);
        bench.table.set_hop(*leaf, 0, Some(hop(port, 1500)));
        bench.confirm(*leaf);
    }
    for _ in 0..40 {
        let mut changes = Vec::new();
        for _ in 0..20 {
            let prefix = prefix(&mut random);
            let leaf = (!random.one_in(4)).then(|| random.pick(&leaves));
            trie.set(prefix, leaf);
            changes.push((prefix, leaf));
        }
        bench.table.set_prefixes(changes.iter().copied()).unwrap();
        for (prefix, _) in &changes {
            let beside = !A::mask(prefix.length())
                & A::mask(prefix.length().saturating_add(1).min(A::LENGTH));
            for address in [prefix.first(), prefix.last(), prefix.first() | beside] {
                let before: Vec<u64> = leaves
                    .iter()
                    .map(|l| bench.table.count(*l).packets)
                    .collect();
                let (verdict, _) = bench.run(&frame(address).bytes());
                let went = leaves.iter().zip(before);
                let mut went = went.filter(|(l, before)| bench.table.count(**l).packets > *before);
                let went = went.next().map_or(0, |(leaf, _)| *leaf);
                assert_eq!(went, trie.lookup(address), "{address:x?}");
                assert_eq!(verdict == redirected(bench.hook), went != 0);
            }
        }
    }
}

#[test]
fn random_tables_answer_as_a_trie_does() {
    let prefix = |random: &mut Random| {
        let address = 0x0a00_0000 | random.next() as u32 & 0x0003_ffff;
        Prefix4::new(address, 14 + random.below(19) as u8).unwrap()
    };
    in_both(|bench| {
        answers_as_a_trie(
            bench,
            LEAF,
            hop,
            prefix,
            |address| to(address.to_be_bytes()),
        )
    });
}

#[test]
fn random_tables_of_ipv6_answer_as_a_trie_does() {
    let prefix = |random: &mut Random| {
        let [site, below, host] = [(); 3].map(|()| u128::from(random.next()));
        let address = 0x2001 << 112 | (site & 0xff) << 80 | (below & 3) << 62 | host & 3;
        Prefix6::new(address, 16 + random.below(113) as u8).unwrap()
    };
    in_both(|bench| {
        answers_as_a_trie(bench, LEAF6, hop6, prefix, |address: u128| {
            to6(&Ipv6Addr::from(address).to_string())
        })
    });
}

#[test]
fn where_xdp_cannot_send_tc_does() {
    in_both(|mut bench| {
        let plain = to([198, 51, 100, 2]);
        bench.sends(&plain);
        let hop = fw_hop {
            status: FW_HOP_TC,
            ..hop(OUT, 1500)
        };
        assert!(bench.table.set_hop(LEAF, 0, Some(hop)));
        // not even to ask: what comes in here would not leave by it
        let asks = bench.hook == RouteHook::Tc;
        assert_eq!(bench.passes(&plain), asks);
        bench.confirm(LEAF);
        match bench.hook {
            RouteHook::Xdp => assert!(!bench.passes(&plain)),
            RouteHook::Tc => bench.sends(&plain),
        }
        // and the other way round
        let hop = fw_hop {
            status: FW_ST_ACTIVE,
            tc: 0,
            ..hop
        };
        assert!(bench.table.set_hop(LEAF, 0, Some(hop)));
        bench.confirm(LEAF);
        match bench.hook {
            RouteHook::Xdp => bench.sends(&plain),
            RouteHook::Tc => assert!(!bench.passes(&plain)),
        }
    });
}

#[test]
fn what_is_merged_leaves_by_the_length_of_its_segments() {
    let Some(mut bench) = Bench::new(RouteHook::Tc) else {
        return;
    };
    let merged = |bench: &mut Bench, frame: &Frame, gso_size: u32| {
        let skb = Skb {
            gso_size,
            ..Skb::default()
        };
        let ((verdict, _), _) = bench.run_as(&frame.bytes(), skb);
        verdict == redirected(RouteHook::Tc)
    };
    for (plain, leaf, header) in [
        (to([198, 51, 100, 2]), LEAF, 20),
        (to6("2001:db8:100::2"), LEAF6, 40),
    ] {
        let l4 = 20;
        let long = Frame {
            proto: 6,
            payload: 3000,
            ..plain.clone()
        };
        let longest = 1500 - header - l4;
        assert!(!merged(&mut bench, &long, 0));
        assert!(!merged(&mut bench, &long, longest + 1));
        let before = bench.table.count(leaf);
        assert!(merged(&mut bench, &long, longest));
        let count = bench.table.count(leaf);
        let frames = u64::from(3000_u32.div_ceil(longest));
        assert_eq!(count.packets - before.packets, frames);
        let headers = u64::from(14 + header + l4);
        assert_eq!(count.bytes - before.bytes, 3000 + frames * headers);
        // what its segments are is not known: of UDP they may be a tunnel's
        for proto in [17, 132] {
            let other = Frame {
                proto,
                ..plain.clone()
            };
            assert!(!merged(&mut bench, &other, 100));
            bench.sends(&other);
        }
    }
}

#[test]
fn in_tc_a_packet_has_the_class_that_the_kernel_gives_it() {
    let Some(mut bench) = Bench::new(RouteHook::Tc) else {
        return;
    };
    // ip_tos2prio of net/ipv4/route.c, by the words of RFC 1349 for the TOS bits
    let class = |tos: u8| match tos & 0x1e {
        0x08..=0x0f => 2,
        0x10..=0x17 => 6,
        0x18..=0x1f => 4,
        _ => 0,
    };
    for tos in 0..=255 {
        let frame = Frame {
            tos,
            ..to([198, 51, 100, 2])
        };
        let skb = Skb {
            priority: 5,
            ..Skb::default()
        };
        let ((verdict, _), left) = bench.run_as(&frame.bytes(), skb);
        assert_eq!(verdict, redirected(RouteHook::Tc));
        assert_eq!(left.priority, class(tos), "{tos:#x}");
        // of IPv6 it is left as it is
        let frame = Frame {
            tos,
            ..to6("2001:db8:100::2")
        };
        let ((_, _), left) = bench.run_as(&frame.bytes(), skb);
        assert_eq!(left.priority, 5);
    }
    // somebody has marked it
    let skb = Skb {
        mark: 1,
        ..Skb::default()
    };
    let ((verdict, _), _) = bench.run_as(&to([198, 51, 100, 2]).bytes(), skb);
    assert_eq!(verdict, passed(RouteHook::Tc));
}

/// With a tag of a VLAN, of some priority.
fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tci = (5 << 13 | vlan).to_be_bytes();
    [&frame[..12], &[0x81, 0], &tci, &frame[12..]].concat()
}

#[test]
fn tags_come_off_and_on() {
    let Some(mut bench) = Bench::new(RouteHook::Xdp) else {
        return;
    };
    const VLAN: u16 = 7;
    const ABOVE: u32 = 21;
    let above = fw_route_here {
        port: ABOVE,
        ..bench.here
    };
    bench.vlans.insert(VLAN, above);
    // by the same record, with a tag or without
    let sent_as = |bench: &mut Bench, out: Option<u16>| {
        for (leaf, hop) in [(LEAF, hop(OUT, 1500)), (LEAF6, hop6(OUT, 1500))] {
            let mut hop = hop;
            if let Some(vlan) = out {
                hop.tag.tpid_be = 0x8100_u16.to_be();
                hop.tag.tci_be = vlan.to_be();
            }
            assert!(bench.table.set_hop(leaf, 0, None));
            assert!(bench.table.set_hop(leaf, 0, Some(hop)));
            bench.confirm(leaf);
        }
    };
    for out in [None, Some(9), Some(VLAN)] {
        sent_as(&mut bench, out);
        for plain in [to([198, 51, 100, 2]), to6("2001:db8:100::2")] {
            for padding in [0, 7] {
                let frame = Frame {
                    padding,
                    ..plain.clone()
                };
                let sent = Frame {
                    dst_mac: NEXT.into(),
                    src_mac: OWN.into(),
                    ttl: frame.ttl - 1,
                    padding: 0,
                    ..frame.clone()
                };
                let wanted = match out {
                    // the kernel gives it no priority
                    Some(vlan) => {
                        let mut wanted = tagged(&sent.bytes(), vlan);
                        wanted[14] &= 0x0f;
                        wanted
                    }
                    None => sent.bytes(),
                };
                let count = |bench: &Bench| {
                    let counts = [LEAF, LEAF6].map(|leaf| bench.table.count(leaf).bytes);
                    counts.iter().sum::<u64>()
                };
                for came in [frame.bytes(), tagged(&frame.bytes(), VLAN)] {
                    let before = count(&bench);
                    let (verdict, left) = bench.run(&came);
                    assert_eq!(verdict, redirected(RouteHook::Xdp), "{out:?} {came:02x?}");
                    assert_eq!(left, wanted, "{out:?} {came:02x?}");
                    assert_eq!(count(&bench) - before, wanted.len() as u64);
                }
            }
        }
    }
    // others, none, and priority alone
    let plain = to([198, 51, 100, 2]);
    for vlan in [0, 1, 6, 8, 4095] {
        let came = tagged(&plain.bytes(), vlan);
        assert_eq!(bench.run(&came), (passed(RouteHook::Xdp), came), "{vlan}");
    }
    // what is not plain comes through as it came, and so does what asks
    let passes = |bench: &mut Bench, frame: &[u8]| {
        let came = tagged(frame, VLAN);
        let (verdict, left) = bench.run(&came);
        assert_eq!(verdict, passed(RouteHook::Xdp));
        assert!(left.ends_with(&came), "{left:02x?}");
        left.len() > came.len()
    };
    let other = Frame {
        ttl: 1,
        ..plain.clone()
    };
    assert!(!passes(&mut bench, &other.bytes()));
    let other = Frame {
        dst_mac: "02:00:00:00:00:09".into(),
        ..plain.clone()
    };
    assert!(!passes(&mut bench, &other.bytes()));
    assert!(!passes(&mut bench, &tagged(&plain.bytes(), 9)));
    bench.table.confirm(LEAF, 1, bench.tick(0));
    assert!(passes(&mut bench, &plain.bytes()), "it asks");
    bench.confirm(LEAF);
    // each VLAN is a port: where it came in it does not leave
    assert!(bench.table.set_hop(LEAF, 0, None));
    assert!(bench.table.set_hop(LEAF, 0, Some(hop(ABOVE, 1500))));
    bench.confirm(LEAF);
    assert!(!passes(&mut bench, &plain.bytes()));
    bench.sends(&plain);
    // and has its own rp_filter and families
    sent_as(&mut bench, None);
    bench.vlans.insert(
        VLAN,
        fw_route_here {
            rp_filter: FW_RP_LOOSE as u16,
            ..above
        },
    );
    assert!(!passes(&mut bench, &plain.bytes()));
    bench.sends(&plain);
    bench.vlans.clear();
    assert!(!passes(&mut bench, &to6("2001:db8:100::2").bytes()));
}
