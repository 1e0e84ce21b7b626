// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two routers as docs/two-routers.md sets them up: Freeway, keepalived and conntrackd on each.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::pair::{OWN, Pair};
use freeway_testkit::{Moment, Router, freeway, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::watch::Watch;

/// Daemons may wait for timers of their own.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What belongs to a router is in a directory of this name.
const NAMES: [&str; 2] = ["first", "second"];

/// How the daemons are set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The virtual routers have MAC addresses of their own.
    pub vmac: bool,
    /// conntrackd keeps what it hears to itself until its router is to forward; otherwise the kernel gets it at once.
    pub cache: bool,
    /// Between two advertisements.
    pub advert: Duration,
}

/// A pair in operation.
pub struct Site {
    setup: Setup,
    routers: [Option<Member>; 2],
    pub watch: Watch,
    pub pair: Pair,
    directory: TempDir,
}

/// What runs on a router.
pub struct Member {
    pub freeway: Router,
    keepalived: Daemon,
    conntrackd: Daemon,
}

/// A process with its children, all of which end with it.
struct Daemon {
    child: Child,
    /// The file with the number of a child.
    below: Option<PathBuf>,
    over: bool,
}

impl Daemon {
    fn numbers(&self) -> Vec<Pid> {
        let below = self.below.as_ref().and_then(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.trim().parse().ok()
        });
        let own = self.child.id().cast_signed();
        [own].into_iter().chain(below).map(Pid::from_raw).collect()
    }

    /// Not to itself alone: a child that outlives its parent would put in order what a crash leaves.
    fn signal(&self, signal: Signal) {
        for number in self.numbers() {
            let _ = kill(number, signal);
        }
    }

    /// Its numbers are others' afterwards.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.signal(Signal::SIGSTOP);
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

impl Member {
    /// Of all daemons.
    pub fn signal(&self, signal: Signal) {
        self.keepalived.signal(signal);
        self.conntrackd.signal(signal);
        self.freeway.signal(signal);
    }

    /// keepalived ends without being able to do anything.
    pub fn kill_keepalived(&self) {
        self.keepalived.signal(Signal::SIGSTOP);
        self.keepalived.signal(Signal::SIGKILL);
    }
}

impl Site {
    /// Both routers, the first one the master.
    pub fn start(setup: Setup) -> Site {
        let pair = Pair::build().unwrap();
        let mut site = Site {
            setup,
            routers: [None, None],
            watch: Watch::start(&pair),
            pair,
            directory: tempfile::tempdir().unwrap(),
        };
        let via = "ip route add default via 192.0.2.1";
        site.pair.client().tool(via).unwrap();
        for router in 0..2 {
            let netns = site.pair.router(router);
            netns
                .tool_with_input("nft -f -", &block("### nftables"))
                .unwrap();
            for line in block("### sysctl").lines() {
                let (name, value) = line.split_once(" = ").unwrap();
                netns.sysctl(&name.replace('.', "/"), value).unwrap();
            }
        }
        for router in 0..2 {
            site.start_router(router);
        }
        site.wait_master(0);
        site
    }

    /// Starts what runs on a router.
    pub fn start_router(&mut self, router: usize) {
        let directory = self.directory.path().join(NAMES[router]);
        fs::create_dir_all(&directory).unwrap();
        let conntrackd = self.start_conntrackd(router, &directory);
        let freeway = Router::start_until(
            self.pair.router(router),
            &self.pair.config_toml(),
            freeway(),
            &[],
            |status| {
                let fast = |name| {
                    let ports = status["ports"].as_array().unwrap();
                    ports
                        .iter()
                        .any(|port| port["name"] == name && port["state"] == "fast")
                };
                fast("lan0") && fast("wan0")
            },
        );
        let keepalived = self.start_keepalived(router, &directory);
        self.routers[router] = Some(Member {
            freeway,
            keepalived,
            conntrackd,
        });
    }

    pub fn member(&self, router: usize) -> &Member {
        self.routers[router].as_ref().unwrap()
    }

    /// A router without power: its links are dead at once, and so is what ran on it.
    pub fn cut_power(&mut self, router: usize) {
        self.set_links(router, "down");
        self.netns_tool(router, "ip link set sync0 down");
        let member = self.routers[router].take().unwrap();
        member.signal(Signal::SIGKILL);
        drop(member);
    }

    /// It comes back as it would after a start: without the state of before.
    pub fn give_power(&mut self, router: usize) {
        for net in ["192.0.2.1/24", "198.51.100.1/24"] {
            let netns = self.pair.router(router);
            for port in ["lan0", "wan0"] {
                let _ = netns.tool(&format!("ip address del {net} dev {port}"));
            }
        }
        for device in ["vrrp.51", "vrrp.52"] {
            let _ = self
                .pair
                .router(router)
                .tool(&format!("ip link del {device}"));
        }
        self.netns_tool(router, "conntrack -F");
        self.netns_tool(router, "ip link set sync0 up");
        self.set_links(router, "up");
        self.start_router(router);
    }

    pub fn restart_keepalived(&mut self, router: usize) {
        let directory = self.directory.path().join(NAMES[router]);
        // or the new one's numbers would be taken for its
        self.routers[router].as_mut().unwrap().keepalived.end();
        let keepalived = self.start_keepalived(router, &directory);
        self.routers[router].as_mut().unwrap().keepalived = keepalived;
    }

    /// Ends both routers; what they sent was right.
    pub fn end(mut self) {
        for member in &mut self.routers {
            let member = member.take().unwrap();
            member.kill_keepalived();
            member.freeway.stop();
        }
        self.watch.end();
    }

    fn netns_tool(&self, router: usize, line: &str) -> String {
        self.pair.router(router).tool(line).unwrap()
    }

    /// The switch's port of the LAN at which a router is.
    pub fn set_link(&self, router: usize, state: &str) {
        let [lan, _] = self.pair.ends(router);
        let line = format!("ip link set {} {state}", lan.name);
        lan.netns.tool(&line).unwrap();
    }

    /// The switches' ports at which a router is.
    fn set_links(&self, router: usize, state: &str) {
        for end in self.pair.ends(router) {
            let line = format!("ip link set {} {state}", end.name);
            end.netns.tool(&line).unwrap();
        }
    }

    /// True if a router has the virtual addresses.
    pub fn is_master(&self, router: usize) -> bool {
        let shown = self.netns_tool(router, "ip -o -4 address show");
        ["192.0.2.1/24", "198.51.100.1/24"]
            .iter()
            .all(|address| shown.contains(&format!(" {address} ")))
    }

    /// True if a router's connections have been brought up to date.
    fn is_ready(&self, router: usize) -> bool {
        let state = self.directory.path().join(NAMES[router]);
        let state = fs::read_to_string(state.join("state"));
        state.is_ok_and(|state| state.trim_end().ends_with("primary"))
    }

    pub fn wait_master(&self, router: usize) {
        self.wait(&format!("router {router} is not the master"), || {
            self.is_master(router) && self.is_ready(router)
        });
    }

    /// With a MAC address of its own the gateway is a macvlan: tc forwards what comes in there.
    pub fn check_vmac(&self, router: usize) {
        let freeway = &self.member(router).freeway;
        let status = freeway.status();
        let ports = status["ports"].as_array().unwrap();
        for (name, other) in [("vrrp.51", "wan0"), ("vrrp.52", "lan0")] {
            let port = ports.iter().find(|port| port["name"] == name).unwrap();
            assert_eq!(
                (&port["state"], &port["path"]),
                (&"fast".into(), &"tc".into())
            );
            println!("{name}: {}", port["reasons"]);
            let flows = freeway.flows("proto tcp");
            let through = |flow: &&Value| {
                flow["port_in"] == name && flow["port_out"] == other && flow["path"] == "tc"
            };
            assert!(flows.iter().any(|flow| through(&flow)), "{flows:#?}");
        }
    }

    pub fn wait_backup(&self, router: usize) {
        self.wait(&format!("router {router} is not the backup"), || {
            !self.is_master(router)
        });
    }

    /// Waits; `otherwise` is said with what all daemons have logged.
    #[track_caller]
    fn wait(&self, otherwise: &str, reached: impl Fn() -> bool) {
        let end = Moment::now() + PATIENCE;
        while !reached() {
            assert!(Moment::now() < end, "{otherwise}:\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a router has heard of so many connections of the other one.
    pub fn wait_heard(&self, router: usize, connections: usize) {
        let config = self.config(router, "conntrackd.conf");
        let line = match self.setup.cache {
            true => format!("conntrackd -C {} -e", config.display()),
            false => "conntrack -L -p tcp".into(),
        };
        until("conntrackd has heard of all connections", PATIENCE, || {
            let text = self.netns_tool(router, &line);
            let there = text.lines().filter(|line| line.contains("ESTABLISHED"));
            (there.count() >= connections).then_some(())
        });
    }

    /// What keepalived, conntrackd and the script said; for who looks at a failure.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for router in NAMES {
            for file in [
                "keepalived.log",
                "conntrackd.log",
                "conntrackd.out",
                "state",
            ] {
                let path = self.directory.path().join(router).join(file);
                let log = fs::read_to_string(path).unwrap_or_default();
                text += &format!("--- {router}: {file}\n{log}\n");
            }
        }
        text
    }

    fn config(&self, router: usize, file: &str) -> PathBuf {
        let directory = self.directory.path().join(NAMES[router]);
        directory.join(file)
    }

    fn start_keepalived(&self, router: usize, directory: &Path) -> Daemon {
        let at = |file: &str| directory.join(file);
        // one that was killed has left its numbers, which another process may have by now
        for file in ["state", "keepalived.pid", "vrrp.pid"] {
            let _ = fs::remove_file(at(file));
        }
        let script = at("pair.sh");
        fs::write(&script, self.script(router)).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let config = at("keepalived.conf");
        fs::write(&config, self.keepalived_conf(router, &script)).unwrap();
        let log = File::create(at("keepalived.log")).unwrap();
        let below = at("vrrp.pid");
        let mut command = Command::new("keepalived");
        command.args(["--dont-fork", "--log-console", "--vrrp", "--dont-respawn"]);
        command.arg("--use-file").arg(config);
        command.arg("--pid").arg(at("keepalived.pid"));
        command.arg("--vrrp_pid").arg(&below);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Daemon {
            child: self.pair.router(router).spawn(&mut command).unwrap(),
            below: Some(below),
            over: false,
        }
    }

    fn keepalived_conf(&self, router: usize, script: &Path) -> String {
        let mut config = block("### keepalived");
        let advert = self.setup.advert.as_secs_f64();
        let priority = [150, 100][router];
        for (from, to) in [
            ("/etc/keepalived/pair.sh", script.display().to_string()),
            ("advert_int 0.1", format!("advert_int {advert}")),
            ("priority 150", format!("priority {priority}")),
            // a temporary directory is writable for all
            ("    enable_script_security\n", String::new()),
        ] {
            config = replaced(&config, from, &to);
        }
        if self.setup.vmac {
            let lines = block("For virtual MAC addresses");
            for (port, id) in [("lan0", "51"), ("wan0", "52")] {
                let interface = format!("    interface {port}\n");
                let with = interface.clone() + &lines.replace("51", id);
                config = replaced(&config, &interface, &with);
            }
        }
        config
    }

    /// The script says when it has come to its end.
    fn script(&self, router: usize) -> String {
        let at = |file| self.config(router, file).display().to_string();
        let with = format!("conntrackd -C {} -", at("conntrackd.conf"));
        let script = replaced(&block("`/etc/keepalived/pair.sh`"), "conntrackd -", &with);
        let log = format!("exec >>{} 2>&1\ncase $1 in", at("script.log"));
        let end = format!("echo \"$1\" >>{}\n", at("state"));
        replaced(&script, "case $1 in", &log) + &end
    }

    fn start_conntrackd(&self, router: usize, directory: &Path) -> Daemon {
        let at = |file: &str| directory.join(file);
        let config = at("conntrackd.conf");
        fs::write(&config, self.conntrackd_conf(router, directory)).unwrap();
        for file in ["conntrackd.lock", "conntrackd.sock"] {
            let _ = fs::remove_file(at(file));
        }
        let log = File::create(at("conntrackd.out")).unwrap();
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(config);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = self.pair.router(router).spawn(&mut command).unwrap();
        let socket = at("conntrackd.sock");
        until("conntrackd", PATIENCE, || socket.exists().then_some(()));
        Daemon {
            child,
            below: None,
            over: false,
        }
    }

    fn conntrackd_conf(&self, router: usize, directory: &Path) -> String {
        let mut config = block("### conntrackd");
        let at = |file: &str| directory.join(file).display().to_string();
        for (from, to) in [
            ("/var/lock/conntrackd.lock", at("conntrackd.lock")),
            ("/var/run/conntrackd.sock", at("conntrackd.sock")),
            ("LogFile on", format!("LogFile {}", at("conntrackd.log"))),
        ] {
            config = replaced(&config, from, &to);
        }
        if !self.setup.cache {
            let mode = "Mode FTFW {\n        DisableExternalCache On\n";
            config = replaced(&config, "Mode FTFW {\n", mode);
        }
        if router == 1 {
            let [first, second] = OWN.map(|own| format!(".{own}\n"));
            let (addresses, ignored) = config.split_once("Address Ignore").unwrap();
            let exchanged = replaced(addresses, &first, ".x\n");
            let exchanged = replaced(&exchanged, &second, &first);
            let exchanged = replaced(&exchanged, ".x\n", &second);
            let mut ignored = ignored.to_owned();
            for net in ["192.0.2", "198.51.100"] {
                let of = |own: &str| format!("{net}{own}");
                ignored = replaced(&ignored, &of(&first), &of(&second));
            }
            config = format!("{exchanged}Address Ignore{ignored}");
        }
        config
    }
}

/// The first block of code behind these words of the page that tells how to set up a pair.
fn block(behind: &str) -> String {
    let page = include_str!("../../docs/two-routers.md");
    let (_, rest) = page.split_once(behind).unwrap();
    let (_, rest) = rest.split_once("\n```\n").unwrap();
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// The page has what a test needs otherwise.
#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not in {text}");
    text.replace(from, to)
}
