// SPDX-License-Identifier: MIT OR Apache-2.0
//! RST, FIN and SYN that are not the sender's: what conntrack says and what arrives is what it would be without
//! Freeway, while the flows are fast, after they have left the table for idleness, and while Freeway is off.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::thread;
use std::time::Duration;

use freeway_kernel::model::TcpState;
use freeway_lab::{Filter, FlowSpec, Generator, Lab, Load, Options, Proto, Until};
use freeway_testkit::wire::Side::{Far, Near};
use freeway_testkit::wire::{ACK, FIN, RST, SYN, Segment, TCP, Talk, Wire};
use freeway_testkit::*;

const PORTS: (u16, u16) = (40_000, 7000);
const PATIENCE: Duration = Duration::from_secs(30);
/// What arrives at all has arrived by then.
const SETTLED: Duration = Duration::from_millis(300);

/// What the server sends next, with a number that is off by so much.
fn from_server(talk: &Talk<'_>, flags: u8, off: u32) -> Segment {
    Segment {
        proto: TCP,
        ports: PORTS,
        seq: talk.next[Far as usize].wrapping_add(off),
        ack: talk.next[Near as usize].wrapping_add(off / 3),
        flags,
        ..Segment::default()
    }
}

fn state(lab: &Lab) -> Option<TcpState> {
    connection_from(lab, TCP, PORTS.0).and_then(|c| Some(c.tcp?.state))
}

/// Data both ways, all of which arrives.
fn exchange(talk: &mut Talk<'_>) {
    assert!(talk.exchange(), "data and acknowledgements");
}

/// Segments that the server could not have meant: what conntrack then says, and how many of them arrived.
fn strays(lab: &Lab, talk: &mut Talk<'_>, idle: bool) -> Vec<(u8, Option<TcpState>, usize)> {
    let mut told = Vec::new();
    for flags in [RST, RST | ACK, FIN | ACK, SYN] {
        if !idle {
            exchange(talk);
        }
        for off in [0x1000_0000, 0x7000_0000, 0x9000_0000, 0xf000_0000] {
            talk.wire.send(Far, &from_server(talk, flags, off));
        }
        thread::sleep(SETTLED);
        let arrived = talk.wire.arrived(Near, TCP, PORTS);
        let strays = arrived.iter().filter(|segment| segment.flags == flags);
        told.push((flags, state(lab), strays.count()));
    }
    told
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
        return exchange(talk);
    };
    until("both directions are fast", PATIENCE, || {
        let before = router.stats().fast();
        exchange(talk);
        (router.stats().fast() >= before + 3).then_some(())
    });
}

/// What an end sees of it, and conntrack; with Freeway or without.
fn story(invalid_drop: bool, path: Option<&str>) -> Vec<String> {
    let lab = lab(invalid_drop);
    let wire = Wire::open(&lab);
    let router = path.map(|path| start(&lab, path));
    let fast = |talk: &mut Talk<'_>| fast(router.as_ref(), talk);
    // the numbers wrap on the way
    let mut talk = Talk::open(&wire, PORTS, [0xffff_ffa0, 0x7fff_ffa0]);
    let mut told = Vec::new();
    fast(&mut talk);
    told.push(format!("fast: {:?}", strays(&lab, &mut talk, false)));
    if let Some(router) = &router {
        let stray = router.stats().reason("stray_close");
        assert_eq!(stray, 12, "{}", router.stats());
    }
    exchange(&mut talk);
    told.push(format!("and on: {:?}", state(&lab)));
    fast(&mut talk);
    let near = from_server(&talk, RST, 10);
    told.push(format!(
        "not exact: {}, {:?}",
        wire.deliver(Far, &near),
        state(&lab)
    ));
    if let Some(router) = &router {
        until("the flows leave", PATIENCE, || {
            router.flows("proto tcp").is_empty().then_some(())
        });
    }
    told.push(format!("idle: {:?}", strays(&lab, &mut talk, true)));
    exchange(&mut talk);
    told.push(format!("and on: {:?}", state(&lab)));
    fast(&mut talk);
    if let Some(router) = &router {
        router.json(&["off"]);
    }
    told.push(format!("off: {:?}", strays(&lab, &mut talk, false)));
    exchange(&mut talk);
    told.push(format!("and on: {:?}", state(&lab)));
    if let Some(router) = &router {
        router.json(&["on"]);
    }
    fast(&mut talk);
    let exact = from_server(&talk, RST | ACK, 0);
    told.push(format!("the sender's: {}", wire.deliver(Far, &exact)));
    told.push(format!("{:?}", state(&lab)));
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

/// Nanoseconds of the router's CPU for each of many strays, which change nothing; `None` if the daemon was away for so long that
/// nothing is known of the ends, and conntrack may believe a stray.
fn flooded(path: Option<&str>) -> Option<f64> {
    let lab = lab(true);
    let threads = lab.poll_by_threads(0, 1).unwrap();
    let wire = Wire::open(&lab);
    let router = path.map(|path| start(&lab, path));
    // far from the generator's numbers
    let mut talk = Talk::open(&wire, PORTS, [0x4000_0000, 0x8000_0000]);
    fast(router.as_ref(), &mut talk);
    let strays = FlowSpec {
        tcp_flags: RST,
        bare: true,
        near_port: PORTS.0,
        far: freeway_testkit::wire::FAR.into(),
        far_port: PORTS.1,
        ..lab.reply_flows(Proto::Tcp, 1, 64)
    };
    let generator = Generator::new(lab.server_port(), &strays).unwrap();
    let epoch = || {
        router
            .as_ref()
            .map(|router| router.status()["epoch"].clone())
    };
    let known = epoch();
    let before = threads.cpu_time().unwrap();
    let load = Load::paced(Until::Elapsed(Duration::from_secs(2)), paced(100_000));
    let sent = generator.run(&load).unwrap().frames;
    thread::sleep(SETTLED);
    let cpu = threads.cpu_time().unwrap() - before;
    let state = state(&lab);
    if router.is_some() && state != Some(TcpState::Established) {
        until("the daemon was away", PATIENCE, || {
            (epoch() != known).then_some(())
        });
    }
    if epoch() != known {
        return None;
    }
    assert_eq!(state, Some(TcpState::Established));
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
    Some(cpu.as_secs_f64() * 1e9 / sent as f64)
}

#[test]
fn a_flood_of_strays_changes_nothing_and_costs_less() {
    let Some(_machine) = machine() else { return };
    let kernel = flooded(None).unwrap();
    for path in ["xdp", "tc"] {
        let freeway = until("a flood beside a daemon", 4 * PATIENCE, || {
            flooded(Some(path))
        });
        println!("{path}: {freeway:.0} ns a stray, the kernel alone {kernel:.0}");
        assert!(!long() || freeway < kernel, "{path}: {freeway}, {kernel}");
    }
}
