// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway lab`: topologies to play in.

use freeway_lab::{Lab, LabError, Options, TOPOLOGIES, Topology, cleanup_on_signal};

use crate::exit::{Exit, Stop};
use crate::render;
use crate::router::RouterDaemon;

impl From<LabError> for Stop {
    fn from(error: LabError) -> Self {
        let exit = match error {
            LabError::NotRoot => Exit::Privilege,
            LabError::UnknownTopology { .. } | LabError::Invalid(_) => Exit::Usage,
            LabError::Unsupported(_) => Exit::Unavailable,
            _ => Exit::Failure,
        };
        Stop::new(exit, error.to_string())
    }
}

/// Prepares for labs: checks that they can be built, and sees to Ctrl-C.
pub fn prepare() -> Result<(), Stop> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LabError::NotRoot.into());
    }
    Ok(cleanup_on_signal()?)
}

/// Says which topologies there are.
pub fn list(json: bool) -> Result<(), Stop> {
    if json {
        return render::print_json(&TOPOLOGIES);
    }
    let mut page = render::Page::new(render::Terminal::stdout());
    for topology in TOPOLOGIES {
        page.head(topology.name);
        page.words("  ", topology.summary);
        // Drawings are as they are.
        for line in topology.picture.trim_start_matches('\n').lines() {
            page.line(line);
        }
    }
    render::print(&page.finish())
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
