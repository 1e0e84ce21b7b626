// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway lab`: topologies to play in.

use freeway_console::{Page, Stop, Terminal, print, print_json};
use freeway_lab::{Lab, Options, TOPOLOGIES, Topology};
use freeway_rig::{RouterDaemon, prepare};

/// Says which topologies there are.
pub fn list(json: bool) -> Result<(), Stop> {
    if json {
        return print_json(&TOPOLOGIES);
    }
    let mut page = Page::new(Terminal::stdout());
    for topology in TOPOLOGIES {
        page.head(topology.name);
        page.words("  ", topology.summary);
        // Drawings are as they are.
        for line in topology.picture.trim_start_matches('\n').lines() {
            page.line(line);
        }
    }
    print(&page.finish())
}

/// Opens a shell in a topology's router, with Freeway beside it if wanted.
pub fn shell(name: &str, freeway: bool) -> Result<(), Stop> {
    let topology = Topology::parse(name)?;
    prepare()?;
    let lab = Lab::build(topology, Options::default())?;
    let daemon = if freeway {
        Some(RouterDaemon::start(&lab, "")?)
    } else {
        None
    };
    let hint = match daemon {
        Some(_) => "Freeway runs in the router:\n  freeway status\n",
        None => {
            "Freeway does not run; its configuration would have to say that these veths are wire-true:\n  freeway lab shell --freeway does that\n"
        }
    };
    let status = lab.shell(hint)?;
    drop(daemon);
    // What the last command in the shell returned is no failure of the lab.
    match status.code() {
        Some(_) => Ok(()),
        None => Err(Stop::failure(format!(
            "the shell ended by a signal ({status})"
        ))),
    }
}
