// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab whose router's ports are the engine's.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::frame::{MAC_LAN, MAC_WAN, mac_text};
use freeway_lab::{Lab, Netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::log::Log;
use crate::{Moment, POLL, Router, confined, freeway, program, until};

/// DPDK starts in a second where the machine is not busy.
pub(crate) const START: Duration = Duration::from_secs(60);
/// The engine tells what it has done once a second: by then it has.
pub const TOLD: Duration = Duration::from_millis(2500);
const END: Duration = Duration::from_secs(20);

/// An engine in a lab's router; dropping it ends it.
#[derive(Debug)]
pub struct Engine {
    pub child: Child,
    config: NamedTempFile,
    log: Log,
}

/// The program, to be run anywhere, with the capabilities of its unit.
pub fn engine() -> Command {
    let unit = include_str!("../../../packaging/freeway-engine.service");
    with_environment(confined(unit, "freeway-engine", ""))
}

/// The same for a configuration.
fn engine_for(config_toml: &str) -> Command {
    // libxdp asks for programs by their numbers, which CAP_SYS_ADMIN alone may
    match config_toml.contains("net_af_xdp") {
        true => privileged_engine(),
        false => engine(),
    }
}

/// With all that the test may.
pub fn privileged_engine() -> Command {
    with_environment(Command::new(program("freeway-engine")))
}

fn with_environment(mut command: Command) -> Command {
    command.env("NO_COLOR", "1");
    // which would pin what it loads in the machine's own file system
    command.env("LIBXDP_SKIP_DISPATCHER", "1");
    command
}

/// What DPDK reaches a port by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A packet socket, which puts IPv4 fragments together.
    AfPacket,
    /// An AF_XDP socket.
    AfXdp,
    /// libpcap, whose frames may be as long as the device's.
    Pcap,
    /// A TAP beside the port's in the kernel, at a bridge with the device; its frames wake a core that sleeps.
    Tap,
}

impl Device {
    fn vdev(self, number: usize, name: &str) -> String {
        match self {
            Device::AfPacket => format!("net_af_packet{number},iface={name}"),
            // what busy polling needs is set in another namespace's /sys
            Device::AfXdp => format!("net_af_xdp{number},iface={name},busy_budget=0"),
            Device::Pcap => format!("net_pcap{number},rx_iface_in={name},tx_iface={name}"),
            Device::Tap => format!("net_tap{number},iface=t{name}"),
        }
    }
}

/// A port that is to be an engine's: its name, and the MAC address that it keeps.
pub type Face = (String, [u8; 6]);

/// Those of a lab's router.
#[must_use]
pub fn of_lab() -> [Face; 2] {
    [("lan0".into(), MAC_LAN), ("wan0".into(), MAC_WAN)]
}

/// As [`take_ports_of`], for the ports of a lab's router, and the first CPU.
pub fn take_ports(lab: &Lab) -> String {
    take_ports_of(lab.router(), 0, Device::AfPacket, &of_lab())
}

/// An engine on that CPU, but for its ports.
#[must_use]
pub fn engine_toml(core: usize) -> String {
    format!("[engine]\ncore = {core}\nhuge_pages = false\nmemory_mib = 64\nidle = \"sleep\"\n")
}

/// Hands the devices of a router's ports to an engine's on that CPU: they get other names, and no addresses. Returns the
/// configuration of that engine.
pub fn take_ports_of(router: &Netns, core: usize, device: Device, ports: &[Face]) -> String {
    let mut config = engine_toml(core);
    for (number, (name, mac)) in ports.iter().enumerate() {
        let tool = |line: &str| router.tool(line).unwrap();
        tool(&format!("ip link set {name} down"));
        tool(&format!("ip address flush dev {name}"));
        // packet sockets are given merged frames, longer than their buffers
        tool(&format!("ethtool -K {name} gro off"));
        // what is for the TAP's address, the kernel drops there; it answers no question of who has an address
        tool(&format!(
            "ip link set {name} name d{name} address 02:00:00:00:aa:0{number} arp off promisc on up"
        ));
        if device == Device::Tap {
            tool(&format!("ip tuntap add mode tap multi_queue name td{name}"));
            // it floods, and says nothing itself
            tool(&format!("ip link add b{name} type bridge mcast_snooping 0"));
            // whose frames are none of the router's filters' business; a kernel without br_netfilter has no such setting
            for family in ["ip", "ip6"] {
                let _ = router.tool(&format!(
                    "sysctl -qw net.bridge.bridge-nf-call-{family}tables=0"
                ));
            }
            for part in [format!("d{name}"), format!("td{name}")] {
                tool(&format!("ip link set {part} arp off master b{name} up"));
            }
            tool(&format!("ip link set b{name} arp off up"));
        }
        let vdev = device.vdev(number, &format!("d{name}"));
        let mac = mac_text(*mac);
        let mtu = &link(router, &format!("d{name}")).unwrap()["mtu"];
        config +=
            &format!("[engine.port.{name}]\nvdev = \"{vdev}\"\nmac = \"{mac}\"\nmtu = {mtu}\n");
    }
    config
}

/// A lab's own device makes room for an engine's TAP, or for another device.
pub fn put_aside(netns: &Netns, name: &str) {
    netns.tool(&format!("ip link set {name} down")).unwrap();
    let line = format!("ip link set {name} name wire0");
    netns.tool(&line).unwrap();
}

/// Nothing says that an interface has none; it may be down.
#[must_use]
pub fn has_carrier(netns: &Netns, name: &str) -> bool {
    let shown = netns.tool(&format!("ip -o link show dev {name}"));
    shown.is_ok_and(|shown| !shown.contains("NO-CARRIER"))
}

/// The configuration of a router whose ports XDP and an engine share.
pub fn share_ports(lab: &Lab) -> String {
    let mut config = lab.config_toml("");
    config += &engine_toml(0);
    for name in ["lan0", "wan0"] {
        config += &format!("[engine.port.{name}]\naf_xdp = true\n");
    }
    config
}

impl Engine {
    /// Starts an engine for the ports of a lab that has been taken from the kernel, waits for its TAPs, and gives them the
    /// addresses that the ports had.
    pub fn start(lab: &Lab, config_toml: &str) -> Engine {
        Self::start_as(lab, config_toml, engine_for(config_toml))
    }

    /// The same by another command.
    pub fn start_as(lab: &Lab, config_toml: &str, command: Command) -> Engine {
        let engine = Self::start_in_as(lab.router(), config_toml, &of_lab(), command);
        let plan = lab.topology().family.plan();
        let nodad = if plan.lan.is_ipv6() { " nodad" } else { "" };
        for (name, address) in [("lan0", plan.lan), ("wan0", plan.wan)] {
            let len = plan.prefix_len;
            let line = format!("ip address add {address}/{len} dev {name}{nodad}");
            lab.router().tool(&line).unwrap();
        }
        engine
    }

    /// The same of ports that are taken now. What else was configured there stays: the router's routes, permanent neighbours,
    /// addresses of lan0 by themselves.
    pub fn start_keeping(lab: &Lab, take: impl FnOnce() -> String) -> Engine {
        let tool = |line: &str| lab.router().tool(line).unwrap();
        let addresses = tool("ip -o address show dev lan0");
        let addresses = addresses.lines().filter(|line| line.contains("/32"));
        let mut kept: Vec<String> = addresses
            .filter_map(|line| line.split_whitespace().nth(3))
            .map(|address| format!("ip address add {address} dev lan0"))
            .collect();
        for neighbour in tool("ip neigh show nud permanent").lines() {
            let neighbour = neighbour.replace("PERMANENT", "nud permanent");
            kept.push(format!("ip neigh replace {neighbour}"));
        }
        for family in ["-4", "-6"] {
            let routes = tool(&format!("ip {family} route show table main"));
            let ours = routes
                .lines()
                .filter(|route| !route.contains("proto kernel"));
            kept.extend(ours.map(|route| format!("ip {family} route replace {route}")));
        }
        let engine = Self::start(lab, &take());
        for line in &kept {
            tool(line);
        }
        engine
    }

    /// Starts an engine for ports that have been taken from the kernel; its TAPs are up.
    pub fn start_in(router: &Netns, config_toml: &str, ports: &[Face]) -> Engine {
        Self::start_in_as(router, config_toml, ports, engine_for(config_toml))
    }

    fn start_in_as(router: &Netns, config_toml: &str, ports: &[Face], command: Command) -> Engine {
        let engine = Self::run(router, config_toml, ports, command);
        for (name, _) in ports {
            router.tool(&format!("ip link set {name} up")).unwrap();
        }
        engine
    }

    /// Starts one whose TAPs may be there with all that was configured on them.
    pub fn start_again(lab: &Lab, config_toml: &str) -> Engine {
        Self::run(
            lab.router(),
            config_toml,
            &of_lab(),
            engine_for(config_toml),
        )
    }

    fn run(router: &Netns, config_toml: &str, ports: &[Face], command: Command) -> Engine {
        let mut engine = Self::spawn_as(router, config_toml, command);
        let end = Moment::now() + START;
        while !ports.iter().all(|port| is_there(router, port)) {
            let ended = engine.child.try_wait().unwrap();
            if ended.is_some() || Moment::now() > end {
                let _ = engine.child.kill();
                panic!("the engine is not ready: {ended:?}\n{}", engine.log());
            }
            thread::sleep(POLL);
        }
        engine
    }

    /// Starts a daemon in its router, and waits until the ports are the engine's.
    pub fn daemon(router: &Netns, config_toml: &str, ports: &[&str]) -> Router {
        Self::daemon_for(router, config_toml, ports, ports)
    }

    /// The same, with other ports beside those.
    pub fn daemon_for(router: &Netns, config_toml: &str, all: &[&str], ports: &[&str]) -> Router {
        let by_engine = |status: &Value| {
            let there = status["ports"].as_array().unwrap();
            let fast = |name: &&str| {
                let mut of_name = there.iter().filter(|port| port["name"] == *name);
                of_name.any(|port| port["state"] == "fast" && port["path"] == "engine")
            };
            there.len() == all.len() && ports.iter().all(fast)
        };
        Router::start_until(router, config_toml, freeway(), all, by_engine)
    }

    /// Starts one, and waits for nothing.
    pub fn spawn(router: &Netns, config_toml: &str) -> Engine {
        Self::spawn_as(router, config_toml, engine_for(config_toml))
    }

    fn spawn_as(router: &Netns, config_toml: &str, mut command: Command) -> Engine {
        let config = NamedTempFile::new().unwrap();
        std::fs::write(config.path(), config_toml).unwrap();
        command.args(["run", "--config"]).arg(config.path());
        let mut child = router
            .spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()))
            .unwrap();
        let log = Log::of(&mut child);
        Engine { child, config, log }
    }

    /// Runs one that does not start; its exit code and what it says.
    pub fn refuses(router: &Netns, config_toml: &str) -> (Option<i32>, String) {
        let config = NamedTempFile::new().unwrap();
        std::fs::write(config.path(), config_toml).unwrap();
        let mut command = engine();
        command.args(["run", "--config"]).arg(config.path());
        let output = router.place(&mut command).unwrap().output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    }

    /// CPU time that its cores have used, in clock ticks, and how many they are.
    fn ticks(&self) -> (u64, u64) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let stats =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let mut sum = (0, 0);
        for stat in stats.filter(|stat| stat.contains("(rte-worker")) {
            let fields = stat.rsplit(')').next().unwrap().split_whitespace();
            // user and system: fields 14 and 15 of all
            sum.0 += fields
                .skip(11)
                .take(2)
                .map(|ticks| ticks.parse::<u64>().unwrap())
                .sum::<u64>();
            sum.1 += 1;
        }
        sum
    }

    /// Without traffic its cores sleep, for so many microseconds at a time: they wake no more often than follows, and use a
    /// fraction of their CPUs. `router` is the daemon that it has.
    pub fn sleeps(&self, router: &Router, nap_us: u64) {
        // the last report is of a second ago, and so much is between two
        const REPORTS: Duration = Duration::from_secs(2);
        // naps of a core that begins to sleep are shorter, and a frame now and then has it begin anew
        const SHORTER: u64 = 1000;
        let wakeups = || {
            let counts = router.status()["engine"]["counts"].clone();
            let cores = ["workers", "io"].map(|kind| counts[kind].as_array().unwrap().clone());
            let each = cores.concat();
            each.iter()
                .map(|core| core["wakeups"].as_u64().unwrap())
                .sum::<u64>()
        };
        let since = std::time::Instant::now();
        let (before, (ticks_before, cores)) = (wakeups(), self.ticks());
        assert!(cores > 0, "no thread of a core's");
        thread::sleep(3 * REPORTS / 2);
        let times = until("the engine's wake-ups", END, || {
            let times = wakeups() - before;
            (times > 0).then_some(times)
        });
        let ticks = self.ticks().0 - ticks_before;
        let elapsed = since.elapsed();
        let most = (elapsed + REPORTS).as_micros() as u64 / nap_us * cores + SHORTER;
        println!("{cores} cores: {times} wake-ups of at most {most}, {ticks} ticks in {elapsed:?}");
        assert!(
            times <= most,
            "{times} wake-ups, and {most} follow from naps of {nap_us} us"
        );
        // of 100 a second
        let quarter = elapsed.as_millis() as u64 / 10 / 4 * cores;
        assert!(
            ticks <= quarter,
            "{ticks} ticks, and a quarter is {quarter}"
        );
    }

    /// Its configuration.
    pub fn config(&self) -> &Path {
        self.config.path()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the engine's end", END, || self.child.try_wait().unwrap())
    }

    /// Ends it as an administrator would; it has to end well.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "{status}\n{log}");
    }

    /// The log of one that has ended.
    pub fn log(&mut self) -> String {
        self.log.take()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // DPDK's folder of a process that could not tidy up itself
        let folder = format!("/var/run/dpdk/freeway-{}", self.child.id());
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// What `ip` shows of an interface.
fn link(router: &Netns, name: &str) -> Option<Value> {
    let shown = router.tool(&format!("ip -j link show dev {name}")).ok()?;
    let shown: Value = serde_json::from_str(&shown).ok()?;
    shown.get(0).cloned()
}

/// True if the port's TAP is there as the engine wants it, and has a link, or would have one if it were up.
fn is_there(router: &Netns, (name, mac): &Face) -> bool {
    link(router, name).is_some_and(|link| {
        link["address"] == mac_text(*mac) && !link["flags"].to_string().contains("NO-CARRIER")
    })
}
