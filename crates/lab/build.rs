// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the lab's BPF programs and generates their skeletons.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PROGRAMS: [&str; 12] = [
    "fib",
    "flowtable",
    "generator",
    "lpm",
    "reflector",
    "sink",
    "rate",
    "reference",
    "stream",
    "meter",
    "tally",
    "xmit",
];

/// `CLANG`, else Debian 12's versioned name, else whatever `clang` is.
fn clang() -> PathBuf {
    if let Some(clang) = env::var_os("CLANG") {
        return clang.into();
    }
    let versioned = Command::new("clang-19").arg("--version").output();
    if versioned.is_ok_and(|output| output.status.success()) {
        "clang-19".into()
    } else {
        "clang".into()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let host = env::var("HOST")?;
    let arch = host.split('-').next().unwrap_or_default();
    // Debian keeps <asm/types.h> in a folder that clang does not search for the BPF target, where it is the same on all machines.
    let multiarch = format!("/usr/include/{arch}-linux-gnu");
    for entry in fs::read_dir("bpf")? {
        println!("cargo:rerun-if-changed={}", entry?.path().display());
    }
    for name in PROGRAMS {
        let mut builder = libbpf_cargo::SkeletonBuilder::new();
        builder
            .source(Path::new("bpf").join(format!("{name}.bpf.c")))
            .clang(clang())
            .clang_args(["-Wall", "-Werror", "-mcpu=v3", "-idirafter", &multiarch]);
        builder.build_and_generate(out.join(format!("{name}.skel.rs")))?;
    }
    Ok(())
}
