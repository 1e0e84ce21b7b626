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
