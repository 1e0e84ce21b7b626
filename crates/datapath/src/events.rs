// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the data plane tells: candidates, suspensions, watched packets.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use freeway_abi::{
    FW_EV_CANDIDATE, FW_EV_CHANGED, FW_EV_CROSSED, FW_EV_DROPPED, FW_EV_STRAYED, FW_EV_SUSPENDED,
    FW_EV_WATCH, Pod, fw_candidate, fw_crossed, fw_dropped, fw_event, fw_strayed, fw_watch_event,
};
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::DatapathError;

/// One event of the ring buffer.
#[derive(Clone, Debug)]
pub enum DataplaneEvent {
    /// A flow seen twice with one outcome; `ev.kind` tells whether it is to replace another.
    Candidate(Box<fw_candidate>),
    /// The data plane suspended a connection (`state` and its peer).
    Suspended(fw_event),
    /// Bridged frames were seen twice to take the same path.
    Crossed(fw_crossed),
    /// A packet left otherwise than by its prefix's next hop.
    Strayed(fw_strayed),
    /// A packet of the watched tuple.
    Watch(fw_watch_event),
    /// The kernel dropped a packet of the watched tuple.
    Dropped(Box<fw_dropped>),
}

impl DataplaneEvent {
    /// Decodes a record; `None` if it is of no known kind or too short.
    #[must_use]
    pub fn decode(record: &[u8]) -> Option<Self> {
        let event = fw_event::from_bytes(record)?;
        match event.kind {
            FW_EV_CANDIDATE | FW_EV_CHANGED => {
                fw_candidate::from_bytes(record).map(|c| Self::Candidate(Box::new(c)))
            }
            FW_EV_SUSPENDED => Some(Self::Suspended(event)),
            FW_EV_CROSSED => fw_crossed::from_bytes(record).map(Self::Crossed),
            FW_EV_STRAYED => fw_strayed::from_bytes(record).map(Self::Strayed),
            FW_EV_DROPPED => fw_dropped::from_bytes(record).map(|d| Self::Dropped(Box::new(d))),
            FW_EV_WATCH => fw_watch_event::from_bytes(record).map(Self::Watch),
            _ => None,
        }
    }
}

/// The reading end of the ring buffer.
pub struct Events {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<DataplaneEvent>>>,
}

impl Events {
    pub(crate) fn new(map: &MapHandle) -> Result<Self, DatapathError> {
        let read = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&read);
        let error = |source| DatapathError::Map {
            map: "fw_events",
            source,
        };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record: &[u8]| {
                sink.borrow_mut().extend(DataplaneEvent::decode(record));
                0
            })
            .map_err(error)?;
        Ok(Self {
            ring: builder.build().map_err(error)?,
            read,
        })
    }

    /// Takes at most `limit` events that are there now. The descriptor becomes readable for the first that a CPU writes
    /// in a tick: who was woken looks again when a tick is over.
    pub fn take(&self, limit: usize) -> Vec<DataplaneEvent> {
        self.ring.consume_raw_n(limit);
        std::mem::take(&mut *self.read.borrow_mut())
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }
}
