// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's Open vSwitch with DPDK: a switch of this test's own, with its database, sockets and log in a folder, without huge pages.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeway_lab::Netns;
use freeway_testkit::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// DPDK starts in a second where the machine is not busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// It takes no more of the CPU than there are frames.
const SLEEP_US_MAX: u32 = 200;
const BRIDGE: &str = "br0";

/// A switch with vhost-user ports, which connects to who listens at their sockets.
pub struct Switch {
    // dropped in order: the folder goes last
    switch: Option<Child>,
    database: Child,
    netns: Netns,
    cpu: usize,
    folder: TempDir,
}

impl Switch {
    /// In a namespace, for its own interfaces, and on a CPU; nothing, with the reason printed, where there is no such switch.
    pub fn start(netns: &Netns, cpu: usize, ports: &[&str]) -> Option<Switch> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("skipped: there is no {PROGRAM} (Debian's openvswitch-switch-dpdk)");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let create = ["create", &file("conf.db"), SCHEMA];
        let created = Command::new("ovsdb-tool").args(create).output().unwrap();
        assert!(created.status.success(), "{created:?}");
        let mut database = Command::new("ovsdb-server");
        database.args([
            file("conf.db"),
            format!("--remote=punix:{}", file("db.sock")),
            format!("--unixctl={}", file("db.ctl")),
        ]);
        let database = spawn(netns, &mut database, folder.path());
        let mut switch = Switch {
            switch: None,
            database,
            netns: netns.clone(),
            cpu,
            folder,
        };
        until("the switch's database", PATIENCE, || {
            switch.file("db.sock").exists().then_some(())
        });
        switch.configure(ports);
        switch.start_again();
        Some(switch)
    }

    /// DPDK's memory is of small pages, which is what --legacy-mem is for here: Open vSwitch adds --in-memory unless it is said, and
    /// that wants huge ones. Each port has frames of its own, 20,000; shared ones would be 262,144.
    fn configure(&self, ports: &[&str]) {
        let name = self.prefix();
        self.vsctl("init");
        let dpdk = format!(
            "--no-huge --legacy-mem --no-pci --no-shconf --no-telemetry -m 256 --file-prefix={name}"
        );
        let mask = format!("{:#x}", 1u64 << self.cpu);
        let keys = format!(
            "set Open_vSwitch . other_config:dpdk-init=true other_config:per-port-memory=true \
             other_config:dpdk-lcore-mask={mask} other_config:pmd-cpu-mask={mask} \
             other_config:pmd-maxsleep={SLEEP_US_MAX}"
        );
        let mut words: Vec<_> = keys.split_whitespace().map(str::to_owned).collect();
        words.push(format!("other_config:dpdk-extra=\"{dpdk}\""));
        self.vsctl_words(&words);
        self.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev"
        ));
        for port in ports {
            let path = self.socket(port).display().to_string();
            self.vsctl(&format!(
                "add-port {BRIDGE} {port} -- set interface {port} type=dpdkvhostuserclient \
                 options:vhost-server-path={path}"
            ));
        }
    }

    /// Starts it, or another one after [`Switch::end`].
    pub fn start_again(&mut self) {
        let mut command = Command::new(PROGRAM);
        command.args([
            format!("unix:{}", self.file("db.sock").display()),
            format!("--unixctl={}", self.file("switch.ctl").display()),
            format!("--log-file={}", self.file("switch.log").display()),
        ]);
        self.switch = Some(spawn(&self.netns, &mut command, self.folder.path()));
    }

    /// Ends it by a signal; its database stays.
    #[track_caller]
    pub fn end(&mut self, signal: Signal) {
        let mut switch = self.switch.take().unwrap();
        kill(Pid::from_raw(switch.id().cast_signed()), signal).unwrap();
        until("the switch's end", PATIENCE, || switch.try_wait().unwrap());
    }

    /// Where the switch connects to, for a port.
    pub fn socket(&self, port: &str) -> PathBuf {
        self.file(&format!("{port}.sock"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prefix(&self) -> String {
        let name = self.folder.path().file_name().unwrap();
        format!("freeway-ovs{}", name.to_string_lossy())
    }

    fn vsctl(&self, line: &str) {
        self.vsctl_words(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
    }

    #[track_caller]
    fn vsctl_words(&self, words: &[String]) {
        let mut command = Command::new("ovs-vsctl");
        let at = format!("--db=unix:{}", self.file("db.sock").display());
        let done = command.args([at, "--no-wait".into()]).args(words).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    }

    /// The end of what it says of itself.
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.file("switch.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

fn spawn(netns: &Netns, command: &mut Command, folder: &Path) -> Child {
    command.arg("--no-chdir").arg("-vconsole:off");
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, folder);
    }
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    netns.spawn(command).unwrap()
}

impl Drop for Switch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the switch says:\n{}", self.log());
        }
        for child in self.switch.iter_mut().chain([&mut self.database]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // DPDK's, of a process that could not tidy up itself
        let _ = std::fs::remove_dir_all(Path::new("/var/run/dpdk").join(self.prefix()));
    }
}
