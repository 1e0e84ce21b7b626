// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual switch between the engine and a guest:
//!
//! ```text
//! client ── lan0 engine wan0 ── vhost-user ── Open vSwitch ── vhost-user ── eth0 guest
//! ```
//!
//! The guest is a second engine, whose port's TAP is what the guest has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_lab::frame::{MAC_SERVER, MAC_WAN, mac_text};
use freeway_testkit::engine::{
    Device, Engine, Face, engine, engine_toml, has_carrier, put_aside, take_ports_of,
};
use freeway_testkit::*;
use nix::sys::signal::Signal;

mod switch;
use switch::Switch;

const PATIENCE: Duration = Duration::from_secs(60);

/// Of a port whose switch connects to that socket.
fn port_toml(name: &str, mac: [u8; 6], socket: &Path) -> String {
    let (mac, socket) = (mac_text(mac), socket.display());
    format!(
        "[engine.port.{name}]\nvdev = \"net_virtio_user0,path={socket},server=1,queues=1,queue_size=1024\"\nmac = \"{mac}\"\n"
    )
}

fn guest_face() -> Face {
    ("eth0".into(), MAC_SERVER)
}

struct Site {
    // dropped in order: the lab goes last
    router: Router,
    engine: Engine,
    guest: Engine,
    switch: Switch,
    config: String,
    guest_config: String,
    lab: Lab,
}

impl Site {
    fn build() -> Option<Site> {
        let lab = build("nat");
        let switch = Switch::start(lab.server(), 0, &["router", "guest"])?;
        let lan = [("lan0".into(), freeway_lab::frame::MAC_LAN)];
        let mut config = take_ports_of(lab.router(), 0, Device::AfPacket, &lan);
        put_aside(lab.router(), "wan0");
        config += &port_toml("wan0", MAC_WAN, &switch.socket("router"));
        put_aside(lab.server(), "eth0");
        let guest_config = engine_toml(0) + &port_toml("eth0", MAC_SERVER, &switch.socket("guest"));
        let guest = Engine::start_in(lab.server(), &guest_config, &[guest_face()]);
        let line = "ip address add 198.51.100.2/24 dev eth0";
        lab.server().tool(line).unwrap();
        let engine = Engine::start(&lab, &config);
        let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
        Some(Site {
            router,
            engine,
            guest,
            switch,
            config,
            guest_config,
            lab,
        })
    }

    #[track_caller]
    fn until_fast(&self, ends: &(UdpSocket, UdpSocket)) {
        path::until_path(&self.router, ends, address(SERVER), "engine");
    }

    /// Both ports have a carrier, or both have none.
    #[track_caller]
    fn until_carrier(&self, there: bool) {
        until("the ports' carrier", PATIENCE, || {
            let both = [
                has_carrier(self.lab.router(), "wan0"),
                has_carrier(self.lab.server(), "eth0"),
            ];
            (both == [there; 2]).then_some(())
        });
    }
}

#[test]
fn a_switch_is_between_the_engine_and_a_guest() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::build() else {
        return;
    };
    let ends = patient(udp_ends(&site.lab));
    site.until_fast(&ends);
    // but for those that the kernel has confirmed meanwhile; flows that a late daemon has learned anew count from nothing
    let enough = (0..3).any(|_| {
        site.until_fast(&ends);
        let before = path::engine_packets(&site.router);
        path::send(&ends, address(SERVER), 200);
        let fast = path::engine_packets(&site.router).saturating_sub(before);
        println!("{fast} of 400 packets were the engine's");
        fast >= 300
    });
    assert!(enough, "{}", site.router.stats());
    let flows = site.router.flows("proto udp");
    assert_eq!(flows.len(), 2, "{flows:#?}");

    // the switch dies, and another one comes; then one that ends as it should
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        site.switch.end(signal);
        site.until_carrier(false);
        site.switch.start_again();
        site.until_carrier(true);
        path::until_through(&site.router, &ends, address(SERVER));
        path::send(&ends, address(SERVER), 50);
        assert_eq!(site.engine.child.try_wait().unwrap(), None, "the engine");
        assert_eq!(site.guest.child.try_wait().unwrap(), None, "the guest");
    }

    // the engine is killed, which leaves its socket behind, and then the guest
    site.engine.signal(Signal::SIGKILL);
    site.engine.wait();
    assert!(site.switch.socket("router").exists());
    site.engine = Engine::start_again(&site.lab, &site.config);
    path::until_through(&site.router, &ends, address(SERVER));
    site.guest.signal(Signal::SIGKILL);
    site.guest.wait();
    site.guest = Engine::start_in(site.lab.server(), &site.guest_config, &[guest_face()]);
    path::until_through(&site.router, &ends, address(SERVER));
    path::send(&ends, address(SERVER), 50);

    // what is another's is not taken
    let mut command = engine();
    command.args(["run", "--config"]).arg(site.engine.config());
    let output = site.lab.client().run(&mut command);
    let words = format!("{output:?}");
    assert!(
        words.contains("engine.port.wan0: ") && words.contains("is another process's"),
        "{words}"
    );
    path::send(&ends, address(SERVER), 50);
    site.router.stop();
    site.engine.stop();
    site.guest.stop();
    assert!(
        !site.switch.socket("router").exists(),
        "its socket is left behind"
    );
}

/// An engine that waits for its switch ends when it is told to, and leaves nothing.
#[test]
fn an_engine_without_its_switch_can_be_stopped() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("router.sock");
    put_aside(lab.router(), "wan0");
    let config = "[engine]\ncore = 0\nhuge_pages = false\nmemory_mib = 64\n".to_owned()
        + &port_toml("wan0", MAC_WAN, &socket);
    let mut waiting = Engine::spawn(lab.router(), &config);
    until("its socket", PATIENCE, || socket.exists().then_some(()));
    waiting.signal(Signal::SIGTERM);
    let status = waiting.wait();
    let log = waiting.log();
    assert!(status.success(), "{status}\n{log}");
    assert!(log.contains("wan0 waits for who connects to"), "{log}");
    assert!(!socket.exists());
    let dpdk = format!("/var/run/dpdk/freeway-{}", waiting.child.id());
    assert!(!Path::new(&dpdk).exists(), "{dpdk}");
    // a file of somebody else's stays
    std::fs::write(&socket, "a file").unwrap();
    let (code, words) = Engine::refuses(lab.router(), &config);
    assert_eq!(code, Some(69), "{words}");
    assert!(words.contains("is no socket; remove it"), "{words}");
    assert_eq!(std::fs::read(&socket).unwrap(), b"a file");
}
