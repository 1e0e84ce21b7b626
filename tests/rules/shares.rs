// SPDX-License-Identifier: MIT OR Apache-2.0
//! A full table: a host of few flows has its share of it, whatever another one holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{FlowSpec, Generator, Load, Proto, Until};
use freeway_testkit::{Router, build, machine, until};

const ROOM: u32 = 2048;
const MANY: u32 = 4000;
const FEW: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_host_of_few_flows_becomes_fast_beside_one_of_many() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, &format!("[flows]\nmax = {ROOM}\n"));
    let many = lab.flows(Proto::Udp, MANY, 64);
    let IpAddr::V4(first) = many.near else {
        panic!()
    };
    let other = Ipv4Addr::from(u32::from(first) + 99);
    let few = FlowSpec {
        flows: FEW,
        near: other.into(),
        ..many
    };
    let of = |address: IpAddr| router.flows(&format!("src {address}")).len();
    let many = Arc::new(Generator::new(lab.client_port(), &many).unwrap());
    let running = many.start(Load::paced(Until::Stopped, 20_000)).unwrap();
    until("a full table", PATIENCE, || {
        (router.status()["flows"]["active"].as_u64() == Some(ROOM.into())).then_some(())
    });
    let few = Arc::new(Generator::new(lab.client_port(), &few).unwrap());
    // more slowly than the other host's
    let few = few.start(Load::paced(Until::Stopped, 40)).unwrap();
    let began = Instant::now();
    until("the few are fast", PATIENCE, || {
        (of(other.into()) == FEW as usize).then_some(())
    });
    println!("fast after {:?}", began.elapsed());
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(of(other.into()), FEW as usize, "they stay");
    }
    let status = router.status();
    let shares = &status["shares"];
    assert_eq!(
        shares["greatest"][0]["address"],
        first.to_string(),
        "{shares}"
    );
    assert!(
        shares["displaced"].as_u64().unwrap() >= u64::from(FEW),
        "{shares}"
    );
    few.stop().unwrap();
    running.stop().unwrap();
    router.stop();
}

#[test]
fn a_scan_costs_the_scanner() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, &format!("[flows]\nmax = {ROOM}\n"));
    let scan = FlowSpec {
        near_fixed: true,
        // so many that all are new again and again, however late the machine is
        ..lab.flows(Proto::Udp, 400_000, 64)
    };
    let IpAddr::V4(scanner) = scan.near else {
        panic!()
    };
    let other = IpAddr::V4(Ipv4Addr::from(u32::from(scanner) + 99));
    let few = FlowSpec {
        flows: FEW,
        near: other,
        ..scan
    };
    let scan = Arc::new(Generator::new(lab.client_port(), &scan).unwrap());
    let running = scan.start(Load::paced(Until::Stopped, 40_000)).unwrap();
    until("the scanner has had its share", PATIENCE, || {
        (router.stats().reason("learn_source") > 0).then_some(())
    });
    let few = Arc::new(Generator::new(lab.client_port(), &few).unwrap());
    let few = few.start(Load::paced(Until::Stopped, 40)).unwrap();
    until("the few are fast", PATIENCE, || {
        (router.flows(&format!("src {other}")).len() == FEW as usize).then_some(())
    });
    few.stop().unwrap();
    running.stop().unwrap();
    router.stop();
}
