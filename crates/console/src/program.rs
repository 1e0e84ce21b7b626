// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the other programs of Freeway are.

use std::env;
use std::path::PathBuf;

/// A program of that name: beside this one, else in PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok()?.with_file_name(name);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join(name));
    std::iter::once(beside)
        .chain(in_path)
        .find(|program| program.is_file())
}
