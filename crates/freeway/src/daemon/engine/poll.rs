// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel tells only when asked.

use std::collections::BTreeMap;

use freeway_cmm::FlowKey;
use freeway_kernel::ethtool::Ethtool;
use freeway_kernel::hooks;
use freeway_kernel::model::{Link, Tuple};
use freeway_kernel::netdev::{self, XdpFeatures};
use freeway_kernel::nft::{self, LegacyTable};
use freeway_kernel::probe::{Outcome, ProbeResult};
use freeway_kernel::progs;
use freeway_kernel::sockets::{PacketSocket, packet_sockets};
use freeway_kernel::sysctl::Sysctls;

use super::sample::Frames;
use crate::api::{Feature, FeatureState};

/// As it was at the last look.
#[derive(Debug, Default)]
pub(super) struct Polled {
    pub sysctls: Sysctls,
    pub sniffers: Vec<PacketSocket>,
    /// Tables of the legacy iptables, which tell of no change.
    pub legacy: Vec<LegacyTable>,
    /// Functions on the forwarding hooks that nobody has judged.
    pub foreign_hooks: Vec<String>,
    features: Option<BTreeMap<u32, XdpFeatures>>,
}

impl Polled {
    /// What cannot be read counts as absent; it is logged.
    pub(super) fn read() -> Self {
        let sockets = packet_sockets().unwrap_or_else(|error| {
            tracing::debug!("listing packet sockets: {error}");
            Vec::new()
        });
        let features = netdev::xdp_features().unwrap_or_else(|error| {
            tracing::debug!("listing XDP features: {error}");
            None
        });
        let hooks = hooks::forwarding_hooks().unwrap_or_else(|error| {
            tracing::debug!("listing netfilter hooks: {error}");
            None
        });
        let foreign = hooks
            .into_iter()
            .flatten()
            .filter(hooks::HookedFunction::is_foreign);
        Self {
            sysctls: Sysctls::read(),
            sniffers: sockets.into_iter().filter(|s| s.protocol != 0).collect(),
            legacy: nft::legacy_tables(),
            foreign_hooks: foreign.map(|h| h.function).collect(),
            features,
        }
    }

    /// True if a packet socket takes a flow's frames, coming in or leaving.
    pub(super) fn sniffed(&self, key: &FlowKey, out: &Tuple, port_out: u32) -> bool {
        if self.sniffers.is_empty() {
            return false;
        }
        let frames = Frames::of(&key.tuple, out);
        self.sniffers.iter().any(|socket| {
            socket.accepts(key.port, &frames.incoming, false)
                || socket.accepts(port_out, &frames.outgoing, true)
        })
    }

    /// Names of a port's XDP features, and whether it sends redirected frames. A
    /// kernel before 6.3 does not tell: it is believed, and watched.
    pub(super) fn xdp_features(&self, ifindex: u32) -> (Vec<String>, bool) {
        const NAMES: [(u64, &str); 7] = [
            (XdpFeatures::BASIC, "basic"),
            (XdpFeatures::REDIRECT, "redirect"),
            (XdpFeatures::NDO_XMIT, "ndo_xmit"),
            (XdpFeatures::XSK_ZEROCOPY, "xsk_zerocopy"),
            (XdpFeatures::HW_OFFLOAD, "hw_offload"),
            (XdpFeatures::RX_SG, "rx_sg"),
            (XdpFeatures::NDO_XMIT_SG, "ndo_xmit_sg"),
        ];
        let Some(features) = self.features.as_ref().and_then(|f| f.get(&ifindex)) else {
            return (Vec::new(), true);
        };
        let names = NAMES.iter().filter(|(bit, _)| features.has(*bit));
        (
            names.map(|(_, name)| (*name).to_owned()).collect(),
            features.has(XdpFeatures::NDO_XMIT),
        )
    }
}

/// Programs of others on a port's tcx hooks, and offloads that hide tags from XDP.
pub(super) fn blockers(link: &Link, ours: &[u32]) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Ok(Some(tcx)) = progs::tcx(link.ifindex) {
        for program in tcx
            .ingress
            .iter()
            .chain(&tcx.egress)
            .filter(|p| !ours.contains(&p.id))
        {
            let name = if program.name.is_empty() {
                "unnamed"
            } else {
                &program.name
            };
            reasons.push(format!(
                "a foreign tcx program ({name}) must see its packets"
            ));
        }
    }
    // A virtual link's tags stay inline when its configuration says that it is a wire.
    if link.kind.is_none() && hides_tags(&link.name) {
        reasons.push(format!(
            "rx-vlan-offload hides VLAN tags from XDP: ethtool -K {} rxvlan off",
            link.name
        ));
    }
    reasons
}

fn hides_tags(name: &str) -> bool {
    let features = Ethtool::open().and_then(|ethtool| ethtool.features(name));
    features.is_ok_and(|f| f.get("rx-vlan-hw-parse").copied().unwrap_or(false))
}

/// Probes as the API shows them.
pub(super) fn feature(probe: &ProbeResult) -> Feature {
    Feature {
        name: probe.name.into(),
        state: match probe.outcome {
            Outcome::Present => FeatureState::Present,
            Outcome::Missing(_) => FeatureState::Missing,
            Outcome::Unknown(_) => FeatureState::Unknown,
        },
        needed_for: probe.needed_for.into(),
        minimum_kernel: format!("{}.{}", probe.since.0, probe.since.1),
    }
}
