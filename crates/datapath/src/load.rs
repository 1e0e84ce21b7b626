// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening and loading BPF objects, and what is in them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use freeway_abi::{
    FW_CHOICES_MAX, FW_PATHS_MAX, FW_PORT_TABLES, Pod, fw_config, fw_flow, fw_hop, fw_nexthop,
};
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder};

use crate::DatapathError;
use crate::edges::edges_len;
use crate::packed::Packed;
use crate::shared::seen_len;
use crate::warnings;

pub(crate) const EDGES: &str = "fw_edges";
pub(crate) const PATH_COUNTS: &str = "fw_path_counts";
pub(crate) const PORT_TABLES: &str = "fw_port_tables";
pub(crate) const CHOICES: &str = "fw_choices";
pub(crate) const SOCKETS: &str = "fw_sockets";
pub(crate) const SOCKET_AT: &str = "fw_socket_at";

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
    packed: Packed,
    prepare: impl FnMut(&str, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<Object, DatapathError> {
    load_some(object, packed, |_| true, prepare)
}

/// Loads the programs of an object that are wanted, and all of its maps.
fn load_some(
    object: &'static str,
    packed: Packed,
    wanted: impl Fn(&str) -> bool,
    mut prepare: impl FnMut(&str, &mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
) -> Result<Object, DatapathError> {
    let error = |what| {
        move |source| DatapathError::Object {
            object,
            what,
            source,
        }
    };
    let bytes = packed.object().map_err(libbpf_rs::Error::from);
    let mut open = bytes
        .and_then(|bytes| ObjectBuilder::default().open_memory(&bytes))
        .map_err(error("opening"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        prepare(&name, &mut map).map_err(error("sizing its maps"))?;
    }
    for mut prog in open.progs_mut() {
        let name = prog.name().to_string_lossy().into_owned();
        prog.set_autoload(wanted(&name));
    }
    warnings::begin();
    open.load().map_err(|source| DatapathError::Load {
        object,
        source,
        said: warnings::taken(),
    })
}

fn bytes_of<T>(elements: u32) -> u32 {
    elements * size_of::<T>() as u32
}

/// Loads programs of an object of the pipeline. Maps that are there already are shared.
pub(crate) fn load_with(
    object: &'static str,
    packed: Packed,
    wanted: impl Fn(&str) -> bool,
    config: &fw_config,
    maps: &MapByName,
) -> Result<Object, DatapathError> {
    load_some(object, packed, wanted, |name, map| {
        share(config, maps, name, map)
    })
}

/// Sizes a map, and shares it if it is there already.
pub(crate) fn share(
    config: &fw_config,
    maps: &MapByName,
    name: &str,
    map: &mut libbpf_rs::OpenMapMut<'_>,
) -> libbpf_rs::Result<()> {
    prepare(config, name, map)?;
    match maps.get(name) {
        Some(shared) if is_shared(config, name) => map.reuse_fd(shared.as_fd()),
        _ => Ok(()),
    }
}

/// Load-time constants are each object's own.
pub(crate) fn is_shared(config: &fw_config, name: &str) -> bool {
    !name.starts_with(".rodata") && !is_absent(config, name)
}

/// A kernel without AF_XDP has no such map, and no instruction that is loaded names it.
fn is_absent(config: &fw_config, name: &str) -> bool {
    config.sockets == 0 && matches!(name, SOCKETS | SOCKET_AT)
}

/// Sizes and constants of what all objects have. Sized first: libbpf unmaps global data by the size it then has.
pub(crate) fn prepare(
    config: &fw_config,
    name: &str,
    map: &mut libbpf_rs::OpenMapMut<'_>,
) -> libbpf_rs::Result<()> {
    match name {
        ".rodata.config" => map.set_initial_value(config.as_bytes()),
        ".data.flows" => map.set_value_size(bytes_of::<fw_flow>(config.flow_mask + 1)),
        ".data.nexthops" => map.set_value_size(bytes_of::<fw_nexthop>(config.nexthop_mask + 1)),
        ".data.hops" => map.set_value_size(bytes_of::<fw_hop>(config.hop_mask + 1)),
        "fw_seen_flows" => map.set_max_entries(seen_len(config.flow_mask)),
        "fw_kept_flows" => map.set_max_entries(config.flow_mask + 1),
        EDGES => map.set_max_entries(edges_len(config.flow_mask)),
        PORT_TABLES if config.precedents != 0 => map.set_max_entries(FW_PORT_TABLES),
        CHOICES if config.precedents != 0 => map.set_max_entries(FW_CHOICES_MAX),
        PATH_COUNTS => map.set_max_entries(possible_cpus() * FW_PATHS_MAX),
        _ if is_absent(config, name) => map.set_autocreate(false),
        _ => Ok(()),
    }
}

/// Octets of kernel memory of each map, as the kernel accounts it, by the map's id: some are of several objects.
pub type MapMemory = BTreeMap<u32, u64>;

pub(crate) fn memory(maps: &MapByName) -> MapMemory {
    let of = |map: &MapHandle| Some((map.info().ok()?.info.id, map.query_fdinfo().ok()?.memlock?));
    let mut memory = MapMemory::new();
    memory.extend(maps.values().filter_map(of));
    memory
}

pub(crate) fn handles(object: &Object) -> Result<MapByName, DatapathError> {
    let mut handles = MapByName::new();
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        let handle = MapHandle::try_from(&map).map_err(|source| DatapathError::Map {
            map: "handle",
            source,
        })?;
        handles.insert(name, handle);
    }
    Ok(handles)
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
