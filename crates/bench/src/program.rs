// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that decides first on what comes in at a router's port.

use freeway_console::Stop;
use freeway_kernel::progs::tcx;
use freeway_lab::{Port, Program};

/// Freeway's tc programs at ingress are called that, of ports with and without XDP.
const TC_INGRESS: &str = "freeway_ingress";

/// XDP's, or else Freeway's in tc; `None` of the latter before Linux 6.6, which does not list them.
pub fn input_program(port: &Port) -> Result<Option<Program>, Stop> {
    if let Some(program) = Program::xdp(port)? {
        return Ok(Some(program));
    }
    let listed = port.netns.enter(|| tcx(port.ifindex))?;
    let listed = listed.map_err(|error| Stop::failure(error.to_string()))?;
    let Some(tcx) = listed else {
        return Ok(None);
    };
    let mut programs = tcx.ingress.iter();
    // the kernel keeps 15 characters of a name
    let ours = programs.find(|program| program.name.starts_with(TC_INGRESS));
    Ok(ours.map(|program| Program::open(program.id)).transpose()?)
}
