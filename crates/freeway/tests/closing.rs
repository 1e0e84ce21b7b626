// SPDX-License-Identifier: MIT OR Apache-2.0
//! RST, FIN and SYN that are not the sender's: what conntrack says and what arrives is what it would be without
//! Freeway, while the flows are fast, after they have left the table for idleness, and while Freeway is off.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::thread;
use std::time::Duration;

use common::wire::Side::{Far, Near};
use common::wire::{ACK, FIN, PSH, RST, SYN, Segment, TCP, Wire};
use common::*;
use freeway_kernel::model::TcpState;
use freeway_lab::{Filter, FlowSpec, Generator, Lab, Load, Options, Proto, Until};

const PORTS: (u16, u16) = (40_000, 7000);
const PATIENCE: Duration = Duration::from_secs(30);
/// What arrives at all has arrived by then.
const SETTLED: Duration = Duration::from_millis(300);

/// A connection between two ends that know each other's numbers.
struct Talk<'a> {
    wire: &'a Wire,
    lab: &'a Lab,
    /// What each end sends next.
    next: [u32; 2],
}

impl Talk<'_> {
    fn segment(&self, from: wire::Side, flags: u8) -> Segment {
        Segment {
            proto: TCP,
            ports: PORTS,
            seq: self.next[from as usize],
            ack: self.next[from.other() as usize],
            flags,
            ..Segment::default()
        }
    }

    fn open(&mut self) {
        let syn = Segment {
            ack: 0,
            ..self.segment(Near, SYN)
        };
        assert!(self.wire.deliver(Near, &syn));
        self.next[0] = self.next[0].wrapping_add(1);
        assert!(self.wire.deliver(Far, &self.segment(Far, SYN | ACK)));
        self.next[1] = self.next[1].wrapping_add(1);
        assert!(self.wire.deliver(Near, &self.segment(Near, ACK)));
    }

    /// Data both ways, all of which arrives.
    fn exchange(&mut self) {
        for from in [Near, Far] {
            let data = Segment {
                payload: vec![from as u8; 100],
                ..self.segment(from, ACK | PSH)
            };
            assert!(self.wire.deliver(from, &data), "data from {from:?}");
            self.next[from as usize] = self.next[from as usize].wrapping_add(100);
        }
        assert!(self.wire.deliver(Near, &self.segment(Near, ACK)));
    }

    fn state(&self) -> Option<TcpState> {
        connection_from(self.lab, TCP, PORTS.0).and_then(|c| Some(c.tcp?.state))
    }

    /// Segments that the server could not have meant: what conntrack then says, and how many of them arrived.
    fn strays(&mut self, idle: bool) -> Vec<(u8, Option<TcpState>, usize)> {
        let far_off = [0x1000_0000u32, 0x7000_0000, 0x9000_0000, 0xf000_0000];
        let mut told = Vec::new();
        for flags in [RST, RST | ACK, FIN | ACK, SYN] {
            if !idle {
                self.exchange();
            }
            for off in far_off {
                let stray = Segment {
                    seq: self.next[1].wrapping_add(off),
                    ack: self.next[0].wrapping_add(off / 3),
                    ..self.segment(Far, flags)
                };
                self.wire.send(Far, &stray);
            }
            thread::sleep(SETTLED);
            let arrived = self.wire.arrived(Near, TCP, PORTS);
            let strays = arrived.iter().filter(|segment| segment.flags == flags);
            told.push((flags, self.state(), strays.count()));
        }
        told
    }
}

fn lab(invalid_drop: bool) -> Lab {
    let strict = "table inet strict {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\
                  \t\tct state invalid drop\n\t}\n}\n";
    let options = Options {
        filter: Some(Filter::Tracked),
        extra_nft: if invalid_drop { strict } else { "" }.into(),
        router_tx_checksum: false,
        ..Options::default()
    };
    build_with("nat", options)
}

fn start(lab: &Lab, path: &str) -> Router {
    let keys = format!("[flows]\ntcp_idle_s = 1\n[port.lan0]\npath = \"{path}\"\n");
    let config = match path {
        "tc" => keys,
        _ => "[flows]\ntcp_idle_s = 1\n".to_owned() + &lab.config_toml(""),
    };
    Router::start_in(lab.router(), &config, freeway(), &["lan0", "wan0"])
}

/// Both directions are fast, if there is Freeway.
fn fast(router: Option<&Router>, talk: &mut Talk<'_>) {
    let Some(router) = router else {
        return talk.exchange();
    };
    until("both directions are fast", PATIENCE, || {
        let before = router.stats().fast();
        talk.exchange();
        (router.stats().fast() >= before + 3).then_some(())
    });
}

/// What an end sees of it, and conntrack; with Freeway or without.
fn story(invalid_drop: bool, path: Option<&str>) -> Vec<String> {
    let lab = lab(invalid_drop);
    let wire = Wire::open(&lab);
    let router = path.map(|path| start(&lab, path));
    let fast = |talk: &mut Talk<'_>| fast(router.as_ref(), talk);
    let mut talk = Talk {
        wire: &wire,
        lab: &lab,
        // the numbers wrap on the way
        next: [0xffff_ff00, 0x7fff_ff00],
    };
    let mut told = Vec::new();
    talk.open();
    fast(&mut talk);
    told.push(format!("fast: {:?}", talk.strays(false)));
    if let Some(router) = &router {
        let stray = router.stats().reason("stray_close");
        assert_eq!(stray, 12, "{}", router.stats());
    }
    talk.exchange();
    told.push(format!("and on: {:?}", talk.state()));
    let exact = talk.segment(Far, RST);
    let near = Segment {
        seq: exact.seq.wrapping_add(10),
        ..exact.clone()
    };
    fast(&mut talk);
    told.push(format!(
        "not exact: {}, {:?}",
        wire.deliver(
            Far,
            &Segment {
                seq: talk.next[1].wrapping_add(10),
                ..near
            }
        ),
        talk.state()
    ));
    if let Some(router) = &router {
        until("the flows leave", PATIENCE, || {
            router.flows("proto tcp").is_empty().then_some(())
        });
    }
    told.push(format!("idle: {:?}", talk.strays(true)));
    talk.exchange();
    told.push(format!("and on: {:?}", talk.state()));
    fast(&mut talk);
    if let Some(router) = &router {
        router.json(&["off"]);
    }
    told.push(format!("off: {:?}", talk.strays(false)));
    talk.exchange();
    told.push(format!("and on: {:?}", talk.state()));
    if let Some(router) = &router {
        router.json(&["on"]);
    }
    fast(&mut talk);
    let exact = talk.segment(Far, RST | ACK);
    told.push(format!("the sender's: {}", wire.deliver(Far, &exact)));
    told.push(format!("{:?}", talk.state()));
    if let Some(router) = router {
        router.stop();
    }
    told
}

#[track_caller]
fn as_in_the_kernel(path: &str) {
    let Some(_machine) = machine() else { return };
    for invalid_drop in [false, true] {
        let kernel = story(invalid_drop, None);
        let freeway = story(invalid_drop, Some(path));
        assert_eq!(
            freeway, kernel,
            "left Freeway, right the kernel; invalid dropped: {invalid_drop}"
        );
    }
}

#[test]
fn strays_in_xdp() {
    as_in_the_kernel("xdp");
}

#[test]
fn strays_in_tc() {
    as_in_the_kernel("tc");
}

/// Nanoseconds of the router's CPU for each of many strays, which change nothing.
fn flooded(path: Option<&str>) -> f64 {
    let lab = lab(true);
    let threads = lab.poll_by_threads(0, 1).unwrap();
    let wire = Wire::open(&lab);
    let router = path.map(|path| start(&lab, path));
    let mut talk = Talk {
        wire: &wire,
        lab: &lab,
        // far from the generator's
        next: [0x4000_0000, 0x8000_0000],
    };
    talk.open();
    fast(router.as_ref(), &mut talk);
    let strays = FlowSpec {
        tcp_flags: RST,
        bare: true,
        near_port: PORTS.0,
        far: common::wire::FAR.into(),
        far_port: PORTS.1,
        ..lab.reply_flows(Proto::Tcp, 1, 64)
    };
    let generator = Generator::new(lab.server_port(), &strays).unwrap();
    let before = threads.cpu_time().unwrap();
    let load = Load::paced(Until::Elapsed(Duration::from_secs(2)), paced(100_000));
    let sent = generator.run(&load).unwrap().frames;
    thread::sleep(SETTLED);
    let cpu = threads.cpu_time().unwrap() - before;
    assert_eq!(talk.state(), Some(TcpState::Established));
    if let Some(router) = &router {
        let stray = router.stats().reason("stray_close");
        assert!(
            stray <= sent && sent - stray <= dropped(&lab),
            "{stray} of {sent}: {}",
            router.stats()
        );
    }
    fast(router.as_ref(), &mut talk);
    if let Some(router) = router {
        router.stop();
    }
    cpu.as_secs_f64() * 1e9 / sent as f64
}

#[test]
fn a_flood_of_strays_changes_nothing_and_costs_less() {
    let Some(_machine) = machine() else { return };
    let kernel = flooded(None);
    for path in ["xdp", "tc"] {
        let freeway = flooded(Some(path));
        println!("{path}: {freeway:.0} ns a stray, the kernel alone {kernel:.0}");
        assert!(!long() || freeway < kernel, "{path}: {freeway}, {kernel}");
    }
}
