// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench rfc9693`: what a stateful NAT does for connections, of the kernel and of Freeway.
//!
//! In RFC 9693's words: the preliminary phase makes connections, one frame each, from the Initiator to the Responder; then
//! frames of either side use them. As in `bench rfc2544` sender and receiver are on one CPU and the router on another.

mod capacity;
mod establishment;
mod gateway;
mod plan;
mod result;
mod search;
mod spread;
mod table;
mod tear_down;

use freeway_console::{Stop, progress, show};
use freeway_lab::Offer;
use freeway_rig::Machine;

use self::gateway::Gateway;
use self::plan::{Plan, SCENARIO};
use super::rfc2544::{NOTHING_ARRIVED, Router, ceiling, loop_back};
use crate::cli::Rfc9693Args;

pub use self::establishment::Establishment;
pub use self::result::{Figures, Rfc9693};
pub use self::tear_down::TearDown;

/// Where it is not the rate that is measured: this share of the one that holds,
const SAFE_SHARE: f64 = 0.1;
/// but so many connections a second if that is no more than this share of it,
const SAFE_PER_S: f64 = 20_000.0;
const SAFE_SHARE_MAX: f64 = 0.5;
/// and so many if none holds.
const SAFE_PER_S_MIN: f64 = 1000.0;
/// Fewer fast flows than this share of those that there should be deserve a remark.
const FAST_EXPECTED: f64 = 0.98;

/// Measures and prints.
pub fn rfc9693(args: &Rfc9693Args) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| {
        table::table(&result, terminal)
    })
}

/// Measures.
pub fn measured(args: &Rfc9693Args) -> Result<Rfc9693, Stop> {
    let plan = Plan::of(args)?;
    freeway_rig::prepare()?;
    progress("building the routers");
    let [kernel, freeway] = Router::ALL.map(|router| Gateway::build(router, args, &plan));
    let mut gateways = [kernel?, freeway?];
    let generator_pps = generator_pps(&gateways[0], &plan, args.host_cpu)?;
    progress(&format!(
        "the generator alone, {:.2} Mpps",
        generator_pps * 1e-6
    ));
    let table_limit = gateways[0].table_limit()?;
    let mut figures = [Figures::default(), Figures::default()];
    establishment(&mut gateways, &plan, generator_pps, &mut figures)?;
    let rates_per_s = figures.each_ref().map(|figures| {
        let lower = figures.establishment.lower_per_s();
        lower.map_or(SAFE_PER_S_MIN, safe_per_s).max(1.0) as u64
    });
    tear_down(&mut gateways, &plan, rates_per_s, &mut figures)?;
    for ((gateway, rate), of) in gateways.iter_mut().zip(rates_per_s).zip(&mut figures) {
        of.capacity = capacity::search(gateway, plan.connections, plan.capacity_max, rate)?;
        progress(&format!(
            "{}: room for {}{} connections",
            gateway.router.name(),
            if of.capacity.at_least {
                "at least "
            } else {
                ""
            },
            of.capacity.connections
        ));
        if of.capacity.connections > 0 {
            let connections = of.capacity.connections;
            of.flow_table = capacity::flow_table(gateway, connections, rate)?;
        }
    }
    gateways.into_iter().try_for_each(Gateway::end)?;
    let remarks = remarks(&plan, &figures);
    let [kernel, freeway] = figures;
    Ok(Rfc9693 {
        scenario: SCENARIO.into(),
        connections: plan.connections,
        runs: plan.runs,
        quick: args.quick,
        width: plan.width,
        generator_pps,
        table_limit,
        table_max: args.table_max,
        capacity_max: plan.capacity_max,
        kernel,
        freeway,
        remarks,
        machine: Machine::this(),
    })
}

/// A rate at which nothing is lost, where so many connections a second hold.
fn safe_per_s(held: f64) -> f64 {
    SAFE_PER_S.clamp(held * SAFE_SHARE, held * SAFE_SHARE_MAX)
}

/// What sender and receiver can do without a router.
fn generator_pps(gateway: &Gateway, plan: &Plan, host_cpu: usize) -> Result<f64, Stop> {
    let loopback = gateway.loopback(plan.connections)?;
    ceiling(NOTHING_ARRIVED, || {
        let passed = loop_back(&loopback, &Offer::full(plan.ceiling, host_cpu))?;
        Ok(passed.forwarded_pps(1))
    })
}

/// The rates of both, by turns.
fn establishment(
    gateways: &mut [Gateway; 2],
    plan: &Plan,
    generator_pps: f64,
    figures: &mut [Figures; 2],
) -> Result<(), Stop> {
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..plan.runs {
        for (gateway, found) in gateways.iter_mut().zip(&mut found) {
            let run = establishment::search(gateway, plan.connections, generator_pps, plan.width)?;
            progress(&format!(
                "{}: {}{} new connections a second after {} trials",
                gateway.router.name(),
                if run.limited { "at least " } else { "" },
                run.held.unwrap_or(0),
                run.trials
            ));
            found.push(run);
        }
    }
    for (of, found) in figures.iter_mut().zip(&found) {
        of.establishment = Establishment::of(found, plan.connections);
    }
    Ok(())
}

/// How soon the tables of both are empty.
fn tear_down(
    gateways: &mut [Gateway; 2],
    plan: &Plan,
    rates_per_s: [u64; 2],
    figures: &mut [Figures; 2],
) -> Result<(), Stop> {
    let [kernel, freeway] = gateways.each_mut().map(tear_down::of_nothing);
    let empty = [kernel?, freeway?];
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..plan.runs {
        let run = tear_down::run(gateways, plan.connections, rates_per_s)?;
        for (runs, run) in runs.iter_mut().zip(run) {
            runs.push(run);
        }
    }
    for (number, of) in figures.iter_mut().enumerate() {
        of.tear_down = TearDown::of(&runs[number], empty[number]);
        progress(&format!(
            "{}: {} connections are gone after {:.1} ms",
            Router::ALL[number].name(),
            of.tear_down.connections,
            of.tear_down.all_ms
        ));
    }
    Ok(())
}

fn remarks(plan: &Plan, figures: &[Figures; 2]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (router, of) in Router::ALL.iter().zip(figures) {
        let who = router.name();
        if of.establishment.samples.len() < plan.runs as usize {
            let without = plan.runs as usize - of.establishment.samples.len();
            remarks.push(format!(
                "{who}: no rate of new connections held in {without} of {} runs",
                plan.runs
            ));
        }
        let capacity = &of.capacity;
        if capacity.validated < capacity.connections {
            remarks.push(format!(
                "{who}: the kernel counts {} connections at most, and frames came back through {} of them: the router lost some",
                capacity.connections, capacity.validated
            ));
        }
        let torn = &of.tear_down;
        if torn.connections < u64::from(plan.connections) {
            remarks.push(format!(
                "{who}: of {} connections that were to be deleted there were {}",
                plan.connections, torn.connections
            ));
        }
        if torn.left > 0 {
            remarks.push(format!(
                "{who}: {} flows were left after their connections were deleted; such a run has no tear-down rate",
                torn.left
            ));
        } else if torn.samples.len() < plan.runs as usize {
            remarks.push(format!(
                "{who}: so few connections are gone as soon as none; more of them (--connections) have a tear-down rate"
            ));
        }
        let wanted = u64::from(plan.connections) * 2;
        let fast = torn.flows as f64 >= wanted as f64 * FAST_EXPECTED;
        if *router == Router::Freeway && !fast {
            remarks.push(format!(
                "{who}: {} of {wanted} flows were in its table when connections were deleted",
                torn.flows
            ));
        }
    }
    remarks
}

#[cfg(test)]
pub mod tests {
    use super::capacity::{Capacity, FlowTable};
    use super::spread::Spread;
    use super::*;
    use freeway_console::Terminal;

    /// Figures that belong together.
    pub fn example() -> Rfc9693 {
        let spread = |median: f64| Spread {
            median,
            least: median * 0.9,
            most: median * 1.1,
        };
        let figures = |rate: f64| Figures {
            establishment: Establishment {
                per_s: Some(spread(rate)),
                at_least_per_s: None,
                validated: 50_000,
                trials: 24,
                samples: vec![rate * 0.9, rate, rate * 1.1],
            },
            tear_down: TearDown {
                per_s: Some(spread(rate * 2.0)),
                connections: 50_000,
                flows: 0,
                table_ms: 90.0,
                all_ms: 100.0,
                empty_ms: 2.0,
                left: 0,
                samples: vec![rate * 1.8, rate * 2.0, rate * 2.2],
            },
            capacity: Capacity {
                connections: 262_144,
                validated: 262_144,
                at_least: false,
                rate_per_s: 90_000,
                trials: 6,
            },
            flow_table: None,
        };
        Rfc9693 {
            scenario: SCENARIO.into(),
            connections: 50_000,
            runs: 3,
            quick: false,
            width: 0.02,
            generator_pps: 3e6,
            table_limit: 262_144,
            table_max: None,
            capacity_max: 300_000,
            kernel: figures(400_000.0),
            freeway: Figures {
                flow_table: Some(FlowTable {
                    room: 131_072,
                    connections: 262_144,
                    flows: 114_688,
                    at_least: false,
                }),
                ..figures(350_000.0)
            },
            remarks: Vec::new(),
            machine: Machine::this(),
        }
    }

    fn text(result: &Rfc9693) -> String {
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table::table(result, terminal);
        let short = text.lines().all(|line| line.chars().count() <= 80);
        assert!(short, "{text}");
        text
    }

    #[test]
    fn the_page_has_the_figures() {
        let page = text(&example());
        for words in ["400,000", "350,000", "700,000", "262,144", "114,688"] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        assert!(!page.contains("at least"), "{page}");
        let mut limited = example();
        limited.kernel.establishment.per_s = None;
        limited.kernel.establishment.at_least_per_s = Some(1e6);
        limited.kernel.capacity.at_least = true;
        let page = text(&limited);
        assert!(page.contains("at least 1,000,000"), "{page}");
        assert!(page.contains("at least 262,144"), "{page}");
    }

    #[test]
    fn json_is_read_as_written() {
        let result = example();
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<Rfc9693>(&json).unwrap(), result);
    }

    #[test]
    fn what_is_missing_is_said() {
        let plan = Plan {
            connections: 50_000,
            runs: 3,
            capacity_max: 300_000,
            width: 0.02,
            ceiling: std::time::Duration::ZERO,
        };
        let result = example();
        let mut figures = [result.kernel, result.freeway];
        figures[1].tear_down.flows = 100_000;
        assert_eq!(remarks(&plan, &figures), [""; 0]);
        figures[0].establishment.samples.pop();
        figures[0].tear_down.connections -= 1;
        figures[1].tear_down.flows = 90_000;
        figures[1].tear_down.samples.clear();
        assert_eq!(remarks(&plan, &figures).len(), 4);
        figures[1].tear_down.left = 3;
        figures[0].capacity.validated -= 1;
        let said = remarks(&plan, &figures);
        assert_eq!(said.len(), 5);
        assert!(said.iter().any(|words| words.contains("3 flows were left")));
    }

    #[test]
    fn safe_rates_are_far_below() {
        let of = [1000.0, 30_000.0, 100_000.0, 500_000.0].map(safe_per_s);
        assert_eq!(of, [500.0, 15_000.0, 20_000.0, 50_000.0]);
    }

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[]), None);
        let of = Spread::of(&[3.0, 1.0, 2.0, 4.0]);
        let expected = Spread {
            median: 2.5,
            least: 1.0,
            most: 4.0,
        };
        assert_eq!(of, Some(expected));
    }
}
