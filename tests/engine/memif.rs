// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory (memif) between the engine and a guest, which is a second engine whose TAP is what the guest has:
//!
//! ```text
//! guest eth0 ── memif ── lan0 engine wan0 ── server
//! ```
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_WAN, mac_text};
use freeway_testkit::engine::{
    Device, Engine, engine, engine_toml, has_carrier, put_aside, take_ports_of,
};
use freeway_testkit::*;
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

fn port_toml(name: &str, mac: [u8; 6], role: &str, socket: &Path) -> String {
    let (mac, socket) = (mac_text(mac), socket.display());
    format!(
        "[engine.port.{name}]\nvdev = \"net_memif0,role={role},id=7,socket={socket},socket-abstract=no\"\nmac = \"{mac}\"\n"
    )
}

/// The port has a carrier, or none.
#[track_caller]
fn until_carrier(lab: &Lab, there: bool) {
    until("the port's carrier", PATIENCE, || {
        let is_there = has_carrier(lab.router(), "lan0") && has_carrier(lab.client(), "eth0");
        (is_there == there).then_some(())
    });
}

struct Site {
    // dropped in order: the lab goes last
    router: Router,
    engine: Engine,
    guest: Engine,
    config: String,
    guest_config: String,
    lab: Lab,
}

impl Site {
    fn build(folder: &Path) -> Site {
        let socket = folder.join("memif.sock");
        let lab = build("nat");
        put_aside(lab.router(), "lan0");
        put_aside(lab.client(), "eth0");
        let wan = [("wan0".into(), MAC_WAN)];
        let mut config = take_ports_of(lab.router(), 0, Device::AfPacket, &wan);
        config += &port_toml("lan0", MAC_LAN, "server", &socket);
        let guest_config = engine_toml(0) + &port_toml("eth0", MAC_CLIENT, "client", &socket);
        // a client's server has to be there
        let engine = Engine::start(&lab, &config);
        let guest = Engine::spawn(lab.client(), &guest_config);
        until_carrier(&lab, true);
        let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
        let site = Site {
            router,
            engine,
            guest,
            config,
            guest_config,
            lab,
        };
        site.configure_guest();
        site
    }

    fn configure_guest(&self) {
        for line in [
            "ip link set eth0 up",
            "ip address replace 192.0.2.2/24 dev eth0",
            "ip route replace default via 192.0.2.1",
        ] {
            self.lab.client().tool(line).unwrap();
        }
    }

    fn restart_guest(&mut self) {
        self.guest.signal(Signal::SIGKILL);
        self.guest.wait();
        until_carrier(&self.lab, false);
        self.guest = Engine::spawn(self.lab.client(), &self.guest_config);
        until_carrier(&self.lab, true);
        self.configure_guest();
    }
}

#[test]
fn flows_come_and_leave_by_shared_memory() {
    let Some(_machine) = machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::build(folder.path());
    let ends = patient(udp_ends(&site.lab));
    path::until_through(&site.router, &ends, address(SERVER));
    // the way back, too, once the router is sure of its neighbour
    until("both directions", PATIENCE, || {
        path::send(&ends, address(SERVER), 50);
        let flows = site.router.flows("proto udp");
        let by_engine = flows.iter().filter(|flow| flow["path"] == "engine");
        (by_engine.count() == 2).then_some(())
    });

    // the guest dies, and another one comes
    site.restart_guest();
    path::until_through(&site.router, &ends, address(SERVER));
    assert_eq!(site.engine.child.try_wait().unwrap(), None, "the engine");

    // what is another's is not taken
    let mut command = engine();
    command.args(["run", "--config"]).arg(site.engine.config());
    let output = site.lab.server().run(&mut command);
    let words = format!("{output:?}");
    assert!(
        words.contains("engine.port.lan0: ") && words.contains("is another process's"),
        "{words}"
    );
    path::send(&ends, address(SERVER), 50);

    // the engine is killed, which leaves its socket behind
    site.engine.signal(Signal::SIGKILL);
    site.engine.wait();
    site.engine = Engine::spawn(site.lab.router(), &site.config);
    // the last port's, by which the first one listens
    until("the other port's carrier", PATIENCE, || {
        has_carrier(site.lab.router(), "wan0").then_some(())
    });
    // DPDK's client does not connect again
    site.restart_guest();
    path::until_through(&site.router, &ends, address(SERVER));
    path::send(&ends, address(SERVER), 50);
    site.router.stop();
    site.engine.stop();
    site.guest.stop();
}
