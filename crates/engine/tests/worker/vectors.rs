// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's worker as a target of the vectors.

use freeway_abi::{
    FW_R_COUNT, FW_R_FAST, FW_ST_ACTIVE, fw_conn, fw_control, fw_flow, fw_framed, fw_framing,
    fw_kept, fw_nexthop, fw_state,
};
use freeway_datapath::DataplaneEvent;

use crate::rings::{Between, FLOWS_MAX, HZ, NOW, PORTS, alone};
use crate::support::target::{Outcome, Target};
use crate::support::vectors::run_all;

struct Worker {
    between: Between,
    /// Of flows, by number.
    places: [u32; FLOWS_MAX as usize + 1],
}

impl Target for Worker {
    fn name(&self) -> &'static str {
        "engine"
    }
    fn shortest_frame(&self) -> usize {
        1
    }
    fn asks_conntrack(&self) -> bool {
        false
    }
    fn chooses_conntrack(&self) -> bool {
        true
    }
    fn any_port(&self) -> bool {
        true
    }
    fn counts_fast(&self) -> bool {
        true
    }
    fn is_tc(&self) -> bool {
        false
    }
    fn hz(&self) -> u32 {
        HZ
    }
    fn now(&self) -> u32 {
        NOW
    }
    fn control(&mut self, control: &fw_control) {
        // the word that a flow's state is compared with
        let on = if control.on == 0 { 0 } else { FW_ST_ACTIVE };
        *self.between.control = fw_control { on, ..*control };
    }
    fn conn(&mut self, _conn: &fw_conn) {}
    fn nexthop(&mut self, index: u32, nexthop: fw_nexthop) {
        self.between.nexthops[index as usize] = nexthop;
    }
    fn framing(&mut self, framing: &fw_framing, framed: &fw_framed) {
        self.between.set_framing(framing, framed);
    }
    fn keep(&mut self, _index: u32, _kept: fw_kept) {}
    fn window(&mut self, _window: u32) {}
    fn insert(&mut self, index: u32, flow: &fw_flow) {
        self.places[index as usize] = self.between.insert(index, flow);
    }
    fn set_peer(&mut self, _index: u32, _peer: u32) {}
    fn remove(&mut self, _index: u32) {
        // of all, the first time
        self.between.end();
    }
    fn state(&mut self, index: u32) -> fw_state {
        self.between.state(self.places[index as usize])
    }
    fn counts(&self) -> Vec<u64> {
        self.between.stats().reasons[..FW_R_COUNT as usize].to_vec()
    }
    fn events(&mut self) -> Vec<DataplaneEvent> {
        assert_eq!(self.between.events(), 0, "the worker suspends nothing");
        Vec::new()
    }
    fn run(&mut self, frame: &[u8], port: u32) -> Outcome {
        assert!(self.between.put(port - 1, frame, 4000));
        assert_eq!(self.between.turn(), 1);
        let left = PORTS.into_iter().find_map(|port| {
            let frame = self.between.take(port - 1)?;
            Some((frame, FW_R_FAST, Some(port)))
        });
        let exception = self.between.exceptions.pop_front();
        let exception = exception.map(|(frame, reason)| (frame, reason, None));
        assert!(left.is_none() || exception.is_none(), "it went two ways");
        let dropped = left.is_none() && exception.is_none();
        let (frame, reason, port_out) = left.or(exception).unwrap_or((frame.to_vec(), 0, None));
        Outcome {
            fast: port_out.is_some(),
            dropped,
            frame,
            reason: (!dropped).then_some(reason),
            port_out,
        }
    }
}

#[test]
fn engine() {
    alone(|rings| {
        let mut worker = Worker {
            between: Between::new(rings, 1),
            places: [0; FLOWS_MAX as usize + 1],
        };
        run_all(&mut worker);
    });
}
