// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the candidates and the loops that measure them.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let (native, dataplane) = (own.join("native"), own.join("../../dataplane"));
    println!("cargo::rerun-if-changed={}", native.display());
    println!("cargo::rerun-if-changed={}", dataplane.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let mut files = cc::Build::new();
    files
        .compiler(env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
        .file(native.join("candidates.c"))
        .include(dataplane)
        .flag("-std=gnu11")
        // as the BPF targets
        .opt_level(2)
        .warnings_into_errors(true);
    files.compile("freeway_lookup");
    Ok(())
}
