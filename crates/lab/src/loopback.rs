// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream into its own meter, without a router: what the tester itself can do.

use crate::beside::Pair;
use crate::error::LabError;
use crate::frame::FlowSpec;
use crate::lab::Lab;
use crate::meter::Meter;
use crate::mix::Mix;
use crate::napi::poll_first;
use crate::stream::{Stream, Way};

/// A pair of ports like a sender's and a router's input, both in the sender's namespace. Dropping it removes all of it.
#[derive(Debug)]
pub struct Loopback {
    // In this order: programs go before their ports.
    /// What sends.
    pub stream: Stream,
    /// What drops and counts.
    pub meter: Meter,
    _pair: Pair,
}

impl Loopback {
    /// The flows, of one direction or two, all go the same way. The receiver's thread goes ahead of all else on that CPU.
    pub fn new(lab: &Lab, ways: &[FlowSpec], mix: &Mix, cpu: usize) -> Result<Self, LabError> {
        let pair = Pair::new(lab.client(), "tester", lab.options().mtu, 1)?;
        poll_first(&pair.far, cpu)?;
        let ways = ways.iter().map(|flows| Way {
            port: &pair.near,
            flows: *flows,
        });
        let ways: Vec<Way<'_>> = ways.collect();
        Ok(Self {
            stream: Stream::new(&ways, mix)?,
            meter: Meter::attach(&pair.far, lab.topology().family)?,
            _pair: pair,
        })
    }
}
