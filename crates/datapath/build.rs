// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the pipeline: XDP and tc for BPF, tc once more for ports without a link layer, and `user` natively.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, process::Command};

use flate2::{Compression, write::ZlibEncoder};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let dataplane = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../dataplane");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", dataplane.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=CFLAGS");
    let clang = clang();
    for name in [
        "xdp",
        "bridge",
        "bond",
        "tc",
        "raw",
        "watchdog",
        "hooked",
        "drops",
        "scrub",
        "ratelimit",
        "tap",
        "route",
        "route_tc",
    ] {
        SkeletonBuilder::new()
            .source(dataplane.join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.o")))
            .clang(&clang)
            // one call: a second one would replace the first
            .clang_args(flags())
            .build()?;
        pack(&out.join(name))?;
    }
    let mut native = cc::Build::new();
    native
        .compiler(&clang)
        .files(
            ["user.c", "writer.c", "ratelimit_user.c", "bucket_user.c"]
                .map(|name| dataplane.join(name)),
        )
        .flag("-std=gnu11")
        // as the BPF targets, whatever the profile: tests tell by it what a hit costs
        .opt_level(2)
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true);
    // For tests; the linker must be told too, see tests/sanitize.
    println!("cargo::rerun-if-env-changed=FREEWAY_SANITIZE");
    if let Ok(sanitizers) = env::var("FREEWAY_SANITIZE") {
        native
            .flag(format!("-fsanitize={sanitizers}"))
            .flag("-fno-sanitize-recover=all");
    }
    native.compile("freeway_user");
    println!("cargo::rustc-env=FREEWAY_USER_BUILD={}", user_build(&clang));
    Ok(())
}

/// Deflates an object, whose path has no extension.
fn pack(path: &Path) -> std::io::Result<()> {
    let packed = File::create(path.with_extension("o.z"))?;
    let mut encoder = ZlibEncoder::new(packed, Compression::best());
    encoder.write_all(&std::fs::read(path.with_extension("o"))?)?;
    encoder.finish().map(drop)
}

/// By what the native pipeline is compiled, for the test that counts its instructions.
fn user_build(clang: &str) -> String {
    let version = Command::new(clang).arg("--version").output();
    let version = version.map_or_else(|_| Vec::new(), |output| output.stdout);
    let version = String::from_utf8_lossy(&version);
    let version = version.split("clang version ").nth(1).unwrap_or_default();
    let major = version.split('.').next().unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let flags: String = ["CFLAGS", "FREEWAY_SANITIZE"]
        .iter()
        .filter_map(|name| env::var(name).ok())
        .collect();
    format!("clang {major} {arch}{flags}")
}

/// Debian names the compiler by its version.
fn clang() -> String {
    env::var("CLANG").unwrap_or_else(|_| {
        let versioned = Command::new("clang-19").arg("--version").output();
        if versioned.is_ok() {
            "clang-19"
        } else {
            "clang"
        }
        .to_owned()
    })
}

fn flags() -> Vec<String> {
    // Debian keeps `asm/types.h` in a directory named after the architecture; BPF's is the same on all of them
    let host = env::var("HOST").unwrap_or_default();
    let arch = host.split('-').next().unwrap_or_default();
    let mut flags = vec![format!("-idirafter/usr/include/{arch}-linux-gnu")];
    if env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "big") {
        // the skeleton's builder says `-target bpf`, which is in the order of the machine that builds
        flags.extend(["-Xclang", "-triple", "-Xclang", "bpfeb"].map(str::to_owned));
    }
    let options = [
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Werror",
    ];
    flags.extend(options.map(str::to_owned));
    // For scripts/prove-diff: what `bench diff` has to see.
    println!("cargo::rerun-if-env-changed=FREEWAY_SLOWED");
    if let Ok(reads) = env::var("FREEWAY_SLOWED") {
        flags.push(format!("-DFW_SLOWED={reads}"));
    }
    flags
}
