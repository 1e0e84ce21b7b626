// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that are hooked into the way of packets, of which netlink does not tell.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use freeway_abi::{Pod, fw_hooked, fw_hooked_at};
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
    /// Of whichever program ran last.
    answer: Mutex<MapHandle>,
}

/// A function of the kernel, or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// As in /proc/kallsyms.
    pub name: String,
    /// Empty if it is the kernel's own.
    pub module: String,
}

impl Function {
    /// As "%ps" prints it; `None`: the kernel does not know its own names.
    fn of(printed: &str) -> Option<Self> {
        let (name, module) = printed.split_once(' ').unwrap_or((printed, ""));
        let named = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        named.then(|| Self {
            name: name.to_owned(),
            module: module.trim_matches(['[', ']']).to_owned(),
        })
    }
}

impl Hooked {
    /// Loads them. An error: this kernel's structures are others, or it has no BTF.
    pub fn load() -> Result<Self, DatapathError> {
        let object = load(OBJECT, HOOKED, |_, _| Ok(()))?;
        let maps = handles(&object)?;
        let answer = get(&maps, ".data.hooked")?;
        Ok(Self {
            rx_handler: prog_fd(&object, OBJECT, "freeway_rx_handler")?,
            nf_hooks: prog_fd(&object, OBJECT, "freeway_nf_hooks")?,
            answer: Mutex::new(MapHandle::try_from(answer).map_err(error("copying a descriptor"))?),
        })
    }

    /// Who takes a device's frames before IP has them: a bridge, a bond, a macvlan, an ipvlan, in whatever network namespace that is.
    /// An error: there is no such device.
    pub fn rx_handler(&self, ifindex: u32) -> Result<Option<Function>, DatapathError> {
        let mut at = fw_hooked_at {
            ifindex,
            ..Default::default()
        };
        Ok(self.ask(&self.rx_handler, &mut at)?.pop())
    }

    /// The functions on a hook of netfilter, in their order; `family` is an `NFPROTO_` number.
    pub fn nf_hooks(&self, family: u8, hook: u32) -> Result<Vec<Function>, DatapathError> {
        let mut at = fw_hooked_at {
            family: family.into(),
            hook,
            ..Default::default()
        };
        self.ask(&self.nf_hooks, &mut at)
    }

    fn ask(&self, prog: &OwnedFd, at: &mut fw_hooked_at) -> Result<Vec<Function>, DatapathError> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let found = syscall::run(prog, at).map_err(error("running a program"))?;
        if found == 0 {
            let gone = libbpf_rs::Error::from_raw_os_error(libc::ENODEV);
            return Err(error("finding the device")(gone));
        }
        let value = answer.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        drop(answer);
        let value = value
            .map_err(error("reading the answer"))?
            .unwrap_or_default();
        let answer = fw_hooked::from_bytes(&value).ok_or(DatapathError::Missing {
            object: OBJECT,
            name: ".data.hooked",
        })?;
        let names = answer
            .names
            .get(..answer.count as usize)
            .unwrap_or(&answer.names);
        let mut functions = Vec::new();
        for name in names {
            let text = name.split(|octet| *octet == 0).next().unwrap_or_default();
            let function = Function::of(&String::from_utf8_lossy(text));
            functions.push(function.unwrap_or_else(unnamed));
        }
        if answer.count as usize > names.len() {
            functions.push(unnamed());
        }
        Ok(functions)
    }
}

/// One that nobody knows.
fn unnamed() -> Function {
    Function {
        name: "unnamed".to_owned(),
        module: String::new(),
    }
}

fn error(what: &'static str) -> impl Fn(libbpf_rs::Error) -> DatapathError {
    move |source| DatapathError::Object {
        object: OBJECT,
        what,
        source,
    }
}
