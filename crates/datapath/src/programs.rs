// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs at ports. Those that a kind of port needs are loaded for the first such port: the verifier takes longest
//! at start-up.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use freeway_abi::fw_config;
use libbpf_rs::Object;

use crate::DatapathError;
use crate::attach::{HOOKS, Hook};
use crate::load::{MapByName, handles, load_with, prog_fd};
use crate::packed::{Packed, packed};

static XDP: Packed = packed!("xdp");
static BRIDGE: Packed = packed!("bridge");
static BOND: Packed = packed!("bond");
static TC: Packed = packed!("tc");
static RAW: Packed = packed!("raw");

/// Of XDP's object, at ports of lists.
const LEG: &str = "freeway_leg";

/// The object that has the program for a place.
fn object(hook: Hook) -> (&'static str, Packed) {
    match hook {
        Hook::Xdp => ("xdp", XDP),
        Hook::Ingress
        | Hook::IngressAlone
        | Hook::Egress
        | Hook::BridgeIngress
        | Hook::BridgeEgress => ("tc", TC),
        Hook::RawIngress | Hook::RawIngressAlone | Hook::RawEgress => ("raw", RAW),
        Hook::BridgeXdp => ("bridge", BRIDGE),
        Hook::BondXdp => ("bond", BOND),
    }
}

/// The programs that are loaded, each with the maps of its object.
#[derive(Default)]
pub(crate) struct Programs {
    /// By place.
    loaded: [OnceCell<Object>; HOOKS],
}

impl Programs {
    /// Loads what every port needs; the maps of it, which are all that there are.
    pub(crate) fn load(config: &fw_config) -> Result<(Self, MapByName), DatapathError> {
        let programs = Self::default();
        let mut maps = MapByName::new();
        for hook in [Hook::Xdp, Hook::Egress] {
            for (name, map) in handles(programs.object(hook, config, &maps)?)? {
                maps.entry(name).or_insert(map);
            }
        }
        Ok((programs, maps))
    }

    fn object(
        &self,
        hook: Hook,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<&Object, DatapathError> {
        let (name, bytes) = object(hook);
        let cell = self.loaded.get(hook as usize);
        let cell = cell.ok_or(DatapathError::Missing { object: name, name })?;
        if let Some(object) = cell.get() {
            return Ok(object);
        }
        // copies run through the leg, whatever kind of port they came in at
        let wanted = |program: &str| program == hook.program() || program == LEG;
        let loaded = load_with(name, bytes, wanted, config, maps)?;
        Ok(cell.get_or_init(|| loaded))
    }

    /// The program for a place, loaded if it is not.
    pub(crate) fn get(
        &self,
        hook: Hook,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<OwnedFd, DatapathError> {
        let loaded = self.object(hook, config, maps)?;
        prog_fd(loaded, object(hook).0, hook.program())
    }

    /// What copies to a port run through there.
    pub(crate) fn leg(
        &self,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<OwnedFd, DatapathError> {
        prog_fd(self.object(Hook::Xdp, config, maps)?, "xdp", LEG)
    }

    /// Ids of those that are loaded.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let objects = self.loaded.iter().filter_map(OnceCell::get);
        let progs = objects.flat_map(|object| object.progs());
        progs.filter_map(|prog| libbpf_rs::Program::id_from_fd(prog.as_fd()).ok())
    }
}
