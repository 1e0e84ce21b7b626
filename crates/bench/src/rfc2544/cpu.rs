// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of its CPU a router takes at a load, by what an idle loop there still gets.

use serde::{Deserialize, Serialize};

use super::pace::NO_LOAD_PPS;
use crate::line::line_pps;

/// Loads, percent of the PDR.
const LOADS: [u32; 3] = [10, 50, 90];

/// CPU at a load. Rates are frames a second of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Percent of the PDR; 0 for no load, some 100 frames a second: what else runs there. None if frames filled a link of
    /// 1 Gb/s, in each direction.
    pub percent_of_pdr: Option<u32>,
    /// Frames a second that were sent.
    pub offered_pps: f64,
    /// Share of them that did not arrive, with the idle loop beside the router.
    pub loss_ratio: f64,
    /// Share of its CPU that the router's threads had, as the scheduler accounts.
    pub router_cpu: f64,
    /// Share of the CPU that the idle loop did not get: all that ran there, interrupts and softirqs included.
    pub cpu_share: f64,
}

/// Loads of a router and what they are, frames a second: none, parts of the PDR, and the link's if the router forwards that.
pub fn loads(pdr_pps: Option<f64>, frame_bytes: f64) -> Vec<(Option<u32>, u64)> {
    let mut loads = vec![(Some(0), NO_LOAD_PPS)];
    let Some(pdr_pps) = pdr_pps else {
        return loads;
    };
    let part = |percent: u32| (Some(percent), pdr_pps * f64::from(percent) / 100.0);
    let line_pps = line_pps(frame_bytes);
    let line = (line_pps <= pdr_pps).then_some((None, line_pps));
    let all = LOADS.map(part).into_iter().chain(line);
    loads.extend(all.map(|(percent, pps)| (percent, (pps as u64).max(1))));
    loads
}

impl CpuShare {
    /// Its load, of a PDR that is the router's own or what the generator can do.
    pub fn load(&self, of_generator: bool) -> String {
        match self.percent_of_pdr {
            None => "1 Gb/s".into(),
            Some(0) => "none".into(),
            Some(percent) if of_generator => format!("{percent} % of gen."),
            Some(percent) => format!("{percent} % of PDR"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_load_of_routers_that_can_fill_it() {
        let [ten, half, most] = [100_000, 500_000, 900_000];
        let none = (Some(0), 100);
        let parts = [none, (Some(10), ten), (Some(50), half), (Some(90), most)];
        assert_eq!(loads(Some(1e6), 64.0), parts);
        let with_line = [&parts[..], &[(None, 81_274)]].concat();
        assert_eq!(loads(Some(1e6), 1518.0), with_line);
        assert_eq!(loads(None, 1518.0), [none]);
        assert_eq!(loads(Some(3.0), 1518.0)[1], (Some(10), 1));
    }
}
