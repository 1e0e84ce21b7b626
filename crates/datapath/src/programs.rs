// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs at ports. Those that a kind of port needs are loaded for the first such port: the verifier takes longest
//! at start-up.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use freeway_abi::fw_config;
use libbpf_rs::Object;

use crate::DatapathError;
use crate::attach::Hook;
use crate::load::{MapByName, handles, load_with, prog_fd};

static XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.o"));
static BRIDGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.o"));
static BOND: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bond.o"));
static TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.o"));
static RAW: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/raw.o"));

/// What is loaded at once: programs of an object.
#[derive(Clone, Copy)]
enum Part {
    /// These two are there from the start, with all maps of theirs.
    Xdp,
    TcEgress,
    TcIngress,
    TcIngressAlone,
    TcBridge,
    RawEgress,
    RawIngress,
    RawIngressAlone,
    Bridge,
    Bond,
}

const PARTS: usize = Part::Bond as usize + 1;

impl Part {
    fn of(hook: Hook) -> Self {
        match hook {
            Hook::Xdp => Part::Xdp,
            Hook::Egress => Part::TcEgress,
            Hook::Ingress => Part::TcIngress,
            Hook::IngressAlone => Part::TcIngressAlone,
            Hook::RawEgress => Part::RawEgress,
            Hook::RawIngress => Part::RawIngress,
            Hook::RawIngressAlone => Part::RawIngressAlone,
            Hook::BridgeIngress | Hook::BridgeEgress => Part::TcBridge,
            Hook::BridgeXdp => Part::Bridge,
            Hook::BondXdp => Part::Bond,
        }
    }

    fn object(self) -> (&'static str, &'static [u8]) {
        match self {
            Part::Xdp => ("xdp", XDP),
            Part::TcEgress | Part::TcIngress | Part::TcIngressAlone | Part::TcBridge => ("tc", TC),
            Part::RawEgress | Part::RawIngress | Part::RawIngressAlone => ("raw", RAW),
            Part::Bridge => ("bridge", BRIDGE),
            Part::Bond => ("bond", BOND),
        }
    }

    fn has(self, program: &str) -> bool {
        match self {
            Part::Xdp | Part::Bridge | Part::Bond => true,
            Part::TcEgress | Part::RawEgress => program == "freeway_egress",
            Part::TcIngress | Part::RawIngress => program == "freeway_ingress",
            Part::TcIngressAlone | Part::RawIngressAlone => program == "freeway_ingress_alone",
            Part::TcBridge => program.starts_with("freeway_bridge_"),
        }
    }
}

/// The programs that are loaded.
#[derive(Default)]
pub(crate) struct Programs {
    parts: [OnceCell<Object>; PARTS],
}

impl Programs {
    /// Loads what is there from the start; its maps.
    pub(crate) fn load(config: &fw_config) -> Result<(Self, MapByName), DatapathError> {
        let programs = Self::default();
        let mut maps = MapByName::new();
        for part in [Part::Xdp, Part::TcEgress] {
            for (name, map) in handles(programs.part(part, config, &maps)?)? {
                maps.entry(name).or_insert(map);
            }
        }
        Ok((programs, maps))
    }

    fn part(
        &self,
        part: Part,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<&Object, DatapathError> {
        let (name, bytes) = part.object();
        let cell = self.parts.get(part as usize);
        let cell = cell.ok_or(DatapathError::Missing { object: name, name })?;
        if let Some(object) = cell.get() {
            return Ok(object);
        }
        let loaded = load_with(name, bytes, |program| part.has(program), config, maps)?;
        Ok(cell.get_or_init(|| loaded))
    }

    /// The program for a place, loaded if it is not.
    pub(crate) fn get(
        &self,
        hook: Hook,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<OwnedFd, DatapathError> {
        let part = Part::of(hook);
        let object = self.part(part, config, maps)?;
        prog_fd(object, part.object().0, hook.program())
    }

    /// What copies to a port run through there.
    pub(crate) fn leg(
        &self,
        config: &fw_config,
        maps: &MapByName,
    ) -> Result<OwnedFd, DatapathError> {
        prog_fd(self.part(Part::Xdp, config, maps)?, "xdp", "freeway_leg")
    }

    /// Ids of those that are loaded.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let objects = self.parts.iter().filter_map(OnceCell::get);
        let progs = objects.flat_map(|object| object.progs());
        progs.filter_map(|prog| libbpf_rs::Program::id_from_fd(prog.as_fd()).ok())
    }
}
