// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenWrt's configuration, as `uci show freeway` has it, becomes one that the daemon takes.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/openwrt/freeway/files")
        .join(name)
}

fn translated(shown: &str) -> Output {
    let mut child = Command::new("sh")
        .arg(file("freeway-uci"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // one that refuses reads no further
    let _ = child.stdin.take().unwrap().write_all(shown.as_bytes());
    child.wait_with_output().unwrap()
}

fn toml(shown: &str) -> String {
    let output = translated(shown);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "");
    String::from_utf8(output.stdout).unwrap()
}

/// What `freeway config COMMAND` says of it, and whether it takes it.
fn told(command: &str, name: &str, toml: &str) -> (bool, String) {
    let path = std::env::temp_dir().join(format!("freeway-{}-{name}", std::process::id()));
    std::fs::write(&path, toml).unwrap();
    let output = freeway_testkit::freeway()
        .args(["config", command])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// Each option that the translator knows, so that one that the daemon no longer has is noticed.
const ALL: &str = "\
freeway.main=freeway
freeway.main.enabled='1'
freeway.flows=flows
freeway.flows.max='200000'
freeway.flows.tcp_idle_s='61'
freeway.flows.udp_idle_s='031'
freeway.policy=policy
freeway.policy.tcp='1'
freeway.policy.udp='on'
freeway.policy.icmp='true'
freeway.policy.tunnels='yes'
freeway.policy.multicast='enabled'
freeway.policy.bridging='0'
freeway.policy.drops='off'
freeway.policy.routes='false'
freeway.policy.udp_one_way='disabled'
freeway.@exclude[0]=exclude
freeway.@exclude[0].proto='udp'
freeway.@exclude[0].src='192.0.2.0/24' '2001:db8::/32'
freeway.@exclude[0].dst='198.51.100.7'
freeway.@exclude[0].sport='5060'
freeway.@exclude[0].dport='53' '5060-5061'
freeway.@exclude[0].port='wan0'
freeway.@exclude[1]=exclude
freeway.@exclude[1].proto='gre'
freeway.limits=limits
freeway.limits.fragment='10000'
freeway.limits.miss_close='50000'
freeway.@limit[0]=limit
freeway.@limit[0].port='wan0'
freeway.@limit[0].proto='syn'
freeway.@limit[0].packets_per_s='200'
freeway.@limit[0].burst='64'
freeway.@limit[0].prefix_len4='32'
freeway.@limit[0].prefix_len6='64'
freeway.@port[0]=port
freeway.@port[0].path='tc'
freeway.@port[0].name='eth0.7'
freeway.@port[0].wire_true='0'
freeway.@port[0].routes='1'
freeway.accounting=accounting
freeway.accounting.active_s='60'
freeway.accounting.idle_s='30'
freeway.accounting.hosts='192.168.1.0/24'
freeway.cfg0a1b2c=export
freeway.cfg0a1b2c.collector='192.0.2.9:4739'
freeway.cfg0a1b2c.format='ipfix'
freeway.cfg0a1b2c.transport='udp'
freeway.cfg0a1b2c.biflow='0'
freeway.cfg0a1b2c.domain='7'
freeway.cfg0a1b2c.template_s='60'
freeway.cfg0a1b2c.template_messages='100'
freeway.cfg0a1b2c.mtu='1400'
freeway.cfg0a1b2c.queue='64'
freeway.web=web
freeway.web.listen='127.0.0.1:8081'
freeway.web.token_file='/etc/it'\\''s a \"token\"'
freeway.web.hosts='router.lan'
freeway.daemon=daemon
freeway.daemon.interfaces='eth0' 'eth1'
freeway.daemon.socket='/run/freeway/other.sock'
freeway.daemon.log='warn'
freeway.daemon.metrics='127.0.0.1:9100'
freeway.daemon.rcvbuf_bytes='4194304'
";

#[test]
fn all_that_uci_may_say_the_daemon_takes() {
    let toml = toml(ALL);
    let (taken, shown) = told("show", "all.toml", &toml);
    assert!(taken, "{shown}\n{toml}");
    for expected in [
        "max = 200000",
        "udp_idle_s = 31",
        "bridging = false",
        "tunnels = true",
        r#"log = "warn""#,
        "fragment = 10000",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    for expected in [
        "\n[[policy.exclude]]\nproto = \"udp\"\nsrc = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n",
        "\n[port.\"eth0.7\"]\npath = \"tc\"\n",
        "\ntoken_file = \"/etc/it's a \\\"token\\\"\"\n",
        "\ninterfaces = [\"eth0\", \"eth1\"]\n",
    ] {
        assert!(toml.contains(expected), "{expected}: {toml}");
    }
}

#[test]
fn nothing_said_is_the_defaults() {
    let toml = toml("freeway.main=freeway\nfreeway.main.enabled='0'\n");
    assert!(toml.lines().all(|line| line.starts_with('#')), "{toml}");
    assert!(told("check", "none.toml", &toml).0);
}

/// A value cannot become a key, a table or a second value.
#[test]
fn a_value_stays_a_value() {
    let toml = toml(
        "freeway.daemon=daemon\nfreeway.daemon.socket='a\"]\\n[flows] '\\''max=1#'\n\
         freeway.daemon.interfaces='x\", \"y'\n",
    );
    assert_eq!(toml.lines().filter(|line| line.starts_with('[')).count(), 1);
    assert!(
        toml.contains(r#"socket = "a\"]\\n[flows] 'max=1#""#),
        "{toml}"
    );
    assert!(toml.contains(r#"interfaces = ["x\", \"y"]"#), "{toml}");
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    for (shown, words) in [
        ("freeway.x=flow", "x: there are no sections \"flow\""),
        (
            "freeway.f=flows\nfreeway.f.maximum='1'",
            "f.maximum: there is no such option in \"flows\"",
        ),
        (
            "freeway.f=flows\nfreeway.f.max='many'",
            "f.max: \"many\" is no number",
        ),
        (
            "freeway.f=flows\nfreeway.f.max='1' '2'",
            "f.max: is one value, no list",
        ),
        (
            "freeway.p=policy\nfreeway.p.tcp='perhaps'",
            "p.tcp: \"perhaps\" is neither 1 nor 0",
        ),
        (
            "freeway.a=flows\nfreeway.b=flows",
            "b: there is a section \"flows\" already",
        ),
        (
            "freeway.@port[0]=port\nfreeway.@port[0].path='tc'",
            "@port[0]: a port needs a name",
        ),
        (
            "freeway.main=freeway\nfreeway.main.enable='1'",
            "main.enable: there is no such option",
        ),
        ("network.lan=interface", "cannot read"),
    ] {
        let output = translated(&format!("{shown}\n"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("freeway-uci: "), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
}
