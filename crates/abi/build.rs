// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates the Rust side of `dataplane/abi.h` and `dataplane/reasons.def`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let dataplane = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../dataplane");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", dataplane.display());
    if env::var_os("LIBCLANG_PATH").is_none() && Path::new("/usr/lib/llvm-19/lib").is_dir() {
        // SAFETY: the build script has one thread.
        unsafe { env::set_var("LIBCLANG_PATH", "/usr/lib/llvm-19/lib") };
    }
    bindgen::Builder::default()
        .header(dataplane.join("abi.h").to_string_lossy())
        .allowlist_type("fw_.*")
        .allowlist_var("FW_.*")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .derive_eq(true)
        .derive_hash(true)
        .layout_tests(true)
        .generate_comments(false)
        .generate()?
        .write_to_file(out.join("abi.rs"))?;
    fs::write(
        out.join("reasons.rs"),
        reasons(&dataplane.join("reasons.def"))?,
    )?;
    Ok(())
}

/// One line of `reasons.def` is `FW_REASON(NAME, STAGE, "words")`.
fn reasons(path: &Path) -> Result<String, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let mut entries = String::new();
    let mut count = 0;
    for line in text.lines() {
        let Some(body) = line
            .strip_prefix("FW_REASON(")
            .and_then(|l| l.strip_suffix(')'))
        else {
            continue;
        };
        let mut fields = body.splitn(3, ',').map(str::trim);
        let (Some(name), Some(stage), Some(words)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("{}: cannot read {line:?}", path.display()).into());
        };
        writeln!(
            entries,
            "    Reason {{ name: {:?}, stage: Stage::{}, words: {words}, limitable: {} }},",
            name.to_lowercase(),
            match stage {
                "FAST" => "Fast",
                "HAND" => "Hand",
                "PUNT" | "PUNT_LIMIT" => "Punt",
                "DROP" => "Drop",
                "LEARN" => "Learn",
                "KEEP" => "Keep",
                other => return Err(format!("{}: unknown stage {other}", path.display()).into()),
            },
            stage == "PUNT_LIMIT"
        )?;
        count += 1;
    }
    Ok(format!(
        "/// Every reason, by its number.\npub static REASONS: [Reason; {count}] = [\n{entries}];\n"
    ))
}
