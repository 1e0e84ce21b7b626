// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon with the capabilities of its unit, and no others. Where nf_conntrack is a module, as Debian has it, programs
//! load otherwise than where the kernel has it built in.

use freeway_testkit::{Router, address, build, path, udp_ends};

use super::*;

fn confined(without: &str) -> Command {
    let unit = include_str!("../../packaging/freeway.service");
    freeway_testkit::confined(unit, "freeway", without)
}

#[test]
fn the_units_capabilities_are_enough() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a daemon needs root");
        return;
    }
    let lab = build("nat");
    let router = Router::start_as(
        &lab,
        "[policy]\nroutes = true\n",
        confined(""),
        &["lan0", "wan0"],
    );
    let ends = udp_ends(&lab);
    let server = address(freeway_testkit::SERVER);
    router.wait_fast_while("proto udp", 2, 1, || path::send(&ends, server, 5));
    router.stop();
}

#[test]
fn a_module_that_may_not_be_looked_at_is_named() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a daemon needs root");
        return;
    }
    if freeway_datapath::has_builtin_kfunc(c"bpf_skb_ct_lookup") {
        println!("skipped: nf_conntrack is no module here");
        return;
    }
    let lab = build("nat");
    let mut program = confined("CAP_SYS_ADMIN");
    let output = lab.router().place(program.arg("run")).unwrap().output();
    let output = output.unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{line}");
    assert!(
        line.contains("CAP_SYS_ADMIN") && line.contains("nf_conntrack"),
        "{line}"
    );
}
