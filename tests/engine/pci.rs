// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port on the PCI bus: a card that the kernel hands over (vfio-pci), behind an IOMMU, with huge pages. There are such cards in
//! the virtual machines of `tests/vm/run`, two of them at one wire:
//!
//! ```text
//! client: the kernel's card ── the engine's card: lan0 engine wan0 ── server
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_WAN, mac_text};
use freeway_lab::{Lab, Netns, Options};
use freeway_testkit::engine::{
    Device, Engine, engine, privileged_engine, put_aside, take_ports_of,
};
use freeway_testkit::*;
use nix::sys::signal::Signal;

/// Intel 82574L.
const KIND: [&str; 2] = ["0x8086", "0x10d3"];
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
/// Frames that long are of several buffers, with this card.
const MTU: u32 = 9000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The engine's card and the client's, by their addresses on the bus; nothing, with the reason printed, outside.
fn cards() -> Option<[PathBuf; 2]> {
    if std::env::var_os("IN_VM").is_none() {
        eprintln!("skipped: this machine may have no two cards to spare");
        return None;
    }
    let all = fs::read_dir("/sys/bus/pci/devices").unwrap();
    let of_kind = |path: &PathBuf| {
        let says = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        [says("vendor"), says("device")]
            .each_ref()
            .map(|id| id.trim())
            == KIND
    };
    let mut cards: Vec<_> = all
        .map(|entry| entry.unwrap().path())
        .filter(of_kind)
        .collect();
    cards.sort();
    Some(cards.try_into().expect("two cards at one wire"))
}

/// Gives a card to a driver.
fn bind(card: &Path, driver: &str) {
    let address = card.file_name().unwrap().to_str().unwrap();
    if let Ok(bound) = fs::read_link(card.join("driver")) {
        if bound.ends_with(driver) {
            return;
        }
        fs::write(card.join("driver/unbind"), address).unwrap();
    }
    fs::write(card.join("driver_override"), driver).unwrap();
    fs::write("/sys/bus/pci/drivers_probe", address).unwrap();
    assert!(card.join("driver").exists(), "{address} is not {driver}'s");
}

/// Moves the kernel's card to the client, in the place of its own device.
fn give_to_client(lab: &Lab, card: &Path) {
    put_aside(lab.client(), "eth0");
    // one of a namespace that has gone comes back
    let name = until("the client's card", PATIENCE, || {
        let mut names = fs::read_dir(card.join("net")).ok()?;
        Some(names.next()?.unwrap().file_name().into_string().unwrap())
    });
    let netns = lab.client().path().display().to_string();
    let mac = mac_text(MAC_CLIENT);
    let line = format!("ip link set {name} netns {netns} name eth0 address {mac} mtu {MTU} up");
    Netns::own().tool(&line).unwrap();
    for line in [
        "ip address add 192.0.2.2/24 dev eth0",
        "ip route add default via 192.0.2.1",
    ] {
        lab.client().tool(line).unwrap();
    }
}

struct Site {
    // dropped in order: the lab goes last
    router: Router,
    engine: Engine,
    config: String,
    lab: Lab,
}

impl Site {
    /// With a card that belongs to that driver.
    fn build([own, clients]: &[PathBuf; 2], driver: &str) -> Site {
        let lab = build_with(
            "nat",
            Options {
                mtu: MTU,
                ..Options::default()
            },
        );
        bind(own, driver);
        bind(clients, "e1000e");
        give_to_client(&lab, clients);
        put_aside(lab.router(), "lan0");
        let wan = [("wan0".into(), MAC_WAN)];
        let config = take_ports_of(lab.router(), 0, Device::Pcap, &wan);
        let config = config.replace("huge_pages = false", "huge_pages = true");
        let (address, mac) = (own.file_name().unwrap(), mac_text(MAC_LAN));
        let config = format!(
            "{config}[engine.port.lan0]\npci = {address:?}\nmac = \"{mac}\"\nmtu = {MTU}\n"
        );
        // physical addresses are told to CAP_SYS_ADMIN alone
        let command = match driver {
            "uio_pci_generic" => privileged_engine(),
            _ => engine(),
        };
        let engine = Engine::start_as(&lab, &config, command);
        let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
        Site {
            router,
            engine,
            config,
            lab,
        }
    }

    /// The kernel behind the port has more MAC addresses than the port's, such as a macvlan's.
    fn takes_other_addresses(&self) {
        const OTHER: &str = "02:00:00:00:01:77";
        let (router, client) = (self.lab.router(), self.lab.client());
        // the port would answer for its address
        let told = format!("ip neigh replace 192.0.2.3 lladdr {OTHER} dev eth0 nud permanent");
        client.tool(&told).unwrap();
        let made = format!("ip link add other0 link lan0 address {OTHER} type macvlan mode bridge");
        for line in [
            made.as_str(),
            "ip address add 192.0.2.3/24 dev other0",
            "ip link set other0 up",
        ] {
            router.tool(line).unwrap();
        }
        until("who has another address", PATIENCE, || {
            client.tool("ping -c 1 -W 1 192.0.2.3").ok()
        });
        router.tool("ip link delete other0").unwrap();
    }

    /// Datagrams of all lengths, most of which are the engine's.
    #[track_caller]
    fn is_fast(&self, ends: &(UdpSocket, UdpSocket)) {
        let exchange = |len: usize, datagrams: usize| {
            (0..datagrams).for_each(|n| path::exchange(ends, address(SERVER), len, n));
        };
        // IPv4 and UDP headers are beside it
        let most = MTU as usize - 28;
        // the kernel has not seen one so long
        exchange(most, 3);
        // flows that a late daemon has learned anew count from nothing
        until("frames of the engine's", PATIENCE, || {
            let before = path::engine_packets(&self.router);
            for len in [most, most / 2, 1400, 100] {
                exchange(len, 25);
            }
            let fast = path::engine_packets(&self.router).saturating_sub(before);
            println!("{fast} of 200 packets were the engine's");
            (fast >= 150).then_some(())
        });
    }
}

/// A card behind the IOMMU and one that is told physical addresses; an engine that is killed, and one that ends.
#[test]
fn a_card_is_the_engines() {
    let Some(cards) = cards() else { return };
    let Some(_machine) = machine() else { return };
    fs::write(HUGE_PAGES, "64").unwrap();
    for driver in ["uio_pci_generic", "vfio-pci"] {
        let mut site = Site::build(&cards, driver);
        let ends = patient(udp_ends(&site.lab));
        path::until_through(&site.router, &ends, address(SERVER));
        site.is_fast(&ends);
        if driver == "vfio-pci" {
            site.takes_other_addresses();
            site.engine.signal(Signal::SIGKILL);
            site.engine.wait();
            site.engine = Engine::start_again(&site.lab, &site.config);
            path::until_through(&site.router, &ends, address(SERVER));
            (0..25).for_each(|n| path::exchange(&ends, address(SERVER), 1400, n));
        }
        site.router.stop();
        site.engine.stop();
    }
    // the kernel has it back
    bind(&cards[0], "e1000e");
    until("the kernel's device", PATIENCE, || {
        cards[0].join("net").exists().then_some(())
    });
    fs::write(HUGE_PAGES, "0").unwrap();
}
