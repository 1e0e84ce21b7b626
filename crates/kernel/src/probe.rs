// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel has, feature by feature: a name, what it is needed for, the first kernel with it, a check.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::sync::LazyLock;

use serde::Serialize;

use crate::error::Error;
use crate::message::Message;
use crate::socket::{Channel, Listener};

/// Whether a feature is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is.
    Present,
    /// It is not, and why.
    Missing(String),
    /// It could not be found out, and why.
    Unknown(String),
}

/// A feature of the kernel.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Short name.
    pub name: &'static str,
    /// What it is needed for.
    pub needed_for: &'static str,
    /// Without it Freeway does not run; else it does without.
    pub required: bool,
    /// The first kernel with it: major, minor.
    pub since: (u32, u32),
    check: fn() -> Outcome,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A probe and how it turned out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeResult {
    /// Short name.
    pub name: &'static str,
    /// What it is needed for.
    pub needed_for: &'static str,
    /// Without it Freeway does not run.
    pub required: bool,
    /// The first kernel with it: major, minor.
    pub since: (u32, u32),
    /// How it turned out.
    pub outcome: Outcome,
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.since;
        match &self.outcome {
            Outcome::Present => write!(f, "{}: present", self.name),
            Outcome::Missing(why) => write!(
                f,
                "{}: missing ({why}); needed for {}; in kernels from {major}.{minor}",
                self.name, self.needed_for
            ),
            Outcome::Unknown(why) => {
                write!(
                    f,
                    "{}: unknown ({why}); needed for {}",
                    self.name, self.needed_for
                )
            }
        }
    }
}

impl Probe {
    /// Looks.
    pub fn run(&self) -> ProbeResult {
        ProbeResult {
            name: self.name,
            needed_for: self.needed_for,
            required: self.required,
            since: self.since,
            outcome: (self.check)(),
        }
    }
}

/// All features, required ones first.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "BTF",
        needed_for: "loading the BPF programs",
        required: true,
        since: (5, 4),
        check: btf,
    },
    Probe {
        name: "rtnetlink",
        needed_for: "following links, routes and neighbours",
        required: true,
        since: (2, 2),
        check: || opens(libc::NETLINK_ROUTE),
    },
    Probe {
        name: "conntrack netlink",
        needed_for: "preparing TCP connections (CONFIG_NF_CT_NETLINK)",
        required: true,
        since: (2, 6),
        check: conntrack,
    },
    Probe {
        name: "bpf_xdp_ct_lookup",
        needed_for: "checking connections once a second (CONFIG_NF_CONNTRACK, its BTF)",
        required: true,
        since: (5, 18),
        check: || function("bpf_xdp_ct_lookup"),
    },
    Probe {
        name: "bpf_skb_ct_lookup",
        needed_for: "finding the connection of a learned flow",
        required: true,
        since: (5, 18),
        check: || function("bpf_skb_ct_lookup"),
    },
    Probe {
        name: "conntrack events",
        needed_for: "hearing of ended and changed connections at once (CONFIG_NF_CONNTRACK_EVENTS)",
        required: false,
        since: (2, 6),
        check: conntrack_events,
    },
    Probe {
        name: "nftables",
        needed_for: "finding rules that must see every packet",
        required: false,
        since: (3, 13),
        check: nftables,
    },
    Probe {
        name: "netdev netlink",
        needed_for: "knowing what drivers can do with XDP before trying",
        required: false,
        since: (6, 3),
        check: || match crate::netdev::xdp_features() {
            Ok(Some(_)) => Outcome::Present,
            Ok(None) => Outcome::Missing("no such generic netlink family".into()),
            Err(error) => unknown(&error),
        },
    },
    Probe {
        name: "tcx",
        needed_for: "attaching tc programs as links, which vanish with the daemon",
        required: false,
        since: (6, 6),
        check: || match crate::progs::tcx(1) {
            Ok(Some(_)) => Outcome::Present,
            Ok(None) => Outcome::Missing("the kernel does not know the attach type".into()),
            Err(error) => unknown(&error),
        },
    },
    Probe {
        name: "redirection to PPP",
        needed_for: "sending to PPP interfaces (also in 6.1 from 6.1.55)",
        required: false,
        since: (6, 5),
        check: || match redirects_to_ppp() {
            true => Outcome::Present,
            false => Outcome::Missing("the kernel takes PPP for Ethernet there".into()),
        },
    },
    Probe {
        name: "packet_diag",
        needed_for: "recognising tcpdump and other sniffers (CONFIG_PACKET_DIAG)",
        required: false,
        since: (3, 7),
        check: || match crate::sockets::packet_sockets() {
            Ok(_) => Outcome::Present,
            Err(error) if error.errno() == Some(libc::ENOENT) => {
                Outcome::Missing("the kernel does not list packet sockets".into())
            }
            Err(error) => unknown(&error),
        },
    },
    Probe {
        name: "xfrm netlink",
        needed_for: "hearing of IPsec policies and states (CONFIG_XFRM_USER)",
        required: false,
        since: (2, 6),
        check: || opens(libc::NETLINK_XFRM),
    },
];

/// Runs all probes in the calling thread's network namespace.
pub fn probe_all() -> Vec<ProbeResult> {
    PROBES.iter().map(Probe::run).collect()
}

/// Major and minor number of the running kernel.
pub fn kernel_version() -> Option<(u32, u32)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// True if XDP may send through a bond: `bond_xdp_xmit()` asks no part whether it can, and the bond's XDP features say so
/// from Linux 6.3 on.
pub fn sends_through_bonds() -> bool {
    static SENDS: LazyLock<bool> =
        LazyLock::new(|| kernel_version().is_some_and(|version| version >= (6, 3)));
    *SENDS
}

/// True if bpf_redirect() knows that PPP has no Ethernet header (`dev_is_mac_header_xmit` of 6.5, and of stable kernels
/// since September 2023). Nothing tells but the version.
pub fn redirects_to_ppp() -> bool {
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    knows_ppp(&read("osrelease"), &read("version"))
}

/// The same, of `uname -r` and `uname -v`. Distributions that keep `uname -r` from one stable release to the next name that in
/// the other: `#1 SMP PREEMPT_DYNAMIC Debian 6.1.170-1 (2026-05-01)`.
fn knows_ppp(release: &str, version: &str) -> bool {
    let words = version.split_whitespace().chain([release]);
    let mut versions = words.filter_map(|word| {
        let mut parts = word.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let patch = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        let number = |text: &str| text.parse::<u32>().ok();
        Some((number(major)?, number(minor)?, number(patch)?))
    });
    versions.any(|version| version >= (6, 5, 0) || matches!(version, (6, 1, 55..)))
}

fn unknown(error: &Error) -> Outcome {
    Outcome::Unknown(error.to_string())
}

fn opens(protocol: i32) -> Outcome {
    match Channel::open(protocol) {
        Ok(_) => Outcome::Present,
        Err(error) if error.errno() == Some(libc::EPROTONOSUPPORT) => {
            Outcome::Missing("no such netlink family".into())
        }
        Err(error) => unknown(&error),
    }
}

fn subsystem(kind: u16, what: &str) -> Outcome {
    let asked = Channel::open(libc::NETLINK_NETFILTER).and_then(|mut channel| {
        let mut ignore = |_: Message<'_>| {};
        channel.request(what, kind, |writer| writer.raw(&[0; 4]), &mut ignore)
    });
    match asked {
        Ok(()) => Outcome::Present,
        Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EPROTONOSUPPORT)) => {
            Outcome::Missing("nfnetlink has no such subsystem".into())
        }
        Err(error) => unknown(&error),
    }
}

/// IPCTNL_MSG_CT_GET_STATS.
fn conntrack() -> Outcome {
    subsystem((1 << 8) | 5, "tell the number of connections")
}

/// NFT_MSG_GETGEN.
fn nftables() -> Outcome {
    subsystem((10 << 8) | 16, "tell the generation of the ruleset")
}

fn conntrack_events() -> Outcome {
    match crate::sysctl::number("netfilter/nf_conntrack_events") {
        None => Outcome::Missing("there is no net.netfilter.nf_conntrack_events".into()),
        Some(0) => Outcome::Missing("net.netfilter.nf_conntrack_events is 0; set it to 2".into()),
        Some(_) => match Listener::open(libc::NETLINK_NETFILTER, &[3], 1 << 16) {
            Ok(_) => Outcome::Present,
            Err(error) => unknown(&error),
        },
    }
}

const BTF_DIR: &str = "/sys/kernel/btf";

fn btf() -> Outcome {
    match fs::metadata(format!("{BTF_DIR}/vmlinux")) {
        Ok(_) => Outcome::Present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Outcome::Missing("no BTF in sysfs; build the kernel with CONFIG_DEBUG_INFO_BTF".into())
        }
        Err(error) => Outcome::Unknown(error.to_string()),
    }
}

/// Looks for a function that programs may call.
pub fn has_function(name: &str) -> Outcome {
    function(name)
}

/// Looks for a function's name in the BTF of the kernel, of nf_conntrack and nf_nat.
fn function(name: &str) -> Outcome {
    let mut seen = false;
    for file in ["vmlinux", "nf_conntrack", "nf_nat"] {
        let mut bytes = Vec::new();
        let read = fs::File::open(format!("{BTF_DIR}/{file}"))
            .and_then(|mut file| file.read_to_end(&mut bytes));
        if read.is_ok() {
            seen = true;
            if names(&bytes, name) {
                return Outcome::Present;
            }
        }
    }
    if seen {
        Outcome::Missing(
            "not among the kernel's functions; is the module nf_conntrack loaded?".into(),
        )
    } else {
        Outcome::Unknown("the kernel's BTF cannot be read".into())
    }
}

/// True if the string section of some BTF has this name (struct btf_header).
fn names(btf: &[u8], name: &str) -> bool {
    use crate::nla::u32_at;
    let (Some(header), Some(offset), Some(len)) =
        (u32_at(btf, 4), u32_at(btf, 16), u32_at(btf, 20))
    else {
        return false;
    };
    let start = header as usize + offset as usize;
    let strings = btf
        .get(start..start.saturating_add(len as usize))
        .unwrap_or_default();
    strings
        .split(|&byte| byte == 0)
        .any(|string| string == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_no_kernel_has() {
        let missing = has_function("freeway_no_such_function");
        assert_ne!(missing, Outcome::Present);
        if btf() == Outcome::Present {
            assert!(matches!(missing, Outcome::Missing(_)), "{missing:?}");
        }
    }

    #[test]
    fn kernels_that_know_ppp() {
        for (release, version, knows) in [
            (
                "6.12.117+deb12-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-05-01)",
                true,
            ),
            (
                "6.1.0-56-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.170-1 (2026-05-01)",
                true,
            ),
            (
                "6.1.0-10-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.38-1 (2023-07-14)",
                false,
            ),
            ("6.1.55", "#1 SMP Fri Aug 1 12:34:56 UTC 2025", true),
            ("6.1.54", "#1 SMP Fri Aug 1 12:34:56 UTC 2025", false),
            (
                "6.2.0-39-generic",
                "#40~22.04.1-Ubuntu SMP PREEMPT_DYNAMIC Thu Nov 16 10:53:04 UTC 2",
                false,
            ),
            ("6.6.93", "#0 SMP Mon Jun 23 20:40:36 2025", true),
            ("", "", false),
        ] {
            assert_eq!(knows_ppp(release, version), knows, "{release} {version}");
        }
    }
}
