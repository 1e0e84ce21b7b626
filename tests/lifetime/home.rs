// SPDX-License-Identifier: MIT OR Apache-2.0
//! A home, and what happens to its router.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_WAN, mac_text};
use freeway_lab::{Lab, Netns, Options};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The port of a server that the firewall may forbid.
pub const GUARDED: u16 = 7100;
/// Where banned ones try.
const ECHO: &str = "198.51.100.2:7200";
const BANNED: &str = "192.0.2.3";
const PATIENCE: Duration = Duration::from_secs(30);

/// A program of a namespace; it ends with this value.
struct Helper(Child);

impl Helper {
    fn start(netns: &Netns, line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(netns.spawn(&mut command).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
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

/// As fail2ban's action `nftables` has it, ahead of connection tracking.
const BANS: &str = "table inet f2b-table {\n\tset addr-set-test { type ipv4_addr; }\n\
    \tchain f2b-chain {\n\t\ttype filter hook prerouting priority -300; policy accept;\n\
    \t\tip saddr @addr-set-test drop\n\t}\n}\n";

/// The firewall, loaded again as a whole; `forbidden`: a port of servers that nobody may use, whoever does already.
fn rules(forbidden: Option<u16>) -> String {
    let forbidden =
        forbidden.map_or_else(String::new, |port| format!("\t\ttcp dport {port} drop\n"));
    format!(
        "table inet filter\nflush table inet filter\ntable inet filter {{\n\tchain forward {{\n\
         \t\ttype filter hook forward priority filter; policy drop;\n{forbidden}\
         \t\tct state established,related accept\n\t\tct state invalid drop\n\
         \t\tiifname \"br0\" oifname \"wan0\" ct state new accept\n\t}}\n}}\n"
    )
}

/// Sends back what comes, in a thread, until the value is dropped.
struct Echo(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Echo {
    fn begin(netns: &Netns) -> Self {
        let socket = udp(netns, address(ECHO));
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let answer = move || {
            let mut bytes = [0; 64];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(&bytes[..len], from);
                }
            }
        };
        Self(over, Some(thread::spawn(answer)))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

pub struct Home {
    pub lab: Lab,
    file: tempfile::NamedTempFile,
    lease: Option<Lease>,
    /// The router's address outside.
    outside: &'static str,
    /// The station is at the first port.
    near: bool,
    phone: UdpSocket,
    asked: u32,
    _echo: Echo,
    _folder: tempfile::TempDir,
}

impl Home {
    pub fn build() -> Self {
        let options = Options {
            bridge: true,
            ..Options::default()
        };
        let lab = build_with("nat", options);
        let (client, router) = (lab.client(), lab.router());
        // a second access point, and a station that is at one of them
        let links = format!(
            "link add lan1 type veth peer name eth1 netns {}\nlink set lan1 master br0\nlink set lan1 up\n",
            client.name()
        );
        router.tool_with_input("ip -batch -", &links).unwrap();
        let wire = "tso off gso off tx off txvlan off gro on";
        client.tool(&format!("ethtool -K eth1 {wire}")).unwrap();
        let port = "tso off gso off txvlan off gro on";
        router.tool(&format!("ethtool -K lan1 {port}")).unwrap();
        let station = format!(
            "address flush dev eth0\nlink set eth0 address 02:00:00:00:0e:00\n\
             link set eth1 address 02:00:00:00:0e:01\n\
             link add sta0 address {} type bridge\nlink set eth0 master sta0\n\
             link set eth0 up\nlink set eth1 up\nlink set sta0 up\n\
             address add 192.0.2.2/24 dev sta0\naddress add {BANNED}/24 dev sta0\n\
             route replace default via 192.0.2.1 dev sta0\n\
             neighbour replace 192.0.2.1 lladdr {} nud permanent dev sta0\n",
            mac_text(MAC_CLIENT),
            mac_text(MAC_LAN)
        );
        client.tool_with_input("ip -batch -", &station).unwrap();
        let ports = "net/ipv4/ip_local_port_range";
        client.sysctl(ports, "10000 65000").unwrap();
        // two days in minutes: what has ended leaves as fast
        for state in ["time_wait", "close", "close_wait", "last_ack"] {
            let key = format!("net/netfilter/nf_conntrack_tcp_timeout_{state}");
            router.sysctl(&key, "2").unwrap();
        }
        router.tool_with_input("nft -f -", BANS).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let lease = Lease::begin(&lab, folder.path());
        let phone = udp(client, address("192.0.2.3:41000"));
        let patience = Some(Duration::from_millis(50));
        phone.set_read_timeout(patience).unwrap();
        let home = Self {
            file,
            lease,
            outside: "198.51.100.1",
            near: true,
            phone,
            asked: 0,
            _echo: Echo::begin(lab.server()),
            _folder: folder,
            lab,
        };
        home.write("");
        home
    }

    fn write(&self, more: &str) {
        let ports = ["lan0", "lan1", "wan0"];
        let tables: String = (ports.iter())
            .map(|port| format!("[port.{port}]\nwire_true = true\n"))
            .collect();
        fs::write(self.file.path(), format!("{tables}{more}")).unwrap();
    }

    pub fn start_daemon(&self) -> Router {
        Router::start_by(self.lab.router(), self.file.path(), |status| {
            fast_ports(status) >= 4
        })
    }

    /// The lease is asked for again; nothing about it changes.
    pub fn renew(&mut self) {
        match &self.lease {
            Some(lease) => {
                let before = lease.told().len();
                lease.client.signal(Signal::SIGUSR1);
                lease.wait("renew", before);
            }
            // what its client would do
            None => {
                let line = format!(
                    "ip address replace {}/24 dev wan0 valid_lft 120 preferred_lft 120",
                    self.outside
                );
                self.lab.router().tool(&line).unwrap();
            }
        }
    }

    /// The provider gives another address: what went by the old one has ended.
    pub fn move_house(&mut self) {
        self.outside = "198.51.100.7";
        match &mut self.lease {
            Some(lease) => {
                let before = lease.told().len();
                // the name is free for the next one
                lease.server.end();
                lease.server = serve(&self.lab, &lease.folder, self.outside);
                lease.client.signal(Signal::SIGUSR1);
                lease.wait("bound 198.51.100.7", before);
            }
            None => {
                let lines = format!(
                    "address flush dev wan0\naddress add {}/24 dev wan0\n\
                     route replace default via 198.51.100.2 dev wan0\n",
                    self.outside
                );
                let router = self.lab.router();
                router.tool_with_input("ip -batch -", &lines).unwrap();
            }
        }
    }

    /// The station goes to the other access point.
    pub fn roam(&mut self) {
        let (from, to) = match self.near {
            true => ("eth0", "eth1"),
            false => ("eth1", "eth0"),
        };
        let lines = format!("link set {from} nomaster\nlink set {to} master sta0\n");
        let client = self.lab.client();
        client.tool_with_input("ip -batch -", &lines).unwrap();
        // it is heard at once, as when it associates
        client
            .tool("ip neighbour replace 192.0.2.9 lladdr 02:00:00:00:0e:09 dev sta0")
            .unwrap();
        let hello = udp(client, address("192.0.2.2:0"));
        let _ = hello.send_to(b"here", "192.0.2.9:9");
        self.near = !self.near;
    }

    /// The firewall's rules, all of them again.
    pub fn load_rules(&self, forbidden: Option<u16>) {
        let router = self.lab.router();
        router
            .tool_with_input("nft -f -", &rules(forbidden))
            .unwrap();
    }

    fn element(&self, what: &str) {
        let line = format!("nft {what} element inet f2b-table addr-set-test {{ {BANNED} }}");
        self.lab.router().tool(&line).unwrap();
    }

    pub fn ban(&self) {
        self.element("add");
    }

    pub fn unban(&self) {
        self.element("delete");
    }

    /// Nobody answers who is banned, and everybody else is answered.
    #[track_caller]
    pub fn check_banned(&mut self, banned: bool) {
        let mut answered = 0;
        let mut answer = || {
            self.asked += 1;
            let asked = self.asked.to_be_bytes();
            self.phone.send_to(&asked, ECHO).unwrap();
            let mut bytes = [0; 64];
            // one that is late is no answer to this
            while let Ok((len, _)) = self.phone.recv_from(&mut bytes) {
                if bytes[..len] == asked {
                    return true;
                }
            }
            false
        };
        if banned {
            // what an answer to an earlier question may be on its way
            for _ in 0..5 {
                answered += u32::from(answer());
            }
            assert_eq!(answered, 0, "of who is banned");
        } else {
            until("who is no longer banned is answered", PATIENCE, || {
                answer().then_some(())
            });
        }
    }

    /// The configuration is read again, with another value.
    pub fn reload(&self, router: &Router, hour: u64) {
        self.write(&format!("[flows]\nudp_idle_s = {}\n", 30 + hour));
        let reloaded = router.json(&["reload"]);
        let changes = reloaded["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 1, "{changes:?}");
    }
}
