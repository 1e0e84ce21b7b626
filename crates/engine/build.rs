// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles what runs on the engine's cores, against DPDK.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let engine = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../engine");
    println!("cargo::rerun-if-changed={}", engine.display());
    println!(
        "cargo::rerun-if-changed={}",
        engine.join("../dataplane").display()
    );
    // the loops of bench lookup
    let loops = engine.join("../crates/lookup/native");
    println!("cargo::rerun-if-changed={}", loops.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version("22.11")
        .probe("libdpdk")
        .map_err(|why| format!("DPDK 22.11 is needed, `make engine` installs it: {why}"))?;
    let mut native = cc::Build::new();
    native
        .compiler(env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
        .files(sources(&engine)?)
        .file(engine.join("../dataplane/writer.c"))
        .includes(&dpdk.include_paths)
        .include(loops)
        // as DPDK's own pkg-config file says: its inline functions need both
        .flag("-include")
        .flag("rte_config.h")
        .flag(machine())
        // joining a flow's fields in vector registers takes longer than writing them one by one
        .flag("-fno-slp-vectorize")
        .flag("-std=gnu11")
        .opt_level(3)
        .force_frame_pointer(false)
        .flag("-Wno-unused-parameter")
        .warnings_into_errors(true);
    native.compile("freeway_engine");
    for path in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    // only what is used: the drivers are plug-ins, which DPDK loads itself
    println!("cargo::rustc-link-arg=-Wl,--as-needed");
    for library in &dpdk.libs {
        println!("cargo::rustc-link-lib={library}");
    }
    // whose ports are made of rings that there are, by a call
    println!("cargo::rustc-link-lib=rte_net_ring");
    bindings(&engine)?;
    Ok(())
}

/// For which processors Debian's DPDK is compiled; pkg-config's `-march` is lost on the way.
fn machine() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-march=armv8-a+crc",
        _ => "-march=corei7",
    }
}

/// The Rust side of the engine's interfaces.
fn bindings(engine: &Path) -> Result<(), Box<dyn Error>> {
    if env::var_os("LIBCLANG_PATH").is_none() && Path::new("/usr/lib/llvm-19/lib").is_dir() {
        // SAFETY: the build script has one thread.
        unsafe { env::set_var("LIBCLANG_PATH", "/usr/lib/llvm-19/lib") };
    }
    bindgen::Builder::default()
        .headers(
            [
                "engine.h",
                "bench.h",
                "copy.h",
                "dispatch.h",
                "mirror.h",
                "rings.h",
                "schedule.h",
                "sleep.h",
                "socket.h",
                "steer.h",
                "trial.h",
                "../dataplane/writer.h",
            ]
            .map(|name| engine.join(name).to_string_lossy().into_owned()),
        )
        .allowlist_item("fwe_.*|FWE_.*|fw_table_.*|rte_mempool")
        // freeway-abi's
        .blocklist_type("fw_.*|__u.*")
        .raw_line("use freeway_abi::*;")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .layout_tests(false)
        .generate_comments(false)
        .generate()?
        .write_to_file(PathBuf::from(env::var("OUT_DIR")?).join("engine.rs"))?;
    Ok(())
}

fn sources(engine: &PathBuf) -> std::io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
