// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway support`: what is in the archive, with a daemon and without, and with made-up addresses.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use serde_json::Value;
use tempfile::TempDir;

/// What is in each archive, whatever runs.
const ALWAYS: [&str; 13] = [
    "README.txt",
    "config/effective.toml",
    "doctor.json",
    "doctor.txt",
    "missing.txt",
    "network/addr.json",
    "network/link.json",
    "network/neigh.json",
    "network/nft.txt",
    "network/qdisc.json",
    "network/route.json",
    "network/rule.json",
    "versions.txt",
];
/// What the daemon has to say.
const DAEMONS: [&str; 12] = [
    "daemon/command.txt",
    "daemon/drops.json",
    "daemon/explain.json",
    "daemon/flows.json",
    "daemon/limits.txt",
    "daemon/process.txt",
    "daemon/stats.json",
    "daemon/stats.txt",
    "daemon/status.json",
    "daemon/status.txt",
    "daemon/steer.json",
    "daemon/top.json",
];

/// A folder for archives.
struct Case {
    lab: Lab,
    folder: TempDir,
}

impl Case {
    fn new() -> Self {
        let (lab, folder) = (build("nat"), tempfile::tempdir().unwrap());
        Self { lab, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(self.lab.router(), self.folder.path(), arguments)
    }

    /// Writes an archive; its files.
    #[track_caller]
    fn gather(&self, name: &str, arguments: &[&str]) -> BTreeMap<String, String> {
        let output = self.run(&[&["-o", name], arguments].concat());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        let mode = std::fs::metadata(self.path(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        files(&self.path(name))
    }
}

fn run(netns: &Netns, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = freeway();
    command.arg("support").args(arguments).current_dir(folder);
    netns.place(&mut command).unwrap().output().unwrap()
}

/// What tar(1) says is in an archive.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(folder.path());
    assert!(tar.status().unwrap().success());
    let root = folder.path().join("freeway-support");
    let mut files = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            files.insert(name.to_owned(), std::fs::read_to_string(&path).unwrap());
        }
    }
    files
}

#[track_caller]
fn check_there(files: &BTreeMap<String, String>, names: &[&str]) {
    for name in names {
        let file = files.get(*name);
        assert!(
            file.is_some(),
            "{name}: {:?}\n{}",
            files.keys(),
            files["missing.txt"]
        );
        if name.ends_with(".json") {
            let value: Result<Value, _> = serde_json::from_str(&files[*name]);
            assert!(value.is_ok(), "{name}: {value:?}");
        }
    }
}

#[test]
fn an_archive_tells_of_daemon_and_machine() {
    let Some(_machine) = machine() else { return };
    let case = Case::new();
    let config = case.path("freeway.toml");
    let secret = "# the password is geheim\n[flows]\nudp_idle_s = 45\n";
    std::fs::write(&config, format!("{}\n{secret}", case.lab.config_toml(""))).unwrap();
    let router = Router::start_by(case.lab.router(), &config, |status| fast_ports(status) == 2);
    let to = "198.51.100.2:5001".parse().unwrap();
    let listener = listen(case.lab.server(), to);
    let from = "192.0.2.2:40001".parse().unwrap();
    let mut ends = pair((case.lab.client(), from), to, &listener);
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));

    let files = case.gather("plain.tar.gz", &[]);
    check_there(&files, &ALWAYS);
    check_there(&files, &DAEMONS);
    check_there(
        &files,
        &[
            "config/freeway.toml",
            "network/ethtool/lan0.txt",
            "network/ethtool/wan0.txt",
        ],
    );
    let value = |name: &str| serde_json::from_str::<Value>(&files[name]).unwrap();
    assert_eq!(value("daemon/status.json")["pid"], router.child.id());
    assert_eq!(value("daemon/flows.json").as_array().unwrap().len(), 2);
    assert_eq!(value("daemon/explain.json")[0]["verdict"], "fast");
    let links = value("network/link.json");
    let links: Vec<_> = links
        .as_array()
        .unwrap()
        .iter()
        .map(|l| &l["ifname"])
        .collect();
    assert!(links.contains(&&Value::from("wan0")), "{links:?}");
    for (name, words) in [
        ("versions.txt", "BTF present"),
        ("versions.txt", "PRETTY_NAME="),
        ("network/nft.txt", "masquerade"),
        ("network/ethtool/lan0.txt", "driver: veth"),
        ("config/freeway.toml", "udp_idle_s = 45"),
        ("config/effective.toml", "tcp_idle_s = 60"),
        ("daemon/command.txt", "run --config"),
        ("doctor.txt", "Freeway can"),
        ("network/neigh.json", "198.51.100.2"),
    ] {
        assert!(files[name].contains(words), "{words}: {}", files[name]);
    }
    for (name, text) in &files {
        assert!(!text.contains("geheim"), "{name}: {text}");
    }

    let made_up = case.gather("redacted.tar.gz", &["--redact"]);
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&files), names(&made_up));
    check_there(&made_up, &ALWAYS);
    check_there(&made_up, &DAEMONS);
    let macs = links_of(&files, "address");
    for (name, text) in &made_up {
        // README tells which are made up
        let real = ["192.0.2.", "198.51.100."]
            .into_iter()
            .chain(macs.iter().map(String::as_str));
        for address in real {
            assert!(!text.contains(address), "{address} in {name}: {text}");
        }
    }
    // the server's is one wherever it stands
    let flows: Value = serde_json::from_str(&made_up["daemon/flows.json"]).unwrap();
    let there = flows
        .as_array()
        .unwrap()
        .iter()
        .find(|flow| flow["dport"] == 5001);
    let server = there.unwrap()["dst"].as_str().unwrap().to_owned();
    assert!(server.starts_with("240."), "{server}");
    assert!(made_up["network/neigh.json"].contains(&format!("\"{server}\"")));

    let before = std::fs::read(case.path("plain.tar.gz")).unwrap();
    let output = case.run(&["-o", "plain.tar.gz"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("plain.tar.gz: File exists"), "{line}");
    assert_eq!(std::fs::read(case.path("plain.tar.gz")).unwrap(), before);
    router.stop();
}

fn links_of(files: &BTreeMap<String, String>, field: &str) -> Vec<String> {
    let links: Value = serde_json::from_str(&files["network/link.json"]).unwrap();
    let links = links.as_array().unwrap().iter();
    let values = links
        .filter(|link| link["ifname"] != "lo")
        .map(|link| &link[field]);
    values
        .map(|value| value.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn without_a_daemon_it_says_what_is_missing() {
    let Some(_machine) = machine() else { return };
    let case = Case::new();
    let output = case.run(&["--json"]);
    let support: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = support["file"].as_str().unwrap();
    assert!(name.starts_with("freeway-support-2"), "{name}");
    let files = files(&case.path(name));
    check_there(&files, &ALWAYS);
    check_there(&files, &["network/ethtool/lan0.txt"]);
    let missing = &files["missing.txt"];
    assert!(
        missing.contains("daemon: no daemon serves this"),
        "{missing}"
    );
    let missing = support["missing"].as_array().unwrap();
    assert!(
        missing.iter().any(|what| what["name"] == "daemon"),
        "{support}"
    );
    assert!(!files.keys().any(|name| name.starts_with("daemon/")));

    // without any program to ask
    let mut command = freeway();
    command
        .args(["support", "-o", "bare.tar.gz"])
        .env("PATH", "/nowhere");
    command.current_dir(case.folder.path());
    let output = case
        .lab
        .router()
        .place(&mut command)
        .unwrap()
        .output()
        .unwrap();
    assert!(output.status.success());
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(
        words.contains("without network/nft.txt: nft: No such file"),
        "{words}"
    );

    let output = case.run(&["-o", "no/such/folder.tar.gz"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
}
