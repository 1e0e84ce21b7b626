// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists of ports to which multicast is copied, and the device map of each.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use freeway_abi::FW_OLIST_MAX;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::DatapathError;
use crate::shared::Olists;

/// An entry of a device map (`struct bpf_devmap_val`): a device, and the program that runs on what is sent there.
pub(crate) fn target(ifindex: u32, program: Option<&OwnedFd>) -> [u8; 8] {
    let fd = program.map_or(0, AsRawFd::as_raw_fd);
    let mut value = [0; 8];
    value[..4].copy_from_slice(&ifindex.to_ne_bytes());
    value[4..].copy_from_slice(&fd.to_ne_bytes());
    value
}

/// The lists.
pub(crate) struct Copies {
    pub olists: Olists,
    ports: RefCell<BTreeMap<u32, MapHandle>>,
    /// Devices of which some list is, or was: the legs' program runs on all that is sent there.
    carried: RefCell<BTreeSet<u32>>,
}

impl Copies {
    pub fn new(olists: impl AsFd) -> Result<Self, DatapathError> {
        Ok(Self {
            olists: Olists::map(olists)?,
            ports: RefCell::default(),
            carried: RefCell::default(),
        })
    }

    pub fn carries(&self, device: u32) -> bool {
        self.carried.borrow().contains(&device)
    }

    /// Devices among these of which no list was.
    pub fn carry(&self, devices: &[u32]) -> Vec<u32> {
        let mut carried = self.carried.borrow_mut();
        devices
            .iter()
            .copied()
            .filter(|device| carried.insert(*device))
            .collect()
    }

    /// The entries of a list's map, and no others.
    pub fn set_ports(
        &self,
        number: u32,
        mut entries: impl Iterator<Item = [u8; 8]>,
    ) -> Result<(), DatapathError> {
        let error = |source| DatapathError::Map {
            map: "fw_olist_ports",
            source,
        };
        let mut ports = self.ports.borrow_mut();
        let map = match ports.entry(number) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => new.insert(create().map_err(error)?),
        };
        for at in 0..FW_OLIST_MAX {
            let key = at.to_ne_bytes();
            match entries.next() {
                Some(entry) => map.update(&key, &entry, MapFlags::ANY).map_err(error)?,
                None => map.delete(&key).map_err(error)?,
            }
        }
        Ok(())
    }

    /// What the map of maps is given for it.
    pub fn map(&self, number: u32) -> Result<[u8; 4], DatapathError> {
        let ports = self.ports.borrow();
        let map = ports.get(&number).ok_or(DatapathError::Missing {
            object: "xdp",
            name: "an olist",
        })?;
        Ok(map.as_fd().as_raw_fd().to_ne_bytes())
    }
}

/// As `fw_olist_ports` in `dataplane/target/xdp.h` has it.
fn create() -> libbpf_rs::Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let (key, value) = (size_of::<u32>() as u32, size_of::<[u32; 2]>() as u32);
    MapHandle::create(
        MapType::Devmap,
        Some("fw_olist"),
        key,
        value,
        FW_OLIST_MAX,
        &opts,
    )
}
