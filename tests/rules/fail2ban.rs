// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's fail2ban, with its action `nftables` and the chain ahead of connection tracking, as docs/scrubber.md has it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{PATIENCE, TCP, arrived, nft, packet, settled, udp_from, wait};

const ACTION: &str =
    "nftables[type=allports, chain_hook=prerouting, chain_priority=-300, blocktype=drop]";
const JAIL: &str = "test";
const SET: &str = "inet f2b-table addr-set-test";
const BANNED: &str = "192.0.2.66";

/// A server with a jail that looks for `bad ADDRESS` in a file. It ends with this value.
struct Fail2ban<'a> {
    netns: &'a Netns,
    directory: &'a Path,
    child: Child,
}

/// Debian's action, and a jail.
fn configure(directory: &Path) {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::create_dir(directory.join("action.d")).unwrap();
    fs::copy(
        "/etc/fail2ban/action.d/nftables.conf",
        directory.join("action.d/nftables.conf"),
    )
    .unwrap();
    let at = directory.display();
    write("log", String::new());
    write(
        "fail2ban.conf",
        format!(
            "[Definition]\nloglevel = INFO\nlogtarget = {at}/fail2ban.log\nsyslogsocket = auto\n\
             socket = {at}/socket\npidfile = {at}/pid\ndbfile = {at}/bans.sqlite3\ndbpurgeage = 1d\n\
             dbmaxmatches = 10\nallowipv6 = no\n[Thread]\n"
        ),
    );
    write(
        &format!("filter.d/{JAIL}.conf"),
        "[Definition]\nfailregex = ^bad <ADDR>$\ndatepattern = {NONE}\n".into(),
    );
    write(
        "jail.conf",
        format!(
            "[{JAIL}]\nenabled = true\nfilter = {JAIL}\nlogpath = {at}/log\nbackend = polling\nusedns = no\n\
             maxretry = 1\nfindtime = 1h\nbantime = 1h\naction = {ACTION}\n"
        ),
    );
}

impl<'a> Fail2ban<'a> {
    fn start(netns: &'a Netns, directory: &'a Path) -> Self {
        let mut command = Command::new("fail2ban-server");
        command.arg("-c").arg(directory).args(["-f", "-x", "start"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = netns.spawn(&mut command).unwrap();
        let server = Self {
            netns,
            directory,
            child,
        };
        until("fail2ban's jail is there", PATIENCE, || {
            server.client(&["status", JAIL]).ok()
        });
        server
    }

    fn client(&self, words: &[&str]) -> Result<String, String> {
        let line = format!(
            "fail2ban-client -c {} {}",
            self.directory.display(),
            words.join(" ")
        );
        self.netns.tool(&line).map_err(|error| error.to_string())
    }

    /// As a service ends.
    fn stop(mut self) {
        kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        until("fail2ban has ended", PATIENCE, || {
            self.child.try_wait().unwrap()
        });
    }
}

impl Drop for Fail2ban<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dropped(router: &Router) -> u64 {
    router.json(&["drops"])["dropped"]["packets"]
        .as_u64()
        .unwrap()
}

/// TCP of whom is banned is dropped in XDP; others arrive, and so does what the action does not name.
fn tell_apart(lab: &Lab, router: &Router, banned: bool) {
    let syn = |last| packet([192, 0, 2, last], TCP, 22);
    let frames: Vec<_> = (0..20)
        .flat_map(|_| [syn(66), syn(67), udp_from(66)])
        .collect();
    let dropped_of = || {
        let before = dropped(router);
        let there = arrived(lab, &frames);
        let wanted = if banned { 40 } else { 60 };
        assert_eq!(there.values().sum::<usize>(), wanted, "{there:?}");
        dropped(router) - before
    };
    if !banned {
        return assert_eq!(dropped_of(), 0);
    }
    // one packet a second is the kernel's, and so is all of them while the daemon is late
    until("who is banned is dropped in XDP", PATIENCE, || {
        (15..=20).contains(&dropped_of()).then_some(())
    });
}

fn no_rules(drops: &Value) -> bool {
    drops["rules"].as_array().unwrap().is_empty()
}

#[test]
fn bans_of_fail2ban_are_dropped_in_xdp() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path());
    let router = Router::start(&lab);
    let server = Fail2ban::start(lab.router(), directory.path());
    fs::write(directory.path().join("log"), format!("bad {BANNED}\n")).unwrap();
    wait(&router, "a ban", settled(1, 1));
    tell_apart(&lab, &router, true);
    server.client(&["set", JAIL, "unbanip", BANNED]).unwrap();
    wait(&router, "no ban", settled(1, 0));
    tell_apart(&lab, &router, false);
    server.client(&["set", JAIL, "banip", BANNED]).unwrap();
    wait(&router, "a ban by hand", settled(1, 1));
    tell_apart(&lab, &router, true);

    // it takes its table with it, and brings the ban back
    server.stop();
    wait(&router, "the action's end", no_rules);
    tell_apart(&lab, &router, false);
    let server = Fail2ban::start(lab.router(), directory.path());
    wait(&router, "a ban of before", settled(1, 1));
    tell_apart(&lab, &router, true);

    nft(&lab, &format!("flush set {SET}"));
    wait(&router, "an empty set", settled(1, 0));
    tell_apart(&lab, &router, false);
    // it does not know
    server.client(&["set", JAIL, "unbanip", BANNED]).ok();
    server.client(&["set", JAIL, "banip", BANNED]).unwrap();
    wait(&router, "a ban after the flush", settled(1, 1));
    tell_apart(&lab, &router, true);
    // what `systemctl reload nftables` does to it
    nft(&lab, "flush ruleset");
    wait(&router, "a ruleset without it", no_rules);
    tell_apart(&lab, &router, false);
    server.stop();
    router.stop();
}
