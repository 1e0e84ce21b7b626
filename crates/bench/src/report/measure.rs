// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios of a report, measured.

use clap::Parser;
use freeway_console::Stop;

use super::outcome::Outcome;
use super::scenario::Definition;
use crate::cli::{Cli, Command};

/// Measures a scenario, with its command.
pub fn measure(scenario: &Definition, quick: bool) -> Result<Outcome, Stop> {
    let command = scenario.command(quick);
    let parsed = parse(&command).map_err(|error| Stop::failure(format!("`{command}`: {error}")))?;
    Ok(match parsed {
        Command::Compare(args) => Outcome::Compare(Box::new(crate::compare::measured(&args)?)),
        Command::Imx8(args) => Outcome::Imx8(crate::imx8::measured(&args)?),
        Command::Kirkwood(args) => Outcome::Kirkwood(Box::new(crate::kirkwood::measured(&args)?)),
        Command::Flows(args) => Outcome::Flows(crate::flows::measured(&args)?),
        Command::Bulk(args) => Outcome::Bulk(crate::bulk::measured(&args)?),
        Command::Multicast(args) => Outcome::Multicast(crate::multicast::measured(&args)?),
        Command::Rfc2544(args) => Outcome::Rfc2544(crate::rfc2544::measured(&args)?),
        Command::Rfc9693(args) => Outcome::Rfc9693(Box::new(crate::rfc9693::measured(&args)?)),
        Command::Replay(args) => Outcome::Replay(crate::replay::measured(&args)?),
        Command::Flood(args) => Outcome::Flood(crate::flood::measured(&args)?),
        Command::Drop(args) => Outcome::Drop(crate::drop::measured(&args)?),
        Command::Setup(args) => Outcome::Setup(crate::setup::measured(&args)?),
        Command::Shaper(args) => Outcome::Shaper(crate::shaper::measured(&args)?),
        Command::Loop(_)
        | Command::Generator(_)
        | Command::Sink(_)
        | Command::Engine(_)
        | Command::Qos(_)
        | Command::Lookup(_) => {
            return Err(Stop::failure("a report is of the built-in lab"));
        }
        Command::Report(_) | Command::Diff(_) => {
            return Err(Stop::failure("a report holds no reports"));
        }
        Command::Man { .. } | Command::Completions { .. } => {
            return Err(Stop::failure(format!("`{command}` measures nothing")));
        }
    })
}

fn parse(command: &str) -> Result<Command, clap::Error> {
    // the first word is `freeway`
    Cli::try_parse_from(command.split(' ').skip(1)).map(|cli| cli.command)
}

#[cfg(test)]
mod tests {
    use super::super::scenario::ALL;
    use super::*;

    #[test]
    fn commands_are_commands() {
        for scenario in ALL {
            for quick in [false, true] {
                let command = scenario.command(quick);
                let parsed = parse(&command);
                assert!(parsed.is_ok(), "{command}: {parsed:?}");
            }
        }
    }
}
