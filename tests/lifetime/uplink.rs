// SPDX-License-Identifier: MIT OR Apache-2.0
//! What connects a home: an address by DHCP, or a PPPoE session where the kernel has these.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeway_lab::frame::{MAC_WAN, mac_text};
use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Programs may wait for timers of their own.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of a namespace; it ends with this value.
struct Helper(Child);

impl Helper {
    fn start(netns: &Netns, line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        Self(netns.spawn(&mut command).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// It may clean up; in the end it is gone.
    fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        until("a helper ends", PATIENCE, || self.0.try_wait().unwrap());
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The provider's server, the router's client, and what that was told.
struct Lease {
    server: Helper,
    client: Helper,
    folder: PathBuf,
}

/// What a client of DHCP does with a lease: as those of distributions, it says again what holds already.
const SCRIPT: &str = r#"#!/bin/sh
[ -n "$ip" ] || { [ "$1" = deconfig ] && ip -4 address flush dev "$interface"; exit 0; }
ip address replace "$ip/$mask" dev "$interface" valid_lft "$lease" preferred_lft "$lease"
ip route replace default via 198.51.100.2 dev "$interface"
echo "$1 $ip" >> "FOLDER/told"
"#;

fn serve(lab: &Lab, folder: &Path, address: &str) -> Helper {
    let line = format!(
        "dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --pid-file= --interface=eth0 \
         --bind-interfaces --no-ping --dhcp-authoritative --dhcp-range=198.51.100.0,static,255.255.255.0,2m \
         --dhcp-host={},{address} --dhcp-leasefile={}/leases",
        mac_text(MAC_WAN),
        folder.display()
    );
    Helper::start(lab.server(), &line)
}

impl Lease {
    /// None where the programs are not there.
    fn begin(lab: &Lab, folder: &Path) -> Option<Self> {
        let there = |program: &str, word: &str| {
            let output = Command::new(program).arg(word).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !there("dnsmasq", "--version") || !there("busybox", "--list") {
            eprintln!("skipped: dnsmasq and busybox are needed for leases by DHCP");
            return None;
        }
        let script = folder.join("script");
        fs::write(&script, SCRIPT.replace("FOLDER", folder.to_str().unwrap())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let line = format!(
            "busybox udhcpc -f -i wan0 -s {} -t 20 -T 1 -A 1",
            script.display()
        );
        let server = serve(lab, folder, "198.51.100.1");
        let lease = Self {
            server,
            client: Helper::start(lab.router(), &line),
            folder: folder.to_path_buf(),
        };
        lease.wait("bound", 0);
        Some(lease)
    }

    fn told(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("told")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a word after so many others.
    #[track_caller]
    fn wait(&self, word: &str, before: usize) -> String {
        until(&format!("DHCP: {word}"), PATIENCE, || {
            let told = self.told();
            let mut after = told.into_iter().skip(before);
            after.find(|line| line.starts_with(word))
        })
    }
}

/// A session from `wan0` to an access concentrator at the server, by pppd at both ends.
struct Session {
    concentrator: Helper,
    dialler: Helper,
    options: PathBuf,
}

const OPTIONS: &str = "noauth\nnodefaultroute\nnoccp\nnovj\nmtu 1492\nmru 1492\n";

fn concentrate(lab: &Lab, options: &Path, address: &str) -> Helper {
    let options = options.display();
    let line = format!("pppoe-server -F -I eth0 -L 10.6.0.1 -R {address} -N 1 -O {options}");
    Helper::start(lab.server(), &line)
}

/// Until it has the address.
fn dial(lab: &Lab, options: &Path, address: &str) -> Helper {
    let options = options.display();
    let line = format!(
        "pppd plugin pppoe.so nic-wan0 nodetach noipdefault ifname ppp0 persist maxfail 0 holdoff 1 file {options}"
    );
    let dialler = Helper::start(lab.router(), &line);
    // the address is there before the link is up
    let (show, route) = (
        "ip -4 address show dev ppp0",
        "ip route replace default dev ppp0",
    );
    until("a PPPoE session", PATIENCE, || {
        let shown = lab.router().tool(show).ok()?;
        let routed = shown.contains(address) && lab.router().tool(route).is_ok();
        routed.then_some(())
    });
    dialler
}

impl Session {
    fn begin(lab: &Lab, folder: &Path, address: &str) -> Self {
        lab.router().tool("ip address flush dev wan0").unwrap();
        let options = folder.join("options");
        fs::write(&options, OPTIONS).unwrap();
        Self {
            concentrator: concentrate(lab, &options, address),
            dialler: dial(lab, &options, address),
            options,
        }
    }

    fn redial(&mut self, lab: &Lab, address: &str) {
        self.dialler.terminate();
        self.dialler = dial(lab, &self.options, address);
    }

    fn renumber(&mut self, lab: &Lab, address: &str) {
        self.dialler.terminate();
        self.concentrator.terminate();
        self.concentrator = concentrate(lab, &self.options, address);
        self.dialler = dial(lab, &self.options, address);
    }
}

pub struct Uplink(Kind);

enum Kind {
    Lease(Lease),
    Session(Session),
    /// What a client of DHCP would do is done by hand.
    Fixed,
}

impl Uplink {
    pub fn begin(lab: &Lab, folder: &Path, address: &str) -> Self {
        let there = |program: &str| {
            let mut folders = ["/usr/sbin", "/usr/bin"].iter().map(Path::new);
            folders.any(|folder| folder.join(program).exists())
        };
        let dials = Path::new("/sys/module/pppoe").exists() && there("pppd");
        if dials && there("pppoe-server") {
            return Self(Kind::Session(Session::begin(lab, folder, address)));
        }
        let lease = Lease::begin(lab, folder);
        Self(lease.map_or(Kind::Fixed, Kind::Lease))
    }

    /// The lease is asked for again; nothing about it changes.
    pub fn renew(&mut self, lab: &Lab, address: &str) {
        match &self.0 {
            Kind::Lease(lease) => {
                let before = lease.told().len();
                lease.client.signal(Signal::SIGUSR1);
                lease.wait("renew", before);
            }
            // LCP's echoes go by themselves
            Kind::Session(_) => {}
            Kind::Fixed => {
                let line = format!(
                    "ip address replace {address}/24 dev wan0 valid_lft 120 preferred_lft 120"
                );
                lab.router().tool(&line).unwrap();
            }
        }
    }

    /// There are sessions.
    pub fn dials(&self) -> bool {
        matches!(self.0, Kind::Session(_))
    }

    /// Another session, with the same address, if it has sessions.
    pub fn redial(&mut self, lab: &Lab, address: &str) {
        if let Kind::Session(session) = &mut self.0 {
            session.redial(lab, address);
        }
    }

    /// Another address.
    pub fn renumber(&mut self, lab: &Lab, address: &str) {
        match &mut self.0 {
            Kind::Lease(lease) => {
                let before = lease.told().len();
                // the name is free for the next one
                lease.server.end();
                lease.server = serve(lab, &lease.folder, address);
                lease.client.signal(Signal::SIGUSR1);
                lease.wait(&format!("bound {address}"), before);
            }
            Kind::Session(session) => session.renumber(lab, address),
            Kind::Fixed => {
                let lines = format!(
                    "address flush dev wan0\naddress add {address}/24 dev wan0\n\
                     route replace default via 198.51.100.2 dev wan0\n"
                );
                let router = lab.router();
                router.tool_with_input("ip -batch -", &lines).unwrap();
            }
        }
    }
}
