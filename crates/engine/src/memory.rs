// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table that the daemon has given: BPF arrays, mapped here as in the daemon (`BPF_F_MMAPABLE`, bpf(2)).

use std::io;
use std::os::fd::OwnedFd;

use freeway_abi::{
    FW_GROUP, FW_HASH_KEYS, FW_ST_FREE, fw_config, fw_control, fw_flow, fw_nexthop, fw_watch,
};
use freeway_api::engine::Table;

use crate::mapping::Mapping;

/// The most that the daemon's own table can have.
const FLOWS_MAX: u32 = 1 << 21;
const NEXTHOPS_MAX: u32 = 1 << 16;

/// Flows, next hops, control and watch, mapped.
#[derive(Debug)]
pub struct Memory {
    flows: Mapping,
    nexthops: Mapping,
    control: Mapping,
    watch: Mapping,
    config: Box<fw_config>,
    clock: (u64, u32),
}

impl Memory {
    /// Maps what the daemon has sent.
    pub fn map(
        table: &Table,
        [flows, nexthops, control, watch]: &[OwnedFd; 4],
    ) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let power = |mask: u32, max: u32| {
            (mask < max && (mask + 1).is_power_of_two()).then_some(mask as usize + 1)
        };
        // a flow's home is within its group, and so within the table
        let flow_count = power(table.flow_mask, FLOWS_MAX)
            .filter(|count| *count >= FW_GROUP as usize)
            .ok_or_else(|| wrong("flow_mask"))?;
        let nexthop_count =
            power(table.nexthop_mask, NEXTHOPS_MAX).ok_or_else(|| wrong("nexthop_mask"))?;
        let hash_key = <[u64; FW_HASH_KEYS as usize]>::try_from(table.hash_key.as_slice())
            .map_err(|_| wrong("hash_key"))?;
        if table.hash_shift + flow_count.ilog2() != 64 || table.hz == 0 {
            return Err(wrong("hash_shift or hz"));
        }
        Ok(Self {
            flows: Mapping::new(Some(flows), flow_count * size_of::<fw_flow>())?,
            nexthops: Mapping::new(Some(nexthops), nexthop_count * size_of::<fw_nexthop>())?,
            control: Mapping::new(Some(control), size_of::<fw_control>())?,
            watch: Mapping::new(Some(watch), size_of::<fw_watch>())?,
            config: Box::new(fw_config {
                hz: table.hz,
                ct_check_ticks: table.ct_check_ticks,
                flow_mask: table.flow_mask,
                nexthop_mask: table.nexthop_mask,
                hash_shift: table.hash_shift,
                hash_key,
                ..fw_config::default()
            }),
            clock: (table.clock_ns, table.clock_tick),
        })
    }

    /// A table without flows, switched off: everything is the kernel's.
    pub fn none() -> io::Result<Self> {
        const { assert!(FW_ST_FREE == 0) };
        let places = 64;
        Ok(Self {
            flows: Mapping::new(None, places * size_of::<fw_flow>())?,
            nexthops: Mapping::new(None, size_of::<fw_nexthop>())?,
            control: Mapping::new(None, size_of::<fw_control>())?,
            watch: Mapping::new(None, size_of::<fw_watch>())?,
            config: Box::new(fw_config {
                hz: 1000,
                flow_mask: places as u32 - 1,
                hash_shift: 64 - places.ilog2(),
                hash_key: [1; FW_HASH_KEYS as usize],
                ..fw_config::default()
            }),
            clock: (0, 1),
        })
    }

    /// The flows.
    #[must_use]
    pub fn flows(&self) -> *mut fw_flow {
        self.flows.at()
    }

    /// The next hops.
    #[must_use]
    pub fn nexthops(&self) -> *mut fw_nexthop {
        self.nexthops.at()
    }

    /// Switches and deadline.
    #[must_use]
    pub fn control(&self) -> *mut fw_control {
        self.control.at()
    }

    /// The tuple that is watched.
    #[must_use]
    pub fn watch(&self) -> *const fw_watch {
        self.watch.at()
    }

    /// Load-time constants.
    #[must_use]
    pub fn config(&self) -> &fw_config {
        &self.config
    }

    /// CLOCK_MONOTONIC in nanoseconds, and the tick that had begun then.
    #[must_use]
    pub fn clock(&self) -> (u64, u32) {
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn fds() -> [OwnedFd; 4] {
        std::array::from_fn(|_| tempfile::tempfile().unwrap().into())
    }

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        let table = Table {
            flow_mask: 1023,
            nexthop_mask: 63,
            hash_shift: 54,
            hash_key: vec![1; FW_HASH_KEYS as usize],
            hz: 250,
            ..Table::default()
        };
        assert!(Memory::map(&table, &fds()).is_ok());
        let changes: [fn(&mut Table); 7] = [
            |t| t.flow_mask = 1022,
            |t| t.flow_mask = u32::MAX,
            |t| t.nexthop_mask = 62,
            |t| t.hash_shift = 53,
            |t| (t.flow_mask, t.hash_shift) = (FW_GROUP / 2 - 1, 64 - (FW_GROUP / 2).ilog2()),
            |t| t.hash_key.truncate(4),
            |t| t.hz = 0,
        ];
        for change in changes {
            let mut table = table.clone();
            change(&mut table);
            assert!(Memory::map(&table, &fds()).is_err(), "{table:?}");
        }
    }
}
