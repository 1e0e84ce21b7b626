// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and shell completions, from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Stop;
use crate::render;

const NAME: &str = "freeway";

/// Writes a page for the program and one for each command.
pub fn pages(dir: &Path) -> Result<(), Stop> {
    let write = || {
        fs::create_dir_all(dir)?;
        clap_mangen::generate_to(Cli::command(), dir)
    };
    write().map_err(|error| cannot_write(dir, &error))
}

/// Prints completions for a shell, or writes those for the usual three to a folder.
pub fn completions(target: &Path) -> Result<(), Stop> {
    let mut command = Cli::command();
    if let Some(shell) = target
        .to_str()
        .and_then(|name| Shell::from_str(name, true).ok())
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, NAME, &mut text);
        return render::print(&String::from_utf8_lossy(&text));
    }
    let write = || {
        fs::create_dir_all(target)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command.clone(), NAME, target)?;
        }
        Ok(())
    };
    write().map_err(|error| cannot_write(target, &error))
}

fn cannot_write(dir: &Path, error: &io::Error) -> Stop {
    Stop::failure(format!("cannot write to {}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn every_command_has_a_page() {
        let dir = TempDir::new();
        pages(&dir.path().join("man")).unwrap();
        for name in [
            "freeway",
            "freeway-run",
            "freeway-status",
            "freeway-explain",
            "freeway-bench-compare",
            "freeway-bench-setup",
            "freeway-bench-rfc2544",
            "freeway-bench-rfc9693",
            "freeway-bench-loop",
            "freeway-bench-generator",
            "freeway-bench-sink",
            "freeway-bench-replay",
            "freeway-bench-report",
            "freeway-bench-diff",
        ] {
            let page =
                fs::read_to_string(dir.path().join("man").join(format!("{name}.1"))).unwrap();
            assert!(page.contains(".SH NAME"), "{name}");
        }
        let page = fs::read_to_string(dir.path().join("man/freeway.1")).unwrap();
        assert!(page.contains("no daemon answers"), "exit codes are missing");
        assert!(!dir.path().join("man/freeway-man.1").exists());
    }

    #[test]
    fn completions_for_three_shells() {
        let dir = TempDir::new();
        completions(dir.path()).unwrap();
        for name in ["freeway.bash", "_freeway", "freeway.fish"] {
            assert!(fs::metadata(dir.path().join(name)).unwrap().len() > 0);
        }
    }
}
