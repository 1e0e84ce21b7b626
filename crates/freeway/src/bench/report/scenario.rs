// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scenarios of a report: each is a bench command, in a short form and in a long one.

use clap::Parser;

use super::outcome::Outcome;
use crate::bench;
use crate::cli::{BenchCommand, Cli, Command};
use crate::exit::Stop;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// One word.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// `bench` command and arguments in the short form,
    quick: &'static str,
    /// how many seconds that takes,
    quick_s: f64,
    /// and in the long form.
    long: &'static str,
    /// How many seconds that takes.
    long_s: f64,
    /// CPUs that it needs.
    cpus: usize,
}

/// All of them, in the order of the page.
pub const ALL: [Definition; 9] = [
    Definition {
        name: "routed",
        title: "IPv4 routing without connection tracking",
        quick: "compare --scenario routed --runs 4 --seconds 1 --brief",
        quick_s: 26.0,
        long: "compare --scenario routed --runs 5 --seconds 20",
        long_s: 330.0,
        cpus: 1,
    },
    Definition {
        name: "routed6",
        title: "IPv6 routing without connection tracking",
        quick: "compare --scenario routed6 --runs 4 --seconds 1 --brief",
        quick_s: 26.0,
        long: "compare --scenario routed6 --runs 5 --seconds 20",
        long_s: 330.0,
        cpus: 1,
    },
    Definition {
        name: "nat",
        title: "IPv4 masquerade and a stateful firewall",
        quick: "compare --scenario nat --runs 4 --seconds 1 --brief",
        quick_s: 26.0,
        long: "compare --scenario nat --runs 5 --seconds 20",
        long_s: 330.0,
        cpus: 1,
    },
    Definition {
        name: "imx8",
        title: "Full frames in the 16 rows of the i.MX 8",
        quick: "imx8 --runs 3 --seconds 0.5",
        quick_s: 48.0,
        long: "imx8 --runs 5 --seconds 2",
        long_s: 400.0,
        cpus: 1,
    },
    Definition {
        name: "bulk",
        title: "TCP in frames of a wire",
        quick: "bulk --streams 1 --runs 3 --seconds 1 --brief",
        quick_s: 40.0,
        long: "bulk --runs 5 --seconds 5",
        long_s: 330.0,
        cpus: 2,
    },
    Definition {
        name: "multicast",
        title: "Copies of a multicast frame for 8 receivers",
        quick: "multicast --runs 3 --seconds 1",
        quick_s: 30.0,
        long: "multicast --runs 5 --seconds 4",
        long_s: 140.0,
        cpus: 2,
    },
    Definition {
        name: "flood",
        title: "Established flows in a flood of new tuples",
        quick: "flood --kind udp-dropped --runs 1 --seconds 1",
        quick_s: 30.0,
        long: "flood --runs 5 --seconds 3",
        long_s: 900.0,
        cpus: 2,
    },
    Definition {
        name: "setup",
        title: "New connections a second",
        quick: "setup --rate 20000 --seconds 4",
        quick_s: 22.0,
        long: "setup",
        long_s: 150.0,
        cpus: 2,
    },
    Definition {
        name: "shaper",
        title: "A shaped port with and without Freeway",
        quick: "shaper --runs 1 --seconds 3",
        quick_s: 25.0,
        long: "shaper --runs 5 --seconds 15",
        long_s: 300.0,
        cpus: 1,
    },
];

impl Definition {
    fn arguments(&self, quick: bool) -> &'static str {
        if quick { self.quick } else { self.long }
    }

    /// The command that measures it alone.
    pub fn command(&self, quick: bool) -> String {
        format!("freeway bench {}", self.arguments(quick))
    }

    /// How long it takes, roughly.
    pub fn seconds(&self, quick: bool) -> f64 {
        if quick { self.quick_s } else { self.long_s }
    }

    /// Why so few CPUs are not enough.
    pub fn lacks_cpus(&self, cpus: usize) -> Option<String> {
        let needed = self.cpus;
        (cpus < needed)
            .then(|| format!("needs {needed} CPUs, of which this process may use {cpus}"))
    }

    /// Measures it, with its command.
    pub fn measure(&self, quick: bool) -> Result<Outcome, Stop> {
        let command = self.command(quick);
        let parsed = Cli::try_parse_from(command.split(' '));
        let parsed = parsed.map_err(|error| Stop::failure(error.to_string()))?;
        let Command::Bench(command) = parsed.command else {
            return Err(Stop::failure(format!("`{command}` measures nothing")));
        };
        Ok(match command {
            BenchCommand::Compare(args) => Outcome::Compare(bench::compare::measured(&args)?),
            BenchCommand::Imx8(args) => Outcome::Imx8(bench::imx8::measured(&args)?),
            BenchCommand::Bulk(args) => Outcome::Bulk(bench::bulk::measured(&args)?),
            BenchCommand::Multicast(args) => Outcome::Multicast(bench::multicast::measured(&args)?),
            BenchCommand::Flood(args) => Outcome::Flood(bench::flood::measured(&args)?),
            BenchCommand::Setup(args) => Outcome::Setup(bench::setup::measured(&args)?),
            BenchCommand::Shaper(args) => Outcome::Shaper(bench::shaper::measured(&args)?),
            BenchCommand::Report(_) | BenchCommand::Diff(_) => {
                return Err(Stop::failure("a report holds no reports"));
            }
        })
    }
}

/// Their names.
pub fn names() -> [&'static str; ALL.len()] {
    ALL.map(|scenario| scenario.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_commands() {
        for scenario in ALL {
            for quick in [false, true] {
                let command = scenario.command(quick);
                let parsed = Cli::try_parse_from(command.split(' '));
                assert!(parsed.is_ok(), "{command}: {parsed:?}");
            }
        }
    }

    #[test]
    fn the_short_form_is_short() {
        let seconds: f64 = ALL.iter().map(|scenario| scenario.seconds(true)).sum();
        assert!(seconds < 300.0, "{seconds}");
    }

    #[test]
    fn one_cpu_is_too_few_for_some() {
        let why = ALL[4].lacks_cpus(1).unwrap();
        assert!(why.contains("needs 2 CPUs"), "{why}");
        assert_eq!(ALL[0].lacks_cpus(1), None);
    }
}
