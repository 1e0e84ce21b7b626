// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab whose router's ports are the engine's.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_lab::frame::{MAC_LAN, MAC_WAN, mac_text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::log::Log;
use crate::{Moment, POLL, program, until};

/// DPDK starts in a second where the machine is not busy.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);

/// An engine in a lab's router; dropping it ends it.
#[derive(Debug)]
pub struct Engine {
    pub child: Child,
    config: NamedTempFile,
    log: Log,
}

/// The program, to be run anywhere.
pub fn engine() -> Command {
    let mut command = Command::new(program("freeway-engine"));
    command.env("NO_COLOR", "1");
    command
}

/// Hands the devices of the router's ports to an engine's: they get other names, and no addresses. Returns the
/// configuration of that engine.
pub fn take_ports(lab: &Lab) -> String {
    let mut config =
        String::from("[engine]\ncore = 0\nhuge_pages = false\nmemory_mib = 64\nidle = \"sleep\"\n");
    for (number, (name, mac)) in [("lan0", MAC_LAN), ("wan0", MAC_WAN)]
        .into_iter()
        .enumerate()
    {
        let tool = |line: &str| lab.router().tool(line).unwrap();
        tool(&format!("ip link set {name} down"));
        tool(&format!("ip address flush dev {name}"));
        // packet sockets are given merged frames, longer than their buffers
        tool(&format!("ethtool -K {name} gro off"));
        // what is for the TAP's address, the kernel drops there
        tool(&format!(
            "ip link set {name} name d{name} address 02:00:00:00:aa:0{number} promisc on up"
        ));
        config += &format!(
            "[engine.port.{name}]\nvdev = \"net_af_packet{number},iface=d{name}\"\nmac = \"{}\"\n",
            mac_text(mac)
        );
    }
    config
}

impl Engine {
    /// Starts an engine for the ports of a lab that has been taken from the kernel, waits for its TAPs, and gives them the
    /// addresses that the ports had.
    pub fn start(lab: &Lab, config_toml: &str) -> Engine {
        let engine = Self::start_again(lab, config_toml);
        let plan = lab.topology().family.plan();
        let nodad = if plan.lan.is_ipv6() { " nodad" } else { "" };
        for (name, address) in [("lan0", plan.lan), ("wan0", plan.wan)] {
            let tool = |line: &str| lab.router().tool(line).unwrap();
            tool(&format!("ip link set {name} up"));
            let len = plan.prefix_len;
            tool(&format!("ip address add {address}/{len} dev {name}{nodad}"));
        }
        engine
    }

    /// Starts one whose TAPs may be there with all that was configured on them.
    pub fn start_again(lab: &Lab, config_toml: &str) -> Engine {
        let config = NamedTempFile::new().unwrap();
        std::fs::write(config.path(), config_toml).unwrap();
        let mut command = engine();
        command.args(["run", "--config"]).arg(config.path());
        let mut child = lab
            .router()
            .spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()))
            .unwrap();
        let log = Log::of(&mut child);
        let mut engine = Engine { child, config, log };
        let end = Moment::now() + START;
        while !has_carrier(lab, "lan0") || !has_carrier(lab, "wan0") {
            let ended = engine.child.try_wait().unwrap();
            if ended.is_some() || Moment::now() > end {
                let _ = engine.child.kill();
                panic!("the engine is not ready: {ended:?}\n{}", engine.log());
            }
            thread::sleep(POLL);
        }
        engine
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

/// True if the interface is there, and has a link, or would have one if it were up.
fn has_carrier(lab: &Lab, name: &str) -> bool {
    let shown = lab.router().tool(&format!("ip -j link show dev {name}"));
    let shown: Option<Value> = shown.ok().and_then(|text| serde_json::from_str(&text).ok());
    let flags = shown.map(|links| links[0]["flags"].to_string());
    flags.is_some_and(|flags| !flags.contains("NO-CARRIER"))
}
