// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Freeway's programs cost flows that stay in the kernel, in traffic, without a daemon, needing root:
//! `cargo run --release -p freeway --example miss_cost -- [nat|routed|routed6] [FLOWS] [ROUNDS] [CPU]`.
//!
//! Nobody takes the offers, so the flows are silent at tc ingress for a second after each, as if a policy had refused
//! them. Samples are short and interleaved, and time is the CPU's, so that other work on the machine disturbs little.

mod support;

use std::error::Error;
use std::time::Duration;

use freeway_datapath::{Datapath, Hook, LoadOptions};
use freeway_lab::{Lab, MeasureSpec, Options, Proto, Reference, measure, measure_reference};
use support::{Words, cost};

const FAR_FUTURE: u32 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    freeway_lab::signal::cleanup_on_signal()?;
    let Words {
        topology,
        rounds,
        spec,
    } = Words::read("nat", 100)?;
    let flows = spec.flows;
    let lab = Lab::build(topology, Options::default())?;
    lab.prime(Proto::Udp, flows, Some(spec.cpu))?;
    // the lab enters its namespaces by threads of its own
    let router = std::fs::File::open(lab.router().path())?;
    nix::sched::setns(router, nix::sched::CloneFlags::CLONE_NEWNET)?;
    let datapath = Datapath::load(&LoadOptions::default())?;
    let now = datapath.clock.now_tick()?;
    datapath.control.set_on(true);
    datapath.control.set_epoch(1);
    datapath.control.set_deadline(now.wrapping_add(FAR_FUTURE));
    datapath.control.set_learn(1);
    datapath.control.set_offer_budget(1000);
    datapath.control.set_tracks4(1);
    datapath.control.set_tracks6(1);
    let (lan, wan) = (lab.lan_port().ifindex, lab.wan_port().ifindex);
    let steps = [
        ("XDP", lan, Hook::Xdp),
        ("tc ingress", lan, Hook::Ingress),
        ("tc egress", wan, Hook::Egress),
    ];
    let learn = MeasureSpec {
        duration: Duration::from_millis(200),
        ..spec
    };
    let mut samples: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        samples[0].push(cost(measure_reference(&lab, &spec, Reference::XdpDrop)?));
        let mut attached = Vec::new();
        for (_, port, hook) in steps {
            attached.push(datapath.attach(port, hook)?);
        }
        // from here on they are silent for a second
        measure(&lab, &learn)?;
        datapath.events.take(usize::MAX);
        for values in samples[1..].iter_mut().rev() {
            values.push(cost(measure(&lab, &spec)?));
            attached.pop();
        }
    }
    // Differences within a round, for the machine's speed drifts; of these the median.
    let difference = |more: usize, less: usize| {
        let pairs = samples[more].iter().zip(&samples[less]);
        median(pairs.map(|(more, less)| more - less).collect())
    };
    let kernel = difference(1, 0);
    println!("the kernel takes {kernel:.1} ns a frame, net of the generator");
    for (at, (name, ..)) in steps.iter().enumerate() {
        println!("{name:>12} {:+7.1} ns", difference(at + 2, at + 1));
    }
    let all = difference(4, 1);
    println!(
        "{:>12} {all:+7.1} ns, {:+.1} %",
        "all",
        100.0 * all / kernel
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
