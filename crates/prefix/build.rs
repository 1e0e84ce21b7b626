// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the lookup natively and generates its types, from `dataplane/prefix4.h` and `prefix6.h`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let dataplane = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../dataplane");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for file in ["prefix4.h", "prefix6.h", "prefix_user.c"] {
        println!("cargo::rerun-if-changed={}", dataplane.join(file).display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("LIBCLANG_PATH").is_none() && Path::new("/usr/lib/llvm-19/lib").is_dir() {
        // SAFETY: the build script has one thread.
        unsafe { env::set_var("LIBCLANG_PATH", "/usr/lib/llvm-19/lib") };
    }
    bindgen::Builder::default()
        .header(dataplane.join("prefix4.h").to_string_lossy())
        .header(dataplane.join("prefix6.h").to_string_lossy())
        .allowlist_type("fw_p.*")
        .allowlist_var("FW_P[46]_.*")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(false)
        .layout_tests(true)
        .generate_comments(false)
        .generate()?
        .write_to_file(out.join("prefix.rs"))?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    program(&clang, &dataplane, &out)?;
    let mut native = cc::Build::new();
    native
        .compiler(clang)
        .file(dataplane.join("prefix_user.c"))
        .flag("-std=gnu11")
        .opt_level(2)
        .warnings_into_errors(true);
    println!("cargo::rerun-if-env-changed=FREEWAY_SANITIZE");
    if let Ok(sanitizers) = env::var("FREEWAY_SANITIZE") {
        native
            .flag(format!("-fsanitize={sanitizers}"))
            .flag("-fno-sanitize-recover=all");
    }
    native.compile("freeway_prefix");
    Ok(())
}

/// The test's BPF program.
fn program(clang: &str, dataplane: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let source = "bpf/lookup.bpf.c";
    println!("cargo::rerun-if-changed={source}");
    // Debian keeps `asm/types.h` in a directory named after the architecture; BPF's is the same on all of them
    let host = env::var("HOST")?;
    let arch = host.split('-').next().unwrap_or_default();
    let mut arguments = vec![
        format!("-idirafter/usr/include/{arch}-linux-gnu"),
        "-mcpu=v3".into(),
        "-Werror".into(),
        format!("-I{}", dataplane.display()),
    ];
    if env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "big") {
        // the builder says `-target bpf`, which is in the order of the machine that builds
        arguments.extend(["-Xclang", "-triple", "-Xclang", "bpfeb"].map(str::to_owned));
    }
    SkeletonBuilder::new()
        .source(source)
        .obj(out.join("lookup.o"))
        .clang(clang)
        .clang_args(arguments)
        .build()?;
    Ok(())
}
