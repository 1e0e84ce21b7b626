// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs under test.

use std::process::Command;

/// Where a program of this build is: in the folder above that of the test's own. FREEWAY names another `freeway`.
pub fn program(name: &str) -> String {
    let other = std::env::var_os("FREEWAY").filter(|_| name == "freeway");
    let path = other.unwrap_or_else(|| {
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().with_file_name(name).into()
    });
    path.into_string().unwrap()
}

/// The program, to be run anywhere.
pub fn freeway() -> Command {
    let mut command = Command::new(program("freeway"));
    command.env("NO_COLOR", "1").env_remove("FREEWAY_LOG");
    command
}

/// A program with the capabilities of its unit, of which one may be left out, and no others.
pub fn confined(unit: &str, program_name: &str, without: &str) -> Command {
    let mut lines = unit.lines();
    let names = lines.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = names.unwrap().split_whitespace();
    let names = names.filter(|name| *name != without);
    let kept = names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--bounding-set=-all{}", kept.collect::<String>()))
        .args(["--inh-caps=-all", "--no-new-privs"])
        .arg(program(program_name));
    command
}
