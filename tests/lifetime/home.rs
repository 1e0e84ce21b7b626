// SPDX-License-Identifier: MIT OR Apache-2.0
//! A home, and what happens to its router.

use std::fs;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, mac_text};
use freeway_lab::{Lab, Netns, Options};
use freeway_testkit::*;

use super::uplink::Uplink;

/// The port of a server that the firewall may forbid.
pub const GUARDED: u16 = 7100;
/// Where banned ones try.
const ECHO: &str = "198.51.100.2:7200";
const BANNED: &str = "192.0.2.3";
const OUTSIDE: &str = "198.51.100.1";
const PATIENCE: Duration = Duration::from_secs(30);

/// As fail2ban's action `nftables` has it, ahead of connection tracking.
const BANS: &str = "table inet f2b-table {\n\tset addr-set-test { type ipv4_addr; }\n\
    \tchain f2b-chain {\n\t\ttype filter hook prerouting priority -300; policy accept;\n\
    \t\tip saddr @addr-set-test drop\n\t}\n}\n";

/// The lab's own is for a port without a session.
const MASQUERADE: &str = "table inet dialled {\n\tchain postrouting {\n\
    \t\ttype nat hook postrouting priority srcnat;\n\t\toifname \"ppp0\" masquerade\n\t}\n}\n";

/// The firewall, loaded again as a whole; `forbidden`: a port of servers that nobody may use, whoever does already.
fn rules(forbidden: Option<u16>) -> String {
    let forbidden =
        forbidden.map_or_else(String::new, |port| format!("\t\ttcp dport {port} drop\n"));
    format!(
        "table inet filter\nflush table inet filter\ntable inet filter {{\n\tchain forward {{\n\
         \t\ttype filter hook forward priority filter; policy drop;\n{forbidden}\
         \t\tct state established,related accept\n\t\tct state invalid drop\n\
         \t\tiifname \"br0\" oifname {{ \"wan0\", \"ppp0\" }} ct state new accept\n\t}}\n}}\n"
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
    uplink: Uplink,
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
        for rules in [BANS, MASQUERADE] {
            router.tool_with_input("nft -f -", rules).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let uplink = Uplink::begin(&lab, folder.path(), OUTSIDE);
        let phone = udp(client, address("192.0.2.3:41000"));
        let patience = Some(Duration::from_millis(50));
        phone.set_read_timeout(patience).unwrap();
        let home = Self {
            file,
            uplink,
            outside: OUTSIDE,
            near: true,
            phone,
            asked: 0,
            _echo: Echo::begin(lab.server()),
            _folder: folder,
            lab,
        };
        home.write("");
        home.load_rules(None);
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
        self.uplink.renew(&self.lab, self.outside);
    }

    /// It is connected by sessions.
    pub fn dials(&self) -> bool {
        self.uplink.dials()
    }

    /// The session ends, and there is another one.
    pub fn redial(&mut self) {
        self.uplink.redial(&self.lab, self.outside);
    }

    /// The provider gives another address: what went by the old one has ended.
    pub fn move_house(&mut self) {
        self.outside = "198.51.100.7";
        self.uplink.renumber(&self.lab, self.outside);
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
