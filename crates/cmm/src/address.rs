// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses that flows depend on, in order, so that those of a prefix are found without looking at the others.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// First flows of the chains by source, destination and outgoing destination; 0 is none.
type Heads = [u32; 3];

#[derive(Debug, Default)]
pub(crate) struct Addresses {
    v4: BTreeMap<u32, Heads>,
    v6: BTreeMap<u128, Heads>,
}

impl Addresses {
    /// The chains of an address, entered if it is new.
    pub fn heads(&mut self, addr: IpAddr) -> &mut Heads {
        match addr {
            IpAddr::V4(v4) => self.v4.entry(v4.into()).or_default(),
            IpAddr::V6(v6) => self.v6.entry(v6.into()).or_default(),
        }
    }

    /// Forgets an address without flows.
    pub fn forget_unused(&mut self, addr: IpAddr) {
        match addr {
            IpAddr::V4(v4) => {
                let key = u32::from(v4);
                if self.v4.get(&key) == Some(&[0; 3]) {
                    self.v4.remove(&key);
                }
            }
            IpAddr::V6(v6) => {
                let key = u128::from(v6);
                if self.v6.get(&key) == Some(&[0; 3]) {
                    self.v6.remove(&key);
                }
            }
        }
    }

    /// The chains of the addresses from one to another; none if they are of two families or in the wrong order.
    pub fn between(&self, range: (IpAddr, IpAddr)) -> Box<dyn Iterator<Item = Heads> + '_> {
        match range {
            (IpAddr::V4(from), IpAddr::V4(to)) if from <= to => {
                let range = u32::from(from)..=u32::from(to);
                Box::new(self.v4.range(range).map(|(_, heads)| *heads))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) if from <= to => {
                let range = u128::from(from)..=u128::from(to);
                Box::new(self.v6.range(range).map(|(_, heads)| *heads))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}
