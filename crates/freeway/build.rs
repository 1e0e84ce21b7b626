// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs the program's own relocations (DT_RELR): a fiftieth of what it takes on a router's flash.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    // Debian's linkers for other machines do not know them, nor does musl's start-up code before 1.2.4
    if target("ARCH") == "x86_64" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
