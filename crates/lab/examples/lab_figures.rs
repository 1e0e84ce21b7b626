// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints what frames cost on this machine: source, kernel, bare redirect, sink.

use freeway_lab::frame::Proto;
use freeway_lab::measure::{MeasureSpec, measure, measure_reference, measure_sink};
use freeway_lab::reference::Reference;
use freeway_lab::topology::TOPOLOGIES;
use freeway_lab::{Lab, Options};

fn main() -> Result<(), freeway_lab::error::LabError> {
    freeway_lab::signal::cleanup_on_signal()?;
    let spec = MeasureSpec::default();
    for topology in TOPOLOGIES {
        let lab = Lab::build(topology, Options::default())?;
        let primed = lab.prime(Proto::Udp, spec.flows, Some(spec.cpu))?;
        let source = measure_reference(&lab, &spec, Reference::XdpDrop)?;
        let kernel = measure(&lab, &spec)?;
        let redirect = measure_reference(&lab, &spec, Reference::XdpRedirect)?;
        let sink = measure_sink(&lab, &spec)?;
        println!(
            "{}: {primed:?}\n source {source:?}\n kernel {kernel:?}\n redirect {redirect:?}\n {sink:?}\n",
            topology.name
        );
    }
    Ok(())
}
