// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands to connection tracking (ctnetlink).

use std::io;

use crate::error::{Error, Result};
use crate::model::{Connection, Family, Tuple};

/// One TCP connection to prepare for the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPrepare {
    /// The original tuple.
    pub orig: Tuple,
    /// The zone, 0 by default.
    pub zone: u16,
    /// Also set the time to expiry, in seconds.
    pub timeout_s: Option<u32>,
}

/// Which connections a dump returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Only this IP version.
    pub family: Option<Family>,
    /// Only this IP protocol number.
    pub proto: Option<u8>,
}

/// A command socket to connection tracking, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Conntrack {}

impl Conntrack {
    /// Opens the socket.
    pub fn open() -> Result<Conntrack> {
        Err(Error::Missing {
            what: "conntrack".into(),
            advice: "wait",
        })
    }
    /// Makes window tracking of each connection liberal in both directions; one result each, in order.
    /// `ENOENT` means that the connection is gone.
    pub fn prepare_tcp(&mut self, _batch: &[TcpPrepare]) -> Vec<io::Result<()>> {
        Vec::new()
    }
    /// Sets the time to expiry of connections, in seconds; one result each, in order.
    pub fn set_timeouts(&mut self, _batch: &[(Tuple, u16, u32)]) -> Vec<io::Result<()>> {
        Vec::new()
    }
    /// Sets the time to expiry of one connection.
    pub fn set_timeout(&mut self, _tuple: &Tuple, _zone: u16, _seconds: u32) -> io::Result<()> {
        Ok(())
    }
    /// The connection of a tuple, original or reply.
    pub fn get(&mut self, _tuple: &Tuple, _zone: u16) -> Result<Option<Connection>> {
        Ok(None)
    }
    /// All connections that the filter lets through.
    pub fn dump(&mut self, _filter: &ConnectionFilter) -> Result<Vec<Connection>> {
        Ok(Vec::new())
    }
    /// Visits all connections that the filter lets through, one at a time.
    pub fn for_each(
        &mut self,
        _filter: &ConnectionFilter,
        _visit: &mut dyn FnMut(Connection),
    ) -> Result<()> {
        Ok(())
    }
}
