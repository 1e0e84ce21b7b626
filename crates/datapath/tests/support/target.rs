// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets behind one interface. What a target cannot do is declared here.

use std::os::fd::AsFd;

use freeway_abi::{
    FW_R_COUNT, FW_R_FAST, FW_R_POLICED, FW_R_STRAY_CLOSE, fw_conn, fw_control, fw_flow, fw_framed,
    fw_framing, fw_kept, fw_nexthop, fw_state,
};
use freeway_datapath::user::Pipeline;
use freeway_datapath::{Datapath, DataplaneEvent, Hook, LoadOptions};

use super::run::run;

pub const FLOWS: u32 = 64;
pub const NEXTHOPS: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub fast: bool,
    /// Neither forwarded nor given to the kernel.
    pub dropped: bool,
    pub frame: Vec<u8>,
    /// Native only: the BPF targets tell the reason by its counter.
    pub reason: Option<u32>,
    /// Native only: in a test run nothing is redirected in earnest.
    pub port_out: Option<u32>,
}

pub trait Target {
    fn name(&self) -> &'static str;
    /// Frames that are shorter cannot be put in.
    fn shortest_frame(&self) -> usize;
    /// conntrack's answer can be chosen; otherwise there is no connection.
    fn chooses_conntrack(&self) -> bool;
    /// It asks conntrack of connections, and judges by that what closes them. The engine cannot: the daemon asks, and tc
    /// judges at the TAP.
    fn asks_conntrack(&self) -> bool {
        true
    }
    /// Frames may come in at other ports than 1.
    fn any_port(&self) -> bool;
    /// A forwarded packet is counted under a reason too, not only by its flow.
    fn counts_fast(&self) -> bool;
    fn is_tc(&self) -> bool;
    fn hz(&self) -> u32;
    fn now(&self) -> u32;
    fn control(&mut self, control: &fw_control);
    fn conn(&mut self, conn: &fw_conn);
    fn nexthop(&mut self, index: u32, nexthop: fw_nexthop);
    /// What comes in at a port with tags or a session is another's.
    fn framing(&mut self, framing: &fw_framing, framed: &fw_framed);
    /// What the connection of a flow was, ahead of the flow itself.
    fn keep(&mut self, index: u32, kept: fw_kept);
    /// conntrack is liberal with the TCP connection, whose largest window is that; 0: it is not.
    fn window(&mut self, window: u32);
    fn insert(&mut self, index: u32, flow: &fw_flow);
    fn set_peer(&mut self, index: u32, peer: u32);
    fn remove(&mut self, index: u32);
    fn state(&mut self, index: u32) -> fw_state;
    fn counts(&self) -> Vec<u64>;
    fn events(&mut self) -> Vec<DataplaneEvent>;
    fn run(&mut self, frame: &[u8], port: u32) -> Outcome;
}

/// The pipeline in this process.
pub struct Native(pub Pipeline);

impl Native {
    /// Shortly before the clock wraps.
    pub const NOW: u32 = 0xffff_ff00;

    /// `straight`: with the straight way of plain hits.
    pub fn new(straight: bool) -> Self {
        let mut pipeline = Pipeline::new(FLOWS, NEXTHOPS).expect("memory");
        pipeline.set_now(Self::NOW);
        pipeline.set_straight(straight);
        Self(pipeline)
    }
}

impl Target for Native {
    fn name(&self) -> &'static str {
        "user"
    }
    fn shortest_frame(&self) -> usize {
        0
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
        250
    }
    fn now(&self) -> u32 {
        Self::NOW
    }
    fn control(&mut self, control: &fw_control) {
        *self.0.control() = *control;
    }
    fn conn(&mut self, conn: &fw_conn) {
        self.0.set_conn(conn);
    }
    fn nexthop(&mut self, index: u32, nexthop: fw_nexthop) {
        *self.0.nexthop(index).expect("an index") = nexthop;
    }
    fn framing(&mut self, framing: &fw_framing, framed: &fw_framed) {
        assert!(self.0.set_framing(framing, framed), "too many");
    }
    fn keep(&mut self, index: u32, kept: fw_kept) {
        *self.0.kept(index).expect("an index") = kept;
    }
    fn window(&mut self, window: u32) {
        self.0.set_window(window);
    }
    fn insert(&mut self, index: u32, flow: &fw_flow) {
        *self.0.flow(index).expect("an index") = *flow;
        assert!(self.0.insert(index), "no room in the table");
    }
    fn set_peer(&mut self, index: u32, peer: u32) {
        self.0.set_peer(index, peer);
    }
    fn remove(&mut self, index: u32) {
        self.0.remove(index);
    }
    fn state(&mut self, index: u32) -> fw_state {
        self.0.flow(index).expect("an index").state
    }
    fn counts(&self) -> Vec<u64> {
        (0..FW_R_COUNT).map(|reason| self.0.count(reason)).collect()
    }
    fn events(&mut self) -> Vec<DataplaneEvent> {
        self.0.event().into_iter().collect()
    }
    fn run(&mut self, frame: &[u8], port: u32) -> Outcome {
        let mut frame = frame.to_vec();
        let verdict = self.0.forward(&mut frame, port);
        Outcome {
            fast: verdict.reason == FW_R_FAST,
            dropped: [FW_R_POLICED, FW_R_STRAY_CLOSE].contains(&verdict.reason),
            frame,
            reason: Some(verdict.reason),
            port_out: verdict.port_out,
        }
    }
}

/// The loaded programs, run by BPF_PROG_TEST_RUN on frames that come in at `lo`, which is port 1.
pub struct Loaded {
    pub datapath: Datapath,
    hook: Hook,
    straight: bool,
}

impl Loaded {
    /// The device map's slot that leads somewhere.
    pub const SLOT: u32 = 5;

    /// As [`Native::new`].
    pub fn new(hook: Hook, straight: bool) -> Self {
        Self::with(&Self::options(), hook, straight)
    }

    pub fn options() -> LoadOptions {
        LoadOptions {
            flows: FLOWS,
            nexthops: NEXTHOPS,
            ..LoadOptions::default()
        }
    }

    pub fn with(options: &LoadOptions, hook: Hook, straight: bool) -> Self {
        let datapath = Datapath::load(options).expect("the programs load");
        // Without a device there the verdict would be "pass", as it is for any other slot.
        datapath
            .set_port(Self::SLOT, 1)
            .expect("lo in the device map");
        Self {
            datapath,
            hook,
            straight,
        }
    }
}

impl Target for Loaded {
    fn name(&self) -> &'static str {
        if self.is_tc() { "tc" } else { "xdp" }
    }
    fn shortest_frame(&self) -> usize {
        // the kernel's own test_run wants the L3 header for an skb
        if self.is_tc() { 14 + 40 } else { 14 }
    }
    fn chooses_conntrack(&self) -> bool {
        false
    }
    fn any_port(&self) -> bool {
        false
    }
    fn counts_fast(&self) -> bool {
        false
    }
    fn is_tc(&self) -> bool {
        self.hook == Hook::IngressAlone
    }
    fn hz(&self) -> u32 {
        self.datapath.clock.hz()
    }
    fn now(&self) -> u32 {
        self.datapath.clock.now_tick().expect("the time")
    }
    fn control(&mut self, control: &fw_control) {
        let to = &self.datapath.control;
        to.set_deadline(control.deadline_tick);
        to.set_on(control.on != 0);
        // frames take the pipeline while any tuple is watched
        to.set_watch((!self.straight).into());
        to.set_learn(control.learn);
        to.set_tc_forwards(1);
        to.set_epoch(control.epoch);
        to.set_reval_budget(control.reval_budget);
        to.set_check_budget(control.check_budget);
        to.set_offer_budget(control.offer_budget);
        to.set_sample_budget(control.sample_budget);
    }
    fn conn(&mut self, _conn: &fw_conn) {}
    fn nexthop(&mut self, index: u32, nexthop: fw_nexthop) {
        self.datapath.nexthops.set(index, nexthop);
    }
    fn framing(&mut self, framing: &fw_framing, framed: &fw_framed) {
        self.datapath
            .set_framing(framing, framed)
            .expect("room for another");
    }
    fn keep(&mut self, index: u32, kept: fw_kept) {
        self.datapath.kept.set(index, kept);
    }
    fn window(&mut self, _window: u32) {}
    fn insert(&mut self, index: u32, flow: &fw_flow) {
        assert!(
            self.datapath.flows.insert(index, flow),
            "no room in the table"
        );
    }
    fn remove(&mut self, index: u32) {
        self.datapath.flows.remove(index);
        self.datapath.flows.release(index);
    }
    fn set_peer(&mut self, index: u32, peer: u32) {
        self.datapath.flows.set_peer(index, peer);
    }
    fn state(&mut self, index: u32) -> fw_state {
        self.datapath.flows.state(index)
    }
    fn counts(&self) -> Vec<u64> {
        let mut counts = self.datapath.reasons().expect("counters");
        counts.truncate(FW_R_COUNT as usize);
        counts
    }
    fn events(&mut self) -> Vec<DataplaneEvent> {
        self.datapath.events.take(100)
    }
    fn run(&mut self, frame: &[u8], _port: u32) -> Outcome {
        const XDP_DROP: u32 = 1;
        const XDP_PASS: u32 = 2;
        const XDP_REDIRECT: u32 = 4;
        const TC_ACT_UNSPEC: u32 = u32::MAX;
        const TC_ACT_REDIRECT: u32 = 7;
        let prog = self.datapath.prog(self.hook).expect("the program");
        let (verdict, mut out) = run(prog.as_fd(), frame, 1);
        // metadata lies before the frame
        if !self.is_tc() && verdict != XDP_REDIRECT {
            out.drain(..out.len() - frame.len());
        }
        let (fast, dropped) = match (self.is_tc(), verdict) {
            (false, XDP_REDIRECT) | (true, TC_ACT_REDIRECT) => (true, false),
            (false, XDP_PASS) | (true, TC_ACT_UNSPEC) => (false, false),
            (false, XDP_DROP) => (false, true),
            (_, other) => panic!("verdict {other}"),
        };
        Outcome {
            fast,
            dropped,
            frame: out,
            reason: None,
            port_out: None,
        }
    }
}
