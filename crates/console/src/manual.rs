// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and shell completions, from the definition of a command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::{Stop, print};

/// Writes a page for the program and one for each command to a folder, which is created if it is not there.
pub fn write_pages(command: Command, dir: &Path) -> Result<(), Stop> {
    let write = || {
        fs::create_dir_all(dir)?;
        clap_mangen::generate_to(command, dir)
    };
    write().map_err(|error| cannot_write(dir, &error))
}

/// Prints completions for a shell, or writes those for the usual three to a folder.
pub fn write_completions(mut command: Command, target: &Path) -> Result<(), Stop> {
    let name = command.get_name().to_owned();
    if let Some(shell) = target
        .to_str()
        .and_then(|name| Shell::from_str(name, true).ok())
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut text);
        return print(&String::from_utf8_lossy(&text));
    }
    let write = || {
        fs::create_dir_all(target)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command.clone(), name.as_str(), target)?;
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

    fn command() -> Command {
        Command::new("walk")
            .after_help("Exit codes:")
            .subcommand(Command::new("far").about("Walk far"))
            .subcommand(Command::new("secret").hide(true))
    }

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let man = dir.path().join("man");
        write_pages(command(), &man).unwrap();
        let page = fs::read_to_string(man.join("walk-far.1")).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
        let page = fs::read_to_string(man.join("walk.1")).unwrap();
        assert!(page.contains("Exit codes"), "{page}");
        assert!(!man.join("walk-secret.1").exists());
    }

    #[test]
    fn completions_for_three_shells() {
        let dir = tempfile::tempdir().unwrap();
        write_completions(command(), dir.path()).unwrap();
        for name in ["walk.bash", "_walk", "walk.fish"] {
            assert!(fs::metadata(dir.path().join(name)).unwrap().len() > 0);
        }
    }
}
