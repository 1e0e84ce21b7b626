// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench kirkwood`: TCP and UDP in packets of 1,400 bytes through a home router, as Marvell's Kirkwood NFP was measured.

use freeway_console::{Page, Stop, Terminal, Tone, count, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::compare::{self, Comparison};
use super::router::Router;
use crate::cli::{CompareArgs, KirkwoodArgs, Scenario};

/// The source's ratios, with its fast path over without.
const PUBLISHED: [f64; 2] = [1.96, 1.63];

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kirkwood {
    /// Size of a frame, FCS counted; its packet is 18 octets shorter.
    pub wire_bytes: u32,
    /// Flows, in turn.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// The path that the configuration gives Freeway's ports.
    pub path: String,
    /// Frames of TCP connections.
    pub tcp: Comparison,
    /// UDP.
    pub udp: Comparison,
    /// What was measured on.
    pub machine: Machine,
}

impl Kirkwood {
    /// What it is called, and what it is.
    pub fn cases(&self) -> [(&'static str, &Comparison); 2] {
        [("TCP", &self.tcp), ("UDP", &self.udp)]
    }
}

/// Measures and prints.
pub fn kirkwood(args: &KirkwoodArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| table(&result, terminal))
}

/// Measures.
pub fn measured(args: &KirkwoodArgs) -> Result<Kirkwood, Stop> {
    let of = |proto| {
        compare::measured(&CompareArgs {
            destinations: None,
            scenario: Scenario::Kirkwood,
            flows: Some(args.flows),
            proto,
            frame_bytes: None,
            no_peers: false,
            runs: args.runs,
            seconds: args.seconds,
            changes: None,
            refused: false,
            routes: false,
            path: args.path,
            idle_connections: 0,
            cpu: args.cpu,
            cpus: 1,
            brief: true,
            one_daemon: args.one_daemon,
            json: false,
        })
    };
    let (tcp, udp) = (of(freeway_lab::Proto::Tcp)?, of(freeway_lab::Proto::Udp)?);
    Ok(Kirkwood {
        wire_bytes: udp.wire_bytes,
        flows: args.flows,
        runs: args.runs,
        seconds: args.seconds,
        path: args.path.name().into(),
        machine: udp.machine.clone(),
        tcp,
        udp,
    })
}

fn table(kirkwood: &Kirkwood, terminal: Terminal) -> String {
    let k = kirkwood;
    let mut page = Page::new(terminal);
    let what = format!(
        "Masquerade and a stateful firewall: {} flows, frames of {} bytes, medians of {} runs, {} s each",
        count(k.flows.into()),
        count(k.wire_bytes.into()),
        k.runs,
        k.seconds
    );
    page.words("", &what);
    page.words("", &k.machine.to_string());
    page.gap();
    let heads = [
        "",
        "kernel, ns",
        "flow table",
        "Freeway",
        "kernel / Freeway",
        "published",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for ((name, of), published) in k.cases().into_iter().zip(PUBLISHED) {
        let peer = |router| of.peers.iter().find(|peer| peer.router == router);
        let flowtable = peer(Router::Flowtable).and_then(|peer| peer.ns);
        rows.push(vec![
            name.to_owned(),
            format!("{:.1}", of.kernel_ns),
            flowtable.map_or_else(|| "-".into(), |ns| format!("{ns:.1}")),
            format!("{:.1}", of.freeway_ns),
            page.tone(Tone::Good, &format!("{:.2}", of.speedup)),
            format!("{published:.2}"),
        ]);
    }
    page.table(2, &[1, 2, 3, 4, 5], &rows);
    page.gap();
    page.words(
        "",
        "ns of one CPU for a frame, net of the generator and an XDP drop. Published: what a 1 GHz router gained by its fast path, both ends of the wire included.",
    );
    // the same for both
    for words in k.udp.missing() {
        page.words("", &format!("{words}."));
    }
    for (name, of) in k.cases() {
        for words in of.remarks() {
            page.words(
                "",
                &page.tone(Tone::Warn, &format!("Mind {name}: {words}.")),
            );
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn both_protocols_are_there() {
        let result = Kirkwood {
            wire_bytes: 1418,
            flows: 64,
            runs: 3,
            seconds: 2.0,
            path: "auto".into(),
            tcp: Comparison {
                speedup: 9.87,
                ..example()
            },
            udp: example(),
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&result, terminal);
        for words in [
            "frames of 1,418 bytes",
            "9.87       1.96\n",
            "11.70       1.63\n",
            "Without FIB from XDP: it does not translate.",
            "Mind UDP: 2.00 % of the frames were lost",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["udp"]["kernel"], "kernel_stateful");
        assert_eq!(serde_json::from_value::<Kirkwood>(json).unwrap(), result);
    }
}
