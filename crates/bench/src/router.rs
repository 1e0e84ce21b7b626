// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who forwards in a measurement: the kernel in its shapes, other fast paths of the kernel, Freeway, and bare programs.

use freeway_console::Stop;
use freeway_lab::{Filter, Lab, LabError, Options, Reference, ReferenceGuard, Topology};
use serde::{Deserialize, Serialize};

/// A router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Router {
    /// The kernel as the measurement has it.
    Kernel,
    /// A kernel without nftables and conntrack.
    KernelStateless,
    /// A kernel with conntrack and a stateful ruleset.
    KernelStateful,
    /// The kernel without what the scenario adds to it.
    KernelPlain,
    /// A kernel with conntrack, a stateful ruleset and a flow table of nftables, in software.
    Flowtable,
    /// The same, asked by an XDP program for each frame.
    FlowtableXdp,
    /// An XDP program that asks the kernel's FIB for each frame.
    Fib,
    /// An XDP program with the scenario's routes in an LPM trie of its own.
    LpmTrie,
    /// The kernel with Freeway.
    Freeway,
    /// The same, all in tc.
    Tc,
    /// A bare XDP redirect.
    Redirect,
    /// A bare XDP broadcast.
    Broadcast,
}

impl Router {
    /// As text has it.
    pub fn name(self) -> &'static str {
        match self {
            Router::Kernel => "kernel",
            Router::KernelStateless => "kernel, no conntrack",
            Router::KernelStateful => "kernel, conntrack",
            Router::KernelPlain => "plain kernel",
            Router::Flowtable => "flow table",
            Router::FlowtableXdp => "flow table from XDP",
            Router::Fib => "FIB from XDP",
            Router::LpmTrie => "LPM trie from XDP",
            Router::Freeway => "Freeway",
            Router::Tc => "Freeway in tc",
            Router::Redirect => "bare redirect",
            Router::Broadcast => "bare broadcast",
        }
    }

    /// Its time over Freeway's.
    pub fn over_freeway(self) -> &'static str {
        match self {
            Router::Kernel => "kernel / Freeway",
            Router::KernelStateless => "kernel, no conntrack / Freeway",
            Router::KernelStateful => "kernel, conntrack / Freeway",
            Router::KernelPlain => "plain kernel / Freeway",
            Router::Flowtable => "flow table / Freeway",
            Router::FlowtableXdp => "flow table from XDP / Freeway",
            Router::Fib => "FIB from XDP / Freeway",
            Router::LpmTrie => "LPM trie from XDP / Freeway",
            Router::Freeway => "Freeway / Freeway",
            Router::Tc => "Freeway in tc / Freeway",
            Router::Redirect => "bare redirect / Freeway",
            Router::Broadcast => "bare broadcast / Freeway",
        }
    }

    /// Which of its shapes the kernel of a topology has.
    pub fn kernel_of(topology: &Topology) -> Router {
        match topology.filter {
            Filter::None if !topology.masquerade => Router::KernelStateless,
            _ => Router::KernelStateful,
        }
    }

    /// What a lab is built with that has this router; or why there is none.
    fn options(self, topology: &Topology, like: &Options) -> Result<Options, &'static str> {
        let options = like.clone();
        match self {
            Router::KernelStateless if topology.masquerade => {
                Err("the scenario translates addresses, which the kernel does with conntrack")
            }
            Router::Fib | Router::LpmTrie if topology.masquerade => {
                Err("the scenario translates addresses, which this program does not")
            }
            Router::LpmTrie if like.beyond.is_none() => {
                Err("the scenario has no table of routes, which this program is to hold")
            }
            Router::KernelStateless | Router::Fib => Ok(Options {
                filter: Some(Filter::None),
                ..options
            }),
            // its table is the trie; what it leaves goes by the kernel's default route
            Router::LpmTrie => Ok(Options {
                filter: Some(Filter::None),
                routes: 0,
                ..options
            }),
            Router::KernelStateful => Ok(Options {
                filter: Some(Filter::Stateful),
                ..options
            }),
            Router::Flowtable | Router::FlowtableXdp => Ok(Options {
                filter: Some(Filter::Stateful),
                flowtable: true,
                ..options
            }),
            Router::KernelPlain => Ok(Options {
                extra_nft: String::new(),
                routes: 0,
                vlan: None,
                bridge: false,
                pppoe: None,
                ..options
            }),
            Router::Kernel
            | Router::Freeway
            | Router::Tc
            | Router::Redirect
            | Router::Broadcast => Ok(options),
        }
    }

    /// Builds a lab with this router, but for Freeway's daemon; or says why this topology or this kernel cannot have it.
    pub fn build(
        self,
        topology: &'static Topology,
        like: &Options,
    ) -> Result<Result<Place, String>, Stop> {
        let options = match self.options(topology, like) {
            Ok(options) => options,
            Err(why) => return Ok(Err(why.into())),
        };
        let lab = match Lab::build(topology, options) {
            Ok(lab) => lab,
            Err(LabError::Unsupported(why)) => return Ok(Err(why)),
            Err(error) => return Err(error.into()),
        };
        let program = match self.attach(&lab) {
            Ok(program) => program,
            Err(LabError::Unsupported(why)) => return Ok(Err(why)),
            Err(error) => return Err(error.into()),
        };
        Ok(Ok(Place {
            router: self,
            program,
            lab,
        }))
    }

    /// Its program, if it is one.
    fn attach(self, lab: &Lab) -> Result<Option<ReferenceGuard>, LabError> {
        let reference = match self {
            Router::Fib => Reference::XdpFib,
            Router::LpmTrie => Reference::XdpLpm {
                routes: lab.options().beyond.map_or(0, |beyond| beyond.routes),
            },
            Router::FlowtableXdp => Reference::XdpFlowtable,
            Router::Redirect => Reference::XdpRedirect,
            _ => return Ok(None),
        };
        lab.attach(reference).map(Some)
    }
}

/// A router in a lab of its own. Fields are dropped in order.
#[derive(Debug)]
pub struct Place {
    /// Who it is.
    pub router: Router,
    program: Option<ReferenceGuard>,
    /// Where it is.
    pub lab: Lab,
}

impl Place {
    /// True if connections have to be opened there.
    pub fn tracks(&self) -> bool {
        let topology = self.lab.topology();
        let filter = self.lab.options().filter.unwrap_or(topology.filter);
        topology.masquerade || filter != Filter::None
    }

    /// What a peer's fast path has left to the kernel so far, frames with as many bytes of L3; none of one that has no fast path.
    pub fn slow_frames(&self, l3_bytes: u32) -> Result<Option<f64>, Stop> {
        Ok(match (&self.program, self.router) {
            (Some(program), Router::Fib | Router::LpmTrie | Router::FlowtableXdp) => {
                Some(program.counted()? as f64)
            }
            (_, Router::Flowtable) => Some(self.lab.filtered_bytes()? as f64 / f64::from(l3_bytes)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use freeway_lab::routes::Beyond;

    use super::*;

    fn topology(name: &str) -> &'static Topology {
        Topology::parse(name).unwrap()
    }

    #[test]
    fn what_translates_needs_conntrack() {
        let beyond = Some(Beyond {
            hosts: 1,
            routes: 1,
        });
        let like = Options {
            beyond,
            ..Options::default()
        };
        for router in [Router::KernelStateless, Router::Fib, Router::LpmTrie] {
            let why = router.options(topology("nat"), &like).unwrap_err();
            assert!(why.contains("translates addresses"), "{why}");
            for name in ["routed", "routed6"] {
                let options = router.options(topology(name), &like).unwrap();
                assert_eq!(options.filter, Some(Filter::None));
            }
        }
        assert_eq!(
            Router::kernel_of(topology("routed")),
            Router::KernelStateless
        );
        assert_eq!(Router::kernel_of(topology("nat")), Router::KernelStateful);
    }

    #[test]
    fn a_trie_has_the_table_instead_of_the_kernel() {
        let plain = Options::default();
        let why = Router::LpmTrie.options(topology("routed"), &plain);
        assert!(why.unwrap_err().contains("no table of routes"));
        let table = Options {
            routes: 7,
            beyond: Some(Beyond {
                hosts: 3,
                routes: 7,
            }),
            ..plain
        };
        let of = |router: Router| router.options(topology("routed"), &table).unwrap();
        let trie = of(Router::LpmTrie);
        assert_eq!((trie.routes, trie.beyond), (0, table.beyond));
        assert_eq!(of(Router::Fib).routes, 7);
        let name = serde_json::to_value(Router::LpmTrie).unwrap();
        assert_eq!(name, "lpm_trie");
    }

    #[test]
    fn shapes_are_options() {
        let like = Options {
            extra_nft: "table ip more {}".into(),
            routes: 7,
            vlan: Some(5),
            pppoe: Some(7),
            ..Options::default()
        };
        let of = |router: Router| router.options(topology("nat"), &like).unwrap();
        assert!(of(Router::Flowtable).flowtable);
        assert!(!of(Router::Kernel).flowtable);
        assert_eq!(of(Router::KernelStateful).filter, Some(Filter::Stateful));
        let plain = of(Router::KernelPlain);
        assert_eq!((plain.extra_nft.as_str(), plain.routes), ("", 0));
        assert_eq!(of(Router::Freeway).extra_nft, like.extra_nft);
        assert_eq!((plain.vlan, plain.pppoe, plain.bridge), (None, None, false));
        for router in [Router::Kernel, Router::Flowtable, Router::Freeway] {
            assert_eq!((of(router).vlan, of(router).pppoe), (Some(5), Some(7)));
        }
    }

    #[test]
    fn ratios_are_named_after_both() {
        for router in [
            Router::Kernel,
            Router::KernelStateless,
            Router::KernelStateful,
            Router::KernelPlain,
            Router::Flowtable,
            Router::FlowtableXdp,
            Router::Fib,
            Router::LpmTrie,
            Router::Tc,
            Router::Redirect,
            Router::Broadcast,
        ] {
            let name = format!("{} / Freeway", router.name());
            assert_eq!(router.over_freeway(), name);
        }
    }
}
