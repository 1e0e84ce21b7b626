// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side, wherever it is.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use freeway_lab::{LabError, Meter, Metered, Offered};

use super::port::{HostPort, occupied};
use crate::bench::rfc2544::settle;
use crate::exit::Stop;

/// After the last frame: nothing came for so long. A device of any make may hold frames longer than the lab's routers.
const QUIET: Duration = Duration::from_millis(50);

/// What counts the frames that arrive.
pub trait Receiver {
    /// Begins anew.
    fn clear(&mut self) -> Result<(), Stop>;

    /// What has come of so many frames, when all have or nothing more does.
    fn counted(&mut self, sent: u64) -> Result<Metered, Stop>;

    /// Whether its clock is the sender's, so that it can tell how long frames took.
    fn shares_clock(&self) -> bool;
}

/// A meter on a port of this host.
#[derive(Debug)]
pub struct Local {
    meter: Meter,
}

impl Local {
    /// Counts the frames that go there; all else is the kernel's.
    pub fn attach(host: &HostPort, to: SocketAddr) -> Result<Self, Stop> {
        let meter = Meter::attach_for(&host.port, to);
        let meter = meter.map_err(|error| match &error {
            LabError::Io { source, .. } if is_taken(source) => occupied(host.name()),
            _ => error.into(),
        })?;
        host.wait_for_carrier()?;
        Ok(Self { meter })
    }
}

/// That another program is there.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

impl Receiver for Local {
    fn clear(&mut self) -> Result<(), Stop> {
        Ok(self.meter.clear()?)
    }

    fn counted(&mut self, sent: u64) -> Result<Metered, Stop> {
        let offered = Offered {
            frames: sent,
            ..Offered::default()
        };
        settle(&offered, QUIET, || self.meter.frames())?;
        Ok(self.meter.read()?)
    }

    fn shares_clock(&self) -> bool {
        true
    }
}
