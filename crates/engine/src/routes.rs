// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of prefix paths that the daemon has given (`engine/routes.h`).

use std::io;
use std::os::fd::OwnedFd;

use freeway_abi::{
    FW_HOPS, FW_LEAVES, FW_ROUTE_ENTRANCES, fw_hop, fw_route_count, fw_route_entrance, fw_routes,
};
use freeway_api::engine::RouteTables;
use freeway_prefix::Family;

use crate::ffi::fwe_routes;
use crate::mapping::Mapping;

/// More CPUs and workers than anybody has.
const COUNTING_MAX: u32 = 1 << 14;

/// The tables, mapped, and C's view of them.
pub struct Routes {
    view: Box<fwe_routes>,
    _maps: [Mapping; 6],
}

// SAFETY: the view points into what is mapped, which is the value's.
unsafe impl Send for Routes {}

impl Routes {
    /// Maps what the daemon has sent.
    pub fn map(
        tables: &RouteTables,
        [prefixes4, prefixes6, routes, hops, entrances, counts]: &[OwnedFd; 6],
    ) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if tables.hop_mask >= FW_HOPS || !(tables.hop_mask + 1).is_power_of_two() {
            return Err(wrong("hop_mask"));
        }
        let counters = tables.count_mask.checked_add(1).unwrap_or(0);
        let counting = counters / FW_LEAVES;
        if !counters.is_multiple_of(FW_LEAVES) || counting > COUNTING_MAX || counting < tables.cpus
        {
            return Err(wrong("count_mask or cpus"));
        }
        let map = |fd, size| Mapping::new(Some(fd), size);
        let read = |fd, size| Mapping::to_read(fd, size);
        let maps = [
            read(prefixes4, size_of::<<u32 as Family>::Memory>())?,
            read(prefixes6, size_of::<<u128 as Family>::Memory>())?,
            map(routes, size_of::<fw_routes>())?,
            map(hops, (tables.hop_mask as usize + 1) * size_of::<fw_hop>())?,
            read(
                entrances,
                FW_ROUTE_ENTRANCES as usize * size_of::<fw_route_entrance>(),
            )?,
            map(counts, counters as usize * size_of::<fw_route_count>())?,
        ];
        let [prefixes4, prefixes6, routes, hops, entrances, counts] = &maps;
        // a table that was made before there was an engine has none of its: those of the first CPU are shared
        let own = counting - tables.cpus;
        let first = if own > 0 { tables.cpus * FW_LEAVES } else { 0 };
        let view = fwe_routes {
            prefixes4: prefixes4.at(),
            prefixes6: prefixes6.at(),
            routes: routes.at(),
            hops: hops.at(),
            entrances: entrances.at(),
            // SAFETY: so many counters are there, and those of a worker behind them.
            counts: unsafe { counts.at::<fw_route_count>().add(first as usize) },
            counts_workers: own.max(1),
            hop_mask: tables.hop_mask,
        };
        Ok(Self {
            view: Box::new(view),
            _maps: maps,
        })
    }

    /// For workers; it stays where it is.
    pub(crate) fn view(&self) -> &fwe_routes {
        &self.view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_cannot_be_are_refused() {
        let fds =
            || -> [OwnedFd; 6] { std::array::from_fn(|_| tempfile::tempfile().unwrap().into()) };
        let tables = RouteTables {
            number: 1,
            hop_mask: FW_HOPS - 1,
            count_mask: 4 * FW_LEAVES - 1,
            cpus: 2,
        };
        let routes = Routes::map(&tables, &fds()).unwrap();
        assert_eq!(routes.view().counts_workers, 2);
        let shared = RouteTables { cpus: 4, ..tables };
        assert_eq!(
            Routes::map(&shared, &fds()).unwrap().view().counts_workers,
            1
        );
        let changes: [fn(&mut RouteTables); 6] = [
            |t| t.hop_mask = FW_HOPS,
            |t| t.hop_mask = 1022,
            |t| t.count_mask = u32::MAX,
            |t| t.count_mask = 100,
            |t| t.cpus = 5,
            |t| t.cpus = u32::MAX,
        ];
        for change in changes {
            let mut tables = tables;
            change(&mut tables);
            assert!(Routes::map(&tables, &fds()).is_err(), "{tables:?}");
        }
    }
}
