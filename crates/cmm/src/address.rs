// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses that flows depend on, in order, so that those of a prefix are found without looking at the others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use freeway_kernel::model::Prefix;

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

    /// The chains of the addresses in a prefix.
    pub fn within(&self, prefix: &Prefix) -> Box<dyn Iterator<Item = Heads> + '_> {
        match prefix.addr {
            IpAddr::V4(v4) => {
                let rest = u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                let first = u32::from(v4) & !rest;
                Box::new(self.v4.range(first..=first | rest).map(|(_, heads)| *heads))
            }
            IpAddr::V6(v6) => {
                let rest = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                let first = u128::from(v6) & !rest;
                Box::new(self.v6.range(first..=first | rest).map(|(_, heads)| *heads))
            }
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}
