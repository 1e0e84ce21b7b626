// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening and loading BPF objects, and what is in them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder};

use crate::DatapathError;

pub(crate) type MapByName = BTreeMap<String, MapHandle>;

pub(crate) fn possible_cpus() -> u32 {
    libbpf_rs::num_possible_cpus().unwrap_or(1).max(1) as u32
}

pub(crate) fn get<'m>(
    maps: &'m MapByName,
    name: &'static str,
) -> Result<&'m MapHandle, DatapathError> {
    maps.get(name).ok_or(DatapathError::Missing {
        object: "xdp",
        name,
    })
}

pub(crate) fn load(
    object: &'static str,
    bytes: &[u8],
    mut prepare: impl FnMut(&str, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<Object, DatapathError> {
    let error = |what| {
        move |source| DatapathError::Object {
            object,
            what,
            source,
        }
    };
    let mut open = ObjectBuilder::default()
        .open_memory(bytes)
        .map_err(error("opening"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        prepare(&name, &mut map).map_err(error("sizing its maps"))?;
    }
    open.load().map_err(error("loading"))
}

pub(crate) fn handles(object: &Object) -> Result<MapByName, DatapathError> {
    object
        .maps()
        .map(|map| {
            let name = map.name().to_string_lossy().into_owned();
            let handle = MapHandle::try_from(&map).map_err(|source| DatapathError::Map {
                map: "handle",
                source,
            })?;
            Ok((name, handle))
        })
        .collect()
}

pub(crate) fn prog_fd(
    object: &Object,
    what: &'static str,
    name: &'static str,
) -> Result<OwnedFd, DatapathError> {
    let missing = DatapathError::Missing { object: what, name };
    let prog = object.progs().find(|p| p.name() == name).ok_or(missing)?;
    let fd: BorrowedFd<'_> = prog.as_fd();
    fd.try_clone_to_owned().map_err(|e| DatapathError::Object {
        object: what,
        what: "duplicating a descriptor",
        source: libbpf_rs::Error::from(e),
    })
}

/// Unpredictable to whoever sends packets.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
