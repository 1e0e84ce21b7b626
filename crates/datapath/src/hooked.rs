// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that are hooked into the way of packets, of which netlink does not tell.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use freeway_abi::{FW_HOOKED_NAME, Pod, fw_hooked, fw_hooked_at};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::DatapathError;
use crate::load::{get, handles, load, prog_fd};
use crate::packed::{Packed, packed};
use crate::syscall;

static HOOKED: Packed = packed!("hooked");
const OBJECT: &str = "hooked";

/// The programs that look. They look at the network namespace of the thread that asks.
pub struct Hooked {
    rx_handler: OwnedFd,
    nf_hooks: OwnedFd,
    netdev_hooks: OwnedFd,
    source_check: OwnedFd,
    /// Of whichever program ran last.
    answer: Mutex<MapHandle>,
}

/// A function of the kernel, or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// As in /proc/kallsyms, without what a compiler has put behind it.
    pub name: String,
    /// Empty if it is the kernel's own.
    pub module: String,
}

impl Function {
    /// As "%ps" prints it; `None`: the kernel does not know its own names.
    fn of(printed: &str) -> Option<Self> {
        let (name, module) = printed.split_once(' ').unwrap_or((printed, ""));
        let name = name.split('.').next().unwrap_or_default();
        let named = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        named.then(|| Self {
            name: name.to_owned(),
            module: module.trim_matches(['[', ']']).to_owned(),
        })
    }
}

/// How often functions are read again that changed meanwhile.
const TRIES: usize = 8;

impl Hooked {
    /// Loads them. An error: this kernel's structures are others, or it has no BTF.
    pub fn load() -> Result<Self, DatapathError> {
        let object = load(OBJECT, HOOKED, |_, _| Ok(()))?;
        let maps = handles(&object)?;
        let answer = MapHandle::try_from(get(&maps, ".data.hooked")?);
        let program = |name| prog_fd(&object, OBJECT, name);
        Ok(Self {
            rx_handler: program("freeway_rx_handler")?,
            nf_hooks: program("freeway_nf_hooks")?,
            netdev_hooks: program("freeway_netdev_hooks")?,
            source_check: program("freeway_source_check")?,
            answer: Mutex::new(answer.map_err(error("copying a descriptor"))?),
        })
    }

    /// Who takes a device's frames before IP has them: a bridge, a bond, a macvlan, an ipvlan, in whatever network namespace that is.
    /// An error: there is no such device, or the kernel has no names of its functions.
    pub fn rx_handler(&self, ifindex: u32) -> Result<Option<Function>, DatapathError> {
        let mut at = fw_hooked_at {
            ifindex,
            ..Default::default()
        };
        Ok(self.ask(&self.rx_handler, &mut at, 1)?.pop())
    }

    /// The functions on a hook of netfilter, in their order; `family` is an `NFPROTO_` number.
    pub fn nf_hooks(&self, family: u8, hook: u32) -> Result<Vec<Function>, DatapathError> {
        let mut at = fw_hooked_at {
            family: family.into(),
            hook,
            ..Default::default()
        };
        self.ask(&self.nf_hooks, &mut at, TRIES)
    }

    /// Those on a device's own hooks, ingress and then egress.
    pub fn netdev_hooks(&self, ifindex: u32) -> Result<Vec<Function>, DatapathError> {
        let mut functions = Vec::new();
        for hook in 0..2 {
            let mut at = fw_hooked_at {
                ifindex,
                hook,
                ..Default::default()
            };
            functions.extend(self.ask(&self.netdev_hooks, &mut at, TRIES)?);
        }
        Ok(functions)
    }

    /// The kernel looks up the source of each IPv4 packet, with `rp_filter` 0 as well: somebody has once added a route of type
    /// local (`fib_has_custom_local_routes`).
    pub fn checks_sources(&self) -> Result<bool, DatapathError> {
        let mut at = fw_hooked_at::default();
        let checks = syscall::run(&self.source_check, &mut at);
        Ok(checks.map_err(error("running a program"))? == 1)
    }

    fn ask(
        &self,
        prog: &OwnedFd,
        at: &mut fw_hooked_at,
        tries: usize,
    ) -> Result<Vec<Function>, DatapathError> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let run = |_| syscall::run(prog, at).map(|found| found != 0);
        let mut found = (0..tries)
            .map(run)
            .skip_while(|found| matches!(found, Ok(false)));
        let found = found.next().unwrap_or(Ok(false));
        if !found.map_err(error("running a program"))? {
            let gone = libbpf_rs::Error::from_raw_os_error(libc::EAGAIN);
            return Err(error("finding what is asked for")(gone));
        }
        let value = answer.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        drop(answer);
        let value = value.map_err(error("reading the answer"))?;
        let answer = fw_hooked::from_bytes(&value.unwrap_or_default()).ok_or(MISSING)?;
        let names = answer.names.get(..answer.count as usize).ok_or(UNNAMED)?;
        let function = |name: &[u8; FW_HOOKED_NAME as usize]| {
            let text = name.split(|octet| *octet == 0).next().unwrap_or_default();
            Function::of(&String::from_utf8_lossy(text)).ok_or(UNNAMED)
        };
        names.iter().map(function).collect()
    }
}

const MISSING: DatapathError = DatapathError::Missing {
    object: OBJECT,
    name: ".data.hooked",
};
/// The kernel has no names of its functions (CONFIG_KALLSYMS), or there are more than have a place.
const UNNAMED: DatapathError = DatapathError::Missing {
    object: OBJECT,
    name: "names of the kernel's functions",
};

fn error(what: &'static str) -> impl Fn(libbpf_rs::Error) -> DatapathError {
    move |source| DatapathError::Object {
        object: OBJECT,
        what,
        source,
    }
}
