// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel tells only when asked. Asking takes milliseconds, so a thread of its own does it.

mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, mpsc as ask};

use freeway_api::{Feature, FeatureState};
use freeway_cmm::{ConnKey, FlowKey};
use freeway_kernel::cbpf::Sketch;
use freeway_kernel::conntrack::Conntrack;
use freeway_kernel::ethtool::Ethtool;
use freeway_kernel::hooks::{self, HookedFunction};
use freeway_kernel::model::{Connection, Link, Tuple};
use freeway_kernel::netdev::{self, XdpFeatures};
use freeway_kernel::nft::{self, LegacyTable};
use freeway_kernel::probe::{Outcome, ProbeResult};
use freeway_kernel::sockets::{PacketSocket, packet_sockets};
use freeway_kernel::sysctl::Sysctls;
use freeway_kernel::{Memberships, pppoe, progs};
use tokio::sync::mpsc;

use super::ports::Carried;
use super::sample::{self, Frames};
use crate::hooked::{Hooks, Untold};
use crate::{DaemonError, kinds};

/// What is asked about.
pub(super) struct Question {
    pub places: Vec<Link>,
    /// Ids of the daemon's own programs.
    pub ours: Vec<u32>,
    /// Connections that the data plane cannot look up.
    pub connections: Vec<ConnKey>,
}

/// What sockets may wait for that no bridge passes on, and XDP leaves alone: 802.1X, and what goes to all at once.
const UNBRIDGED: [u16; 4] = [0x888e, 0x88cc, 0x8809, 0x0806];

/// The thread that asks. It was made by the daemon's main thread, which never changes its network namespace, and so
/// is in the same one.
pub(super) struct Poller {
    hooks: Arc<Hooks>,
    questions: ask::Sender<Question>,
    answers: mpsc::Receiver<Polled>,
    /// A question is under way.
    busy: bool,
    /// Another one is to follow it.
    again: bool,
}

impl Poller {
    pub(super) fn start() -> Result<Self, DaemonError> {
        let (questions, asked) = ask::channel::<Question>();
        let (sender, answers) = mpsc::channel(1);
        let hooks = Arc::new(Hooks::open());
        let known = Arc::clone(&hooks);
        let work = move || {
            while let Ok(question) = asked.recv() {
                if sender
                    .blocking_send(Polled::read(question, &known))
                    .is_err()
                {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("freeway-poll".into());
        thread.spawn(work).map_err(crate::error::failure)?;
        Ok(Self {
            hooks,
            questions,
            answers,
            busy: false,
            again: false,
        })
    }

    /// The same at once, by the thread that calls.
    pub(super) fn read(&self, question: Question) -> Polled {
        Polled::read(question, &self.hooks)
    }

    /// True if it may be asked now; otherwise it is to be asked once more after the answer that is under way.
    pub(super) fn is_free(&mut self) -> bool {
        self.again = self.busy;
        !self.busy
    }

    pub(super) fn ask(&mut self, question: Question) {
        // a thread that has ended is reported by `answer`
        self.busy = self.questions.send(question).is_ok();
    }

    /// Completes with the answer; never without a question.
    pub(super) async fn answer(&mut self) -> Result<Polled, DaemonError> {
        let polled = self.answers.recv().await;
        self.busy = false;
        polled.ok_or_else(|| DaemonError::Failure("the polling thread has ended".into()))
    }

    /// True once if something asked to look again.
    pub(super) fn take_again(&mut self) -> bool {
        std::mem::take(&mut self.again)
    }
}

/// What cannot be asked for is as if it had not been.
fn look_up(keys: Vec<ConnKey>) -> Vec<(ConnKey, Option<Connection>)> {
    if keys.is_empty() {
        return Vec::new();
    }
    let mut conntrack = match Conntrack::open() {
        Ok(conntrack) => conntrack,
        Err(error) => {
            tracing::debug!("asking for connections: {error}");
            return Vec::new();
        }
    };
    let mut ask = |key: ConnKey| match conntrack.get(&key.orig, key.zone) {
        Ok(found) => Some((key, found.filter(|c| c.orig == key.orig))),
        Err(error) => {
            tracing::debug!(flow = %key.orig, reason = %error, "asking for a connection");
            None
        }
    };
    keys.into_iter().filter_map(&mut ask).collect()
}

/// As it was at the last look.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// Ids of the daemon's own programs when it was asked.
    pub ours: Vec<u32>,
    pub sysctls: Sysctls,
    pub sniffers: Vec<PacketSocket>,
    /// The kernel tells which packet sockets there are.
    pub sniffers_told: bool,
    /// Tables of the legacy iptables, which tell of no change.
    pub legacy: Vec<LegacyTable>,
    /// Functions on the forwarding hooks that nobody has judged.
    pub foreign_hooks: Vec<String>,
    /// The same on the hooks of bridges.
    pub bridge_hooks: Vec<String>,
    /// The kernel tells which functions there are.
    pub hooks_told: bool,
    /// Conntrack is among them, for IPv4 and for IPv6.
    pub tracks: [bool; 2],
    /// Who takes a link's frames ahead of IP; links that nobody does are not here.
    pub takers: BTreeMap<u32, Result<String, Untold>>,
    /// The kernel looks up the source of each IPv4 packet, with `rp_filter` 0 as well, or nobody knows.
    pub checks_sources: bool,
    /// Links that take all frames, and of which nothing tells.
    pub promiscuous: BTreeSet<u32>,
    features: Option<BTreeMap<u32, XdpFeatures>>,
    /// What keeps ports from a path.
    obstacles: BTreeMap<u32, Obstacles>,
    /// What the router itself receives of groups; `None`: it may be any.
    pub memberships: Option<Memberships>,
    /// Of PPPoE.
    pub sessions: Vec<pppoe::Session>,
    /// As conntrack has them; `None`: not at all.
    pub connections: Vec<(ConnKey, Option<Connection>)>,
}

impl Polled {
    /// Of what no event tells and flows depend on; another daemon that knows the same has the same.
    pub(super) fn digest(&self) -> u64 {
        let known = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?}",
            self.sysctls,
            self.legacy,
            self.foreign_hooks,
            self.bridge_hooks,
            self.promiscuous,
            self.sessions
        );
        let mut hasher = DefaultHasher::new();
        known.hash(&mut hasher);
        hasher.finish()
    }

    /// What cannot be read counts as absent; it is logged.
    fn read(question: Question, hooks: &Hooks) -> Self {
        let Question {
            places,
            ours,
            connections,
        } = question;
        let sockets = packet_sockets().inspect_err(|error| {
            tracing::debug!("listing packet sockets: {error}");
        });
        let sniffers_told = sockets.is_ok();
        let sockets = sockets.unwrap_or_default();
        let features = netdev::xdp_features().unwrap_or_else(|error| {
            tracing::debug!("listing XDP features: {error}");
            None
        });
        let functions = hooks.forwarding();
        let hooks_told = functions.is_some();
        let tracks = functions.as_deref().map_or([false; 2], hooks::track);
        let foreign = functions.into_iter().flatten();
        let foreign = foreign.filter(HookedFunction::is_foreign);
        let (of_bridges, foreign): (Vec<_>, Vec<_>) =
            foreign.partition(|hook| hook.family == nft::NFPROTO_BRIDGE);
        let mut bridge_hooks: Vec<_> = of_bridges.into_iter().map(|h| h.function).collect();
        if !hooks_told {
            bridge_hooks.extend(ebtables());
        }
        let promiscuous = netdev::promiscuous().unwrap_or_else(|error| {
            tracing::debug!("listing promiscuous links: {error}");
            places.iter().map(|link| link.ifindex).collect()
        });
        let sessions = pppoe::sessions().unwrap_or_else(|error| {
            tracing::debug!("listing PPPoE sessions: {error}");
            Vec::new()
        });
        let ethtool = Ethtool::open().ok();
        let sysctls = Sysctls::read();
        let look = |link: &Link| {
            let mut obstacles = Obstacles::of(link, &ours, ethtool.as_ref(), &sysctls);
            let functions = hooks.foreign_at(link.ifindex).into_iter();
            let words = |function| format!("netfilter hook {function} must see its frames");
            obstacles.all.extend(functions.map(words));
            obstacles
        };
        let mut obstacles = BTreeMap::new();
        obstacles.extend(places.iter().map(|link| (link.ifindex, look(link))));
        let takers = |link: &Link| Some((link.ifindex, hooks.taker(link.ifindex).transpose()?));
        let takers = places.iter().filter_map(takers).collect();
        Self {
            sniffers: sockets.into_iter().filter(|s| s.protocol != 0).collect(),
            sniffers_told,
            legacy: nft::legacy_tables(),
            foreign_hooks: foreign.into_iter().map(|h| h.function).collect(),
            bridge_hooks,
            hooks_told,
            tracks,
            takers,
            checks_sources: hooks.checks_sources(),
            promiscuous: places
                .iter()
                .filter(|link| link.is_bridge())
                .map(|link| link.ifindex)
                .filter(|index| promiscuous.contains(index))
                .collect(),
            features,
            obstacles,
            ours,
            sysctls,
            memberships: Memberships::read()
                .inspect_err(|error| tracing::warn!("reading memberships of groups: {error}"))
                .ok(),
            sessions,
            connections: look_up(connections),
        }
    }

    /// A look that was not told of packet sockets goes by those of the one before.
    pub(super) fn after(mut self, before: &Polled) -> Self {
        if !self.sniffers_told && before.sniffers_told {
            self.sniffers.clone_from(&before.sniffers);
            self.sniffers_told = true;
        }
        self
    }

    /// True if something that ports are judged by differs.
    pub(super) fn ports_differ(&self, other: &Polled) -> bool {
        self.features != other.features
            || self.obstacles != other.obstacles
            || self.bridge_hooks != other.bridge_hooks
            || self.takers != other.takers
            || self.promiscuous != other.promiscuous
    }

    /// Somebody else, or nobody any more, takes a port's frames ahead of IP than at another look. False: one of them did not
    /// look there.
    fn taken_otherwise(&self, other: &Polled, ifindex: u32) -> bool {
        let looks = [self, other];
        let looked = looks.map(|look| look.obstacles.contains_key(&ifindex));
        let [one, another] = looks.map(|look| look.takers.get(&ifindex));
        looked == [true, true] && one != another
    }

    /// What keeps a port from a path; `None`: it was not looked at yet.
    pub(super) fn obstacles(&self, ifindex: u32) -> Option<&Obstacles> {
        self.obstacles.get(&ifindex)
    }

    /// True if a packet socket takes a flow's frames, coming in or leaving.
    /// `below`: how the frames of either port look at the devices below it.
    pub(super) fn sniffed(
        &self,
        key: &FlowKey,
        (out, port_out): (&Tuple, u32),
        below: [Option<&Carried>; 2],
    ) -> bool {
        if self.sniffers.is_empty() {
            return false;
        }
        let frames = Frames::of(&key.tuple, out);
        let ways = [
            (key.port, frames.incoming, false),
            (port_out, frames.outgoing, true),
        ];
        ways.iter()
            .zip(below)
            .any(|((port, frame, outgoing), below)| {
                let taken = |port: u32, frame: &Sketch| {
                    let mut sockets = self.sniffers.iter();
                    sockets.any(|socket| socket.accepts(port, frame, *outgoing))
                };
                // below, tags are in the frame or beside it
                let taken_below = |carried: &Carried| {
                    let inner = sample::in_session(frame, carried.framing.session.as_ref());
                    let mut ports = carried.seen_below();
                    ports.any(|(port, tags)| {
                        taken(port, &inner) || taken(port, &sample::tagged(&inner, tags))
                    })
                };
                taken(*port, frame) || below.is_some_and(taken_below)
            })
    }

    /// A packet socket, by inode, that may want all frames of its port, of which the caller knows whether it concerns it
    /// (`None`: of all ports).
    pub(super) fn taker(&self, concerns: impl Fn(Option<u32>) -> bool) -> Option<u32> {
        let mut sockets = self.sniffers.iter();
        let taker = sockets.find(|s| concerns(s.ifindex) && !UNBRIDGED.contains(&s.protocol));
        taker.map(|socket| socket.inode)
    }

    /// True if some packet socket is shown what leaves at a port: those of all protocols are.
    pub(super) fn is_watched(&self, ifindex: u32) -> bool {
        let concerns = |s: &PacketSocket| s.ifindex.is_none_or(|own| own == ifindex);
        let mut sockets = self.sniffers.iter();
        sockets.any(|s| i32::from(s.protocol) == libc::ETH_P_ALL && concerns(s))
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

/// What keeps a port from a path, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Obstacles {
    /// From both: who must see every packet.
    pub all: Vec<String>,
    /// From XDP, for what comes in.
    pub xdp: Vec<String>,
    /// From tc, for what comes in.
    pub tc: Vec<String>,
}

impl Obstacles {
    /// Programs of others on a port's tcx hooks, offloads, and netfilter in a bridge.
    fn of(link: &Link, ours: &[u32], ethtool: Option<&Ethtool>, sysctls: &Sysctls) -> Self {
        let features = ethtool.and_then(|ethtool| ethtool.features(&link.name).ok());
        let on = |name: &str| {
            let features = features.as_ref();
            features.is_some_and(|f| f.get(name).copied().unwrap_or(false))
        };
        let mut obstacles = Self {
            all: foreign_programs(link.ifindex, ours),
            ..Self::default()
        };
        let netfilter = kinds::bridge_netfilter(link, sysctls);
        obstacles.all.extend(netfilter.map(str::to_owned));
        // A virtual link's tags stay inline when its configuration says that it is a wire.
        if link.kind.is_none() {
            let hidden = kinds::hidden_tags(on).map(|switch| {
                format!(
                    "the hardware hides VLAN tags from XDP: ethtool -K {} {switch} off",
                    link.name
                )
            });
            obstacles.xdp.extend(hidden);
        }
        if let Some(now) = kinds::changed_by_ioctl(link) {
            obstacles.all.extend(kinds::unsupported(&now));
            obstacles.xdp.extend(kinds::without_xdp(&now, false));
        }
        // skb_segment_list() gives the others of a list the headers that they came with
        if on("rx-gro-list") {
            obstacles.tc.push(format!(
                "rx-gro-list chains frames whose headers tc does not reach: ethtool -K {} rx-gro-list off",
                link.name
            ));
        }
        obstacles
    }
}

/// Tables of ebtables-legacy, where the kernel does not list its hooks: a module may have some in any namespace.
fn ebtables() -> Vec<String> {
    let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    let names = modules.lines().filter_map(|line| line.split(' ').next());
    let of_tables = names.filter(|name| name.starts_with("ebtable_"));
    of_tables.map(str::to_owned).collect()
}

fn foreign_programs(ifindex: u32, ours: &[u32]) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Ok(Some(tcx)) = progs::tcx(ifindex) {
        let programs = tcx.ingress.iter().chain(&tcx.egress);
        for program in programs.filter(|p| !ours.contains(&p.id)) {
            let name = match program.name.as_str() {
                "" => "unnamed",
                name => name,
            };
            reasons.push(format!(
                "a foreign tcx program ({name}) must see its packets"
            ));
        }
    }
    reasons
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

/// What is said of a socket that may want a port's frames.
pub(super) fn wanted_by(inode: u32) -> String {
    format!("a packet socket (inode {inode}) may want its frames")
}
