// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections there may be at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Of all.
const ALL_MAX: usize = 64;
/// Of one address, unless it is this machine: a proxy may stand there for many.
const ADDRESS_MAX: usize = 16;

/// Who is there.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    /// `None`: there is none for that address.
    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let mut there = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = there.values().sum();
        let own = there.get(&address).copied().unwrap_or_default();
        if all >= ALL_MAX || !address.is_loopback() && own >= ADDRESS_MAX {
            return None;
        }
        there.insert(address, own + 1);
        Some(Place {
            places: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut there = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        match there.get_mut(&self.address) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(there.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_to_others() {
        let places = Places::default();
        let [here, one, other] =
            ["127.0.0.1", "192.0.2.1", "2001:db8::1"].map(|a| a.parse().unwrap());
        let take = |address: IpAddr| {
            let taken = std::iter::from_fn(|| places.take(address));
            taken.collect::<Vec<_>>()
        };
        let first = take(one);
        assert_eq!(first.len(), ADDRESS_MAX);
        assert_eq!(take(other).len(), ADDRESS_MAX);
        let rest = take(here);
        assert_eq!(rest.len(), ALL_MAX - ADDRESS_MAX);
        assert!(places.take(other).is_none());
        drop(first);
        assert!(places.take(other).is_some());
        drop(rest);
        assert!(places.0.lock().unwrap().is_empty());
    }
}
