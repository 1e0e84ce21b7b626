// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists of ports to which multicast is copied, and the device map of each.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freeway_abi::{FW_OLIST_MAX, FW_OLISTS};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};

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

/// Removes an element that may not be there.
pub(crate) fn remove(map: &MapHandle, key: &[u8]) -> libbpf_rs::Result<()> {
    match map.delete(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The lists.
pub(crate) struct Copies {
    pub olists: Olists,
    /// The map of the lists' device maps.
    outer: MapHandle,
    /// The device maps that are in it, by number less 1.
    ports: Arc<Mutex<Vec<MapHandle>>>,
    prepared: AtomicBool,
    /// Nobody needs further ones.
    end: Arc<AtomicBool>,
    /// Devices of which some list is, or was, whose copies differ: the legs' program runs on all that is sent there.
    carried: RefCell<BTreeSet<u32>>,
    /// The devices of each list.
    devices: RefCell<BTreeMap<u32, Vec<u32>>>,
}

impl Copies {
    pub fn new(olists: impl AsFd, outer: &MapHandle) -> Result<Self, DatapathError> {
        Ok(Self {
            olists: Olists::map(olists)?,
            outer: MapHandle::try_from(outer).map_err(failed)?,
            ports: Arc::default(),
            prepared: AtomicBool::new(false),
            end: Arc::default(),
            carried: RefCell::default(),
            devices: RefCell::default(),
        })
    }

    /// Begins to enter the device maps, once. For each the kernel waits for an RCU grace period
    /// (`maybe_wait_bpf_programs()`), so a thread does it.
    pub fn prepare(&self) -> Result<(), DatapathError> {
        if self.prepared.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let outer = MapHandle::try_from(&self.outer).map_err(failed)?;
        let (ports, end) = (Arc::clone(&self.ports), Arc::clone(&self.end));
        let work = move || {
            for number in 1..FW_OLISTS {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                match create().and_then(|map| enter(&outer, number, &map).map(|()| map)) {
                    Ok(map) => ports
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(map),
                    Err(error) => {
                        tracing::warn!("no more than {} lists of ports: {error}", number - 1);
                        break;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("freeway-lists".into());
        thread.spawn(work).map(drop).map_err(|e| failed(e.into()))
    }

    pub fn carries(&self, device: u32) -> bool {
        self.carried.borrow().contains(&device)
    }

    /// Each of its entries for unicast has the legs' program, and so have those of lists from now on.
    pub fn carry(&self, device: u32, program: &OwnedFd) {
        self.carried.borrow_mut().insert(device);
        let entry = target(device, Some(program));
        for (number, devices) in self.devices.borrow().iter() {
            let Some(at) = devices.iter().position(|of| *of == device) else {
                continue;
            };
            let key = (at as u32).to_ne_bytes();
            // of a list that is used no more the device may be gone, and the entry with it
            let _ = self.with(*number, |map| map.update(&key, &entry, MapFlags::ANY));
        }
    }

    /// Every poll that began before has ended: that of the kernel's wait for the map of maps.
    pub fn wait_for_polls(&self, number: u32) -> Result<(), DatapathError> {
        self.with(number, |map| enter(&self.outer, number, map))
    }

    /// The devices of a list, and no others; `program` is the legs'.
    pub fn set_ports(
        &self,
        number: u32,
        devices: &[u32],
        program: &OwnedFd,
    ) -> Result<(), DatapathError> {
        self.devices.borrow_mut().insert(number, devices.to_vec());
        let entry = |device: &u32| target(*device, self.carries(*device).then_some(program));
        let entries: Vec<_> = devices.iter().map(entry).collect();
        self.with(number, |map| {
            for (at, key) in (0..FW_OLIST_MAX).map(u32::to_ne_bytes).enumerate() {
                match entries.get(at) {
                    Some(entry) => map.update(&key, entry, MapFlags::ANY)?,
                    None => remove(map, &key)?,
                }
            }
            Ok(())
        })
    }

    /// Does something with a list's map, if it is there yet.
    fn with(
        &self,
        number: u32,
        call: impl FnOnce(&MapHandle) -> libbpf_rs::Result<()>,
    ) -> Result<(), DatapathError> {
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let map = number.checked_sub(1).and_then(|at| ports.get(at as usize));
        let map = map.ok_or(DatapathError::Missing {
            object: "xdp",
            name: "device map of a list, so far",
        })?;
        call(map).map_err(failed)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

fn failed(source: libbpf_rs::Error) -> DatapathError {
    DatapathError::Map {
        map: "fw_olist_ports",
        source,
    }
}

fn enter(outer: &MapHandle, number: u32, map: &MapHandle) -> libbpf_rs::Result<()> {
    let fd = map.as_fd().as_raw_fd().to_ne_bytes();
    outer.update(&number.to_ne_bytes(), &fd, MapFlags::ANY)
}

/// As `fw_olist_ports` in `dataplane/target/xdp.h` has it.
fn create() -> libbpf_rs::Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let (key, value) = (size_of::<u32>() as u32, size_of::<[u32; 2]>() as u32);
    MapHandle::create(
        MapType::DevmapHash,
        Some("fw_olist"),
        key,
        value,
        FW_OLIST_MAX,
        &opts,
    )
}
