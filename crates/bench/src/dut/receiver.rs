// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side, wherever it is.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use freeway_console::Stop;
use freeway_lab::{LabError, Meter, Metered, Offered};

use super::port::{HostPort, occupied};
use crate::rfc2544::{settle, settle_within};

/// After the last frame: nothing came for so long. A device of any make may hold frames longer than the lab's routers.
const QUIET: Duration = Duration::from_millis(50);

/// While frames of a trial still come the next does not begin, for so long at most.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What has come of a trial.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    pub metered: Metered,
    /// Frames of the trial before that came after it was counted.
    pub late: u64,
}

/// What counts the frames that arrive.
pub trait Receiver {
    /// Begins anew, when nothing comes any more.
    fn clear(&mut self) -> Result<(), Stop>;

    /// What has come of so many frames, when all have or nothing more does.
    fn counted(&mut self, sent: u64) -> Result<Arrived, Stop>;

    /// Whether its clock is the sender's, so that it can tell how long frames took.
    fn shares_clock(&self) -> bool;
}

/// A meter on a port of this host.
#[derive(Debug)]
pub struct Local {
    meter: Meter,
    /// Frames of the last trial.
    counted: u64,
    late: u64,
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
        Ok(Self {
            meter,
            counted: 0,
            late: 0,
        })
    }
}

/// That another program is there.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

impl Receiver for Local {
    fn clear(&mut self) -> Result<(), Stop> {
        let mut frames = self.meter.frames()?;
        if frames != self.counted {
            let settled = settle_within(DRAIN_MAX, u64::MAX, QUIET, || self.meter.frames())?;
            frames = settled.ok_or_else(|| {
                Stop::failure(format!(
                    "frames of a trial still arrive {} s after it: the router, or what is behind it, holds too many back to be measured",
                    DRAIN_MAX.as_secs()
                ))
            })?;
        }
        self.late = frames.saturating_sub(self.counted);
        self.counted = 0;
        Ok(self.meter.clear()?)
    }

    fn counted(&mut self, sent: u64) -> Result<Arrived, Stop> {
        let offered = Offered {
            frames: sent,
            ..Offered::default()
        };
        settle(&offered, QUIET, || self.meter.frames())?;
        let metered = self.meter.read()?;
        self.counted = metered.frames;
        let late = std::mem::take(&mut self.late);
        Ok(Arrived { metered, late })
    }

    fn shares_clock(&self) -> bool {
        true
    }
}
