// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that are hooked into the way of forwarded packets, by whichever way this kernel tells of them.

use freeway_datapath::{DatapathError, Function, Hooked};
use freeway_kernel::hooks::{self, FORWARDING, HookedFunction};

/// NFPROTO_NETDEV.
const NETDEV: u8 = 5;

/// Looks at the network namespace of the thread that asks.
pub struct Hooks {
    /// None: this kernel's structures cannot be read.
    programs: Option<Hooked>,
}

impl Hooks {
    /// Loads what reads the kernel's structures.
    #[must_use]
    pub fn open() -> Self {
        let programs = Hooked::load().inspect_err(|error| {
            tracing::info!("functions that take frames ahead of IP are not seen: {error}");
        });
        Self {
            programs: programs.ok(),
        }
    }

    /// Those on netfilter's hooks that forwarded packets pass; `None`: the kernel neither lists them nor lets them be read.
    #[must_use]
    pub fn forwarding(&self) -> Option<Vec<HookedFunction>> {
        let listed = hooks::forwarding_hooks().unwrap_or_else(|error| {
            tracing::debug!("listing netfilter hooks: {error}");
            None
        });
        listed.or_else(|| self.read().inspect_err(unread).ok()?)
    }

    fn read(&self) -> Result<Option<Vec<HookedFunction>>, DatapathError> {
        let Some(programs) = &self.programs else {
            return Ok(None);
        };
        let mut functions = Vec::new();
        for (family, hooks) in FORWARDING {
            for &hook in hooks {
                let there = programs.nf_hooks(family, hook)?.into_iter();
                let named =
                    |Function { name, module }| HookedFunction::named(family, hook, name, module);
                functions.extend(there.map(named));
            }
        }
        Ok(Some(functions))
    }

    /// Who takes a device's frames ahead of IP. `Ok(None)`: nobody; an error: that cannot be told.
    pub fn taker(&self, ifindex: u32) -> Result<Option<String>, Untold> {
        let programs = self.programs.as_ref().ok_or(Untold)?;
        let taker = programs.rx_handler(ifindex).inspect_err(unread);
        let taker = taker.map_err(|_| Untold)?;
        Ok(taker.map(|function| function.name))
    }

    /// Functions on a device's own hooks of netfilter that nobody has judged, where they can be read.
    #[must_use]
    pub fn foreign_at(&self, ifindex: u32) -> Vec<String> {
        let programs = self.programs.as_ref();
        let functions = programs.and_then(|programs| {
            let functions = programs.netdev_hooks(ifindex);
            functions.inspect_err(unread).ok()
        });
        let functions = functions.into_iter().flatten();
        let named = functions.map(|f| HookedFunction::named(NETDEV, 0, f.name, f.module));
        let foreign = named.filter(HookedFunction::is_foreign);
        foreign.map(|function| function.function).collect()
    }

    /// The kernel may look up the source of each IPv4 packet, whatever `rp_filter` says.
    #[must_use]
    pub fn checks_sources(&self) -> bool {
        let programs = self.programs.as_ref();
        programs.is_none_or(|programs| {
            programs
                .checks_sources()
                .inspect_err(unread)
                .unwrap_or(true)
        })
    }
}

/// The kernel does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untold;

fn unread(error: &DatapathError) {
    tracing::debug!("reading who is hooked in: {error}");
}
