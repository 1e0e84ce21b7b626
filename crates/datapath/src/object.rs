// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the programs and their maps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use freeway_abi::{
    FW_HOPS, FW_NH_OLIST, FW_NH_OLIST_ALIKE, FW_OLIST_MAX, FW_REASONS_MAX, FW_SLOTS, Pod,
    fw_config, fw_flow, fw_framed, fw_framing, fw_limit, fw_nexthop, fw_olist, fw_own_mac, fw_path,
    fw_policer, fw_port_fault, fw_session, fw_stations, fw_tap_filter, fw_watch,
};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

use crate::attach::{Attachment, Hook, Inherited, failed};
use crate::clock::Clock;
use crate::copies::{Copies, remove, target};
use crate::drops::{Drops, drop_reasons};
use crate::edges;
use crate::error::DatapathError;
use crate::events::Events;
use crate::load::{
    EDGES, MapByName, MapMemory, PATH_COUNTS, SOCKET_AT, SOCKETS, get, handles, load, load_with,
    memory, possible_cpus, prog_fd, random, share,
};
use crate::packed::{Packed, packed};
use crate::precedents::Precedents;
use crate::programs::Programs;
use crate::ratelimit::RateLimiter;
use crate::routes::RouteTable;
use crate::scrub::Scrubber;
use crate::shared::{
    Control, Flows, Kept, Nexthops, Offers, PathCounts, Seen, Slots, configure_table,
};
use crate::tap::Tap;
use crate::warnings;

static DROPS: Packed = packed!("drops");
static TAP: Packed = packed!("tap");
static WATCHDOG: Packed = packed!("watchdog");

/// Most flows that a table can have: seven eighths of its places, which are as many as a power of two within the
/// 512 MiB of global data that the verifier lets a program reach.
pub const FLOWS_MAX: u32 = (1 << 21) / 8 * 7;
/// As many as there are unless told otherwise.
pub const FLOWS_DEFAULT: u32 = 65_535;

/// Sizes and load-time constants.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Most flows in the table, each direction counted: [`FLOWS_MAX`] at most.
    pub flows: u32,
    /// Most distinct next hops (port and L2 header).
    pub nexthops: u32,
    /// conntrack's kfuncs are there.
    pub conntrack: bool,
    /// Seconds between two connection checks of a flow.
    pub ct_check_s: u32,
    /// Most packets a second and CPU that the kernel is given, by number of the reason; others are not limited.
    pub limits: BTreeMap<u32, u32>,
    /// XDP may have to hand frames to the engine; the kernel has AF_XDP then.
    pub sockets: bool,
    /// There may be prefix paths.
    pub routes: bool,
    /// Connections are given translated ports by their bucket; the kernel has conntrack's kfuncs for that.
    pub precedents: bool,
    /// Ticks that the programs take for a second. `None`: the kernel's; tests put off what would be due.
    pub hz: Option<u32>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            flows: 65_536,
            nexthops: 4096,
            conntrack: true,
            ct_check_s: 1,
            limits: BTreeMap::new(),
            sockets: false,
            routes: false,
            precedents: false,
            hz: None,
        }
    }
}

/// An instruction's size.
const BPF_INSTRUCTION_BYTES: u32 = 8;

/// Packets that may come at once under any limit: a datagram of 64 KiB has 45 fragments.
const BURST_MIN: u32 = 64;

/// A limit whose bucket holds a tenth of a second's packets.
pub(crate) fn limit(packets_per_s: u32) -> fw_limit {
    fw_limit {
        packets_per_s,
        burst: (packets_per_s / 10).max(BURST_MIN),
    }
}

/// Failed redirects to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFault {
    /// Frames lost.
    pub failed: u64,
    /// Frames for which the driver's ring had no room.
    pub overflowed: u64,
    /// errno of the last failure, positive.
    pub errno: i32,
}

/// A program as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// Instructions, without those that load-time constants made unreachable.
    pub instructions: u32,
    /// The machine's instructions made of them, bytes.
    pub native_bytes: u32,
    /// Instructions that the verifier looked at, on all ways through the program.
    pub verified: u32,
}

/// True of copies of which none has to be rewritten by itself.
fn are_alike(legs: &[fw_nexthop]) -> bool {
    let mut pairs = legs.iter().zip(legs.iter().skip(1));
    legs.iter().all(|leg| leg.outer_len == 0) && pairs.all(|(one, next)| one.l2 == next.l2)
}

/// A quarter of what ticks can tell apart.
const EDGES_AGE_MAX: i32 = 1 << 30;
const PATHS: &str = "fw_paths";
const OWN_MACS: &str = "fw_own_macs";
const ROUTED_PORTS: &str = "fw_routed_ports";

/// The loaded data plane. Dropping it unloads everything.
pub struct Datapath {
    /// The flow table, shared.
    pub flows: Flows,
    /// Next hops, shared.
    pub nexthops: Nexthops,
    /// Slots, shared.
    pub slots: Slots,
    /// Marks of confirmed TCP flows, shared.
    pub seen: Seen,
    /// What the connections of flows were, shared.
    pub kept: Kept,
    /// What was observed lately, shared.
    pub offers: Offers,
    /// What took the paths of bridged frames, shared.
    pub path_counts: PathCounts,
    /// Switches, shared.
    pub control: Control,
    /// The data plane's time.
    pub clock: Clock,
    /// The data plane's events.
    pub events: Events,
    /// Device of each slot of the device map.
    outputs: RefCell<BTreeMap<u32, u32>>,
    copies: Copies,
    maps: MapByName,
    programs: Programs,
    config: fw_config,
    /// Links of a daemon that handed over, until our programs are there.
    inherited: RefCell<Inherited>,
    /// None: the kernel's tracepoint is not there, or not as it is known.
    drops: Option<Drops>,
    drop_reasons: BTreeMap<u32, String>,
    _watchdog: Object,
    _tracepoints: Vec<Link>,
}

impl Datapath {
    /// Loads what every port needs. Nothing is attached, and the deadline is past.
    pub fn load(options: &LoadOptions) -> Result<Self, DatapathError> {
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, log_libbpf)));
        let netns_inum = netns_inum();
        let watchdog = load("watchdog", WATCHDOG, |name, map| match name {
            ".rodata.netns" => map.set_initial_value(&netns_inum.to_ne_bytes()),
            _ => Ok(()),
        })?;
        let clock = Clock::new(prog_fd(&watchdog, "watchdog", "freeway_clock")?)?;
        let cpus = possible_cpus();
        // Few enough to stay in the cache, many enough for what queues between
        // tc ingress and egress.
        let slots_per_cpu = (FW_SLOTS / cpus.next_power_of_two()).clamp(1, 1024);
        let mut config = fw_config {
            hz: options.hz.unwrap_or(clock.hz()),
            ct: options.conntrack.into(),
            ct_check_ticks: options.ct_check_s * clock.hz(),
            slots_per_cpu,
            nexthop_mask: element_mask(options.nexthops),
            kern_ctx: has_builtin_kfunc(c"bpf_cast_to_kern_ctx").into(),
            sockets: options.sockets.into(),
            copy_magic: random() as u32,
            netns_inum,
            hop_mask: if options.routes { FW_HOPS - 1 } else { 0 },
            precedents: options.precedents.into(),
            ..Default::default()
        };
        for (reason, packets_per_s) in &options.limits {
            if let Some(to) = config.limit.get_mut(*reason as usize) {
                *to = limit(*packets_per_s);
                config.police = 1;
            }
        }
        configure_table(
            &mut config,
            options.flows,
            std::array::from_fn(|_| random()),
        );
        let (programs, mut maps) = Programs::load(&config)?;
        maps.extend(handles(&watchdog)?);
        let drops = load_with("drops", DROPS, |_| true, &config, &maps)
            .inspect_err(|error| {
                tracing::warn!("explain will not name the kernel's reasons: {error}");
            })
            .ok()
            .map(Drops::new);
        let tracepoints = ["freeway_devmap_xmit", "freeway_redirect_err"]
            .into_iter()
            .map(|name| attach_tracepoint(&watchdog, name))
            .collect::<Result<_, _>>()?;
        let control = Control::map(get(&maps, ".data.control")?)?;
        control.set_deadline(clock.now_tick()?);
        Ok(Self {
            flows: Flows::map(get(&maps, ".data.flows")?, config)?,
            nexthops: Nexthops::map(get(&maps, ".data.nexthops")?, config.nexthop_mask + 1)?,
            slots: Slots::map(get(&maps, "fw_slots")?, FW_SLOTS)?,
            seen: Seen::map(get(&maps, "fw_seen_flows")?, config.flow_mask)?,
            kept: Kept::map(get(&maps, "fw_kept_flows")?, config.flow_mask)?,
            offers: Offers::map(
                get(&maps, "fw_offers")?,
                get(&maps, "fw_observations")?,
                config,
            )?,
            path_counts: PathCounts::map(get(&maps, PATH_COUNTS)?, possible_cpus())?,
            control,
            clock,
            events: Events::new(get(&maps, "fw_events")?)?,
            outputs: RefCell::default(),
            copies: Copies::new(get(&maps, "fw_olists")?, get(&maps, "fw_olist_ports")?)?,
            maps,
            programs,
            config,
            inherited: RefCell::default(),
            drops,
            drop_reasons: drop_reasons(),
            _watchdog: watchdog,
            _tracepoints: tracepoints,
        })
    }

    /// Descriptors of what another process needs to forward by the table: flows, next hops, control, watch. Whoever has them can
    /// map and write them.
    pub fn handover(&self) -> Result<[BorrowedFd<'_>; 4], DatapathError> {
        let fd = |name| get(&self.maps, name).map(AsFd::as_fd);
        Ok([
            fd(".data.flows")?,
            fd(".data.nexthops")?,
            fd(".data.control")?,
            fd("fw_watches")?,
        ])
    }

    /// What drops ahead of the fast path, with room for so many addresses of IPv4, and of IPv6 and concatenations.
    pub fn scrubber(&self, room: [u32; 2]) -> Result<Scrubber, DatapathError> {
        let next = self.prog(Hook::Xdp)?;
        Scrubber::load(&self.maps, &next, self.config.hz, room)
    }

    /// One with more room and the same in it.
    pub fn larger_scrubber(
        &self,
        scrubber: &Scrubber,
        room: [u32; 2],
    ) -> Result<Scrubber, DatapathError> {
        let next = self.prog(Hook::Xdp)?;
        scrubber.grown(&self.maps, &next, room)
    }

    /// What limits sources ahead of all else, without a limit.
    pub fn rate_limiter(&self) -> Result<RateLimiter, DatapathError> {
        RateLimiter::load(&self.maps, self.config.hz)
    }

    /// What forwards by prefixes ahead of the fast path, with nothing in it; so many workers of an engine's may count there.
    pub fn route_table(&self, workers: u32) -> Result<RouteTable, DatapathError> {
        RouteTable::load(&self.config, &self.maps, workers)
    }

    /// The translated ports that connections are given, of no port of the router yet.
    pub fn precedents(&self) -> Result<Precedents, DatapathError> {
        Precedents::new(&self.maps, &self.config)
    }

    /// Loads what tells of fast packets, to take the plain program's place at some ports.
    pub fn tap(&self, filter: &fw_tap_filter) -> Result<Tap, DatapathError> {
        let object = load("tap", TAP, |name, map| match name {
            ".rodata.tap" => map.set_initial_value(filter.as_bytes()),
            _ => share(&self.config, &self.maps, name, map),
        })?;
        Tap::new(object)
    }

    /// Load-time constants.
    #[must_use]
    pub fn config(&self) -> &fw_config {
        &self.config
    }

    /// Attaches one of our programs to a port, in the place of an inherited one if there is one.
    pub fn attach(&self, ifindex: u32, hook: Hook) -> Result<Attachment, DatapathError> {
        let prog = self.prog(hook)?;
        let inherited = self
            .inherited
            .borrow_mut()
            .take(prog.as_fd(), ifindex, hook);
        match inherited {
            Some(taken) => taken.map_err(|source| failed(source, hook.program(), ifindex)),
            None => Attachment::new(prog.as_fd(), hook.program(), ifindex, hook),
        }
    }

    /// Our programs take the places of those that have these links.
    pub fn inherit(&self, links: Vec<OwnedFd>) {
        self.inherited.replace(Inherited::new(links));
    }

    /// Why one of them could not.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.inherited.borrow().refused()
    }

    /// What is left of them is let go: nothing of ours belongs there.
    pub fn renounce(&self) {
        self.inherited.take();
    }

    /// Has an attachment be our program's again.
    pub fn put_back(&self, ifindex: u32, attachment: &Attachment) -> Result<(), DatapathError> {
        let hook = attachment.hook();
        let prog = self.prog(hook)?;
        attachment
            .replace(prog.as_fd())
            .map_err(|source| failed(source, hook.program(), ifindex))
    }

    /// Removes what a killed daemon left at a port.
    pub fn sweep(&self, ifindex: u32) {
        // any will do, and this one is there
        if let Ok(fd) = self.prog(Hook::Egress) {
            Attachment::sweep(fd.as_fd(), ifindex);
        }
    }

    /// Ids of the XDP programs and of the tc programs that are loaded, and of those that are to make room for them.
    #[must_use]
    pub fn prog_ids(&self) -> Vec<u32> {
        self.programs
            .ids()
            .chain(self.inherited.borrow().prog_ids())
            .collect()
    }

    /// A program's size.
    pub fn size(&self, hook: Hook) -> Result<ProgramSize, DatapathError> {
        let prog = self.prog(hook)?;
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: the kernel writes at most `len` bytes to the structure, which asks for nothing behind pointers.
        let rc = unsafe {
            libbpf_sys::bpf_prog_get_info_by_fd(prog.as_raw_fd(), &raw mut info, &raw mut len)
        };
        match rc {
            0 => Ok(ProgramSize {
                instructions: info.xlated_prog_len / BPF_INSTRUCTION_BYTES,
                native_bytes: info.jited_prog_len,
                verified: info.verified_insns,
            }),
            error => Err(DatapathError::Object {
                object: "prog",
                what: "reading its size",
                source: libbpf_rs::Error::from_raw_os_error(-error),
            }),
        }
    }

    /// Readable when the data plane has events.
    #[must_use]
    pub fn events_fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    /// Of all maps but those of programs ahead.
    #[must_use]
    pub fn memory(&self) -> MapMemory {
        memory(&self.maps)
    }

    /// A program, for test runs. The first that asks for one of a kind of port waits for the verifier.
    pub fn prog(&self, hook: Hook) -> Result<OwnedFd, DatapathError> {
        self.programs.get(hook, &self.config, &self.maps)
    }

    /// Makes a port a redirect target under a slot of the device map, and watches it.
    pub fn set_port(&self, slot: u32, ifindex: u32) -> Result<(), DatapathError> {
        self.update(
            "fw_faults",
            &ifindex.to_ne_bytes(),
            fw_port_fault::default().as_bytes(),
        )?;
        self.set_output(slot, ifindex)
    }

    /// What is sent to this slot leaves at another port, which has an entry of its own.
    pub fn set_output(&self, slot: u32, ifindex: u32) -> Result<(), DatapathError> {
        self.outputs.borrow_mut().insert(slot, ifindex);
        let leg = self
            .copies
            .carries(ifindex)
            .then(|| self.leg())
            .transpose()?;
        self.update(
            "fw_ports",
            &slot.to_ne_bytes(),
            &target(ifindex, leg.as_ref()),
        )
    }

    /// Writes an outgoing interface list and its ports, for no flow that the data plane may be using. Each leg's
    /// `devmap_slot` is its port's; no two may be of one device. Where copies differ, what is sent to these ports, also of
    /// other flows, takes the legs' program from now on. Returns what `valid` is of the next hop that leads to the list
    /// (`enum fw_nexthop_kind`).
    pub fn set_olist(&self, number: u32, legs: &[fw_nexthop]) -> Result<u32, DatapathError> {
        let program = self.leg()?;
        let mut olist = fw_olist::default();
        for leg in legs.iter().take(FW_OLIST_MAX as usize) {
            let at = olist.count as usize;
            let device = self.outputs.borrow().get(&leg.devmap_slot).copied();
            olist.device[at] = device.ok_or(DatapathError::Missing {
                object: "xdp",
                name: "an output",
            })?;
            olist.leg[at] = *leg;
            olist.count += 1;
        }
        let (devices, alike) = (&olist.device[..olist.count as usize], are_alike(legs));
        let mut newly_carried = false;
        for device in devices
            .iter()
            .filter(|device| !alike && !self.copies.carries(**device))
        {
            let outputs = self.outputs.borrow();
            for (slot, _) in outputs.iter().filter(|(_, of)| *of == device) {
                self.update(
                    "fw_ports",
                    &slot.to_ne_bytes(),
                    &target(*device, Some(&program)),
                )?;
            }
            self.copies.carry(*device, &program);
            newly_carried = true;
        }
        self.copies.set_ports(number, devices, &program)?;
        self.copies.olists.set(number, olist);
        if newly_carried {
            // of what was sent there without the program nothing is left
            self.copies.wait_for_polls(number)?;
        }
        Ok(match alike {
            true => FW_NH_OLIST_ALIKE,
            false => FW_NH_OLIST,
        })
    }

    /// Multicast is routed: there will be lists.
    pub fn prepare_copies(&self) {
        if let Err(error) = self.copies.prepare() {
            tracing::warn!("multicast stays in the kernel: {error}");
        }
    }

    fn leg(&self) -> Result<OwnedFd, DatapathError> {
        self.programs.leg(&self.config, &self.maps)
    }

    /// What comes in at `framing`'s port with its tags and session is `framed`'s.
    pub fn set_framing(
        &self,
        framing: &fw_framing,
        framed: &fw_framed,
    ) -> Result<(), DatapathError> {
        self.update("fw_framings", framing.as_bytes(), framed.as_bytes())
    }

    /// A TCP flow entered the table: what both ends of its connection say is noted from now on.
    pub fn enter_edges(&self, flow: &fw_flow) -> Result<(), DatapathError> {
        let map = get(&self.maps, EDGES)?;
        edges::enter(map, &self.config, flow)
            .map_err(|source| DatapathError::Map { map: EDGES, source })?;
        if self.control.edges_tick() == 0 {
            self.control.set_edges_tick(self.clock.now_tick()?.max(1));
        }
        Ok(())
    }

    /// Ends of TCP connections may have said more than came by here: what they said so far counts no more.
    pub fn forget_edges(&self, now_tick: u32) {
        if self.control.edges_tick() != 0 {
            // what came within this tick may have been before
            self.control.set_edges_tick(now_tick.wrapping_add(1).max(1));
        }
    }

    /// Ticks wrap: what is older than a quarter of their range counts no more either. To be called more often than that.
    pub fn age_edges(&self, now_tick: u32) {
        let since = self.control.edges_tick();
        if since != 0 && now_tick.wrapping_sub(since).cast_signed() > EDGES_AGE_MAX {
            let oldest = now_tick.wrapping_sub(EDGES_AGE_MAX.cast_unsigned());
            self.control.set_edges_tick(oldest.max(1));
        }
    }

    /// A TCP flow left it: what its last fast segment said stays.
    pub fn leave_edges(&self, flow: &fw_flow) -> Result<(), DatapathError> {
        let map = get(&self.maps, EDGES)?;
        edges::leave(map, &self.config, flow)
            .map_err(|source| DatapathError::Map { map: EDGES, source })
    }

    /// The same is nobody's.
    pub fn clear_framing(&self, framing: &fw_framing) -> Result<(), DatapathError> {
        self.delete("fw_framings", framing.as_bytes())
    }

    /// A session is to be looked at, from now on, in a place of its own; `session` is `FW_SESSION` and its number.
    pub fn watch_session(
        &self,
        session: u32,
        place: u32,
        record: &fw_session,
    ) -> Result<(), DatapathError> {
        let place = place.to_ne_bytes();
        self.update("fw_sessions", &place, record.as_bytes())?;
        self.update("fw_session_at", &session.to_ne_bytes(), &place)
    }

    /// It is gone.
    pub fn forget_session(&self, session: u32) -> Result<(), DatapathError> {
        self.delete("fw_session_at", &session.to_ne_bytes())
    }

    /// What the session of a place was seen to be.
    #[must_use]
    pub fn session(&self, place: u32) -> fw_session {
        let map = self.maps.get("fw_sessions");
        let value = map.and_then(|map| {
            let key = place.to_ne_bytes();
            map.lookup(&key, MapFlags::ANY).ok().flatten()
        });
        value
            .and_then(|bytes| fw_session::from_bytes(&bytes))
            .unwrap_or_default()
    }

    /// Lets frames between stations of a bridge take a path, whose counters begin anew.
    pub fn set_path(&self, stations: &fw_stations, path: &fw_path) -> Result<(), DatapathError> {
        self.path_counts.clear(path.count);
        self.update(PATHS, stations.as_bytes(), path.as_bytes())
    }

    /// They are the kernel's.
    pub fn remove_path(&self, stations: &fw_stations) -> Result<(), DatapathError> {
        self.delete(PATHS, stations.as_bytes())
    }

    /// Frames to an address are the router's own, or no longer.
    pub fn set_own_mac(&self, mac: [u8; 6], own: bool) -> Result<(), DatapathError> {
        let key = fw_own_mac { mac, pad: [0; 2] };
        self.set_member(OWN_MACS, key.as_bytes(), own)
    }

    /// A bridge, or a VLAN of it, sends through XDP to stations, or no longer.
    pub fn set_routed_port(&self, ifindex: u32, routed: bool) -> Result<(), DatapathError> {
        self.set_member(ROUTED_PORTS, &ifindex.to_ne_bytes(), routed)
    }

    /// Puts a key into a map that is a set, or takes it out.
    fn set_member(&self, map: &'static str, key: &[u8], there: bool) -> Result<(), DatapathError> {
        match there {
            true => self.update(map, key, &1u32.to_ne_bytes()),
            false => self.delete(map, key),
        }
    }

    /// A path as it is.
    #[must_use]
    pub fn path(&self, stations: &fw_stations) -> Option<fw_path> {
        let found = self
            .maps
            .get(PATHS)?
            .lookup(stations.as_bytes(), MapFlags::ANY);
        fw_path::from_bytes(&found.ok()??)
    }

    /// Takes a port out of the device map.
    pub fn clear_port(&self, slot: u32, ifindex: u32) -> Result<(), DatapathError> {
        self.outputs.borrow_mut().remove(&slot);
        self.delete("fw_faults", &ifindex.to_ne_bytes())?;
        self.delete("fw_ports", &slot.to_ne_bytes())
    }

    /// XDP hands the engine's flows that come in at a port over by these sockets, one for each of its queues; they are numbered
    /// from `first` on. The kernel takes out those of a process that has ended.
    pub fn set_sockets(
        &self,
        ifindex: u32,
        first: u32,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), DatapathError> {
        for (number, socket) in (first..).zip(sockets) {
            let fd = socket.as_raw_fd().to_ne_bytes();
            self.update(SOCKETS, &number.to_ne_bytes(), &fd)?;
        }
        self.update(SOCKET_AT, &ifindex.to_ne_bytes(), &first.to_ne_bytes())
    }

    /// It hands none over there.
    pub fn clear_sockets(&self, ifindex: u32) -> Result<(), DatapathError> {
        self.delete(SOCKET_AT, &ifindex.to_ne_bytes())
    }

    /// Failed redirects to a port since it was entered.
    #[must_use]
    pub fn fault(&self, ifindex: u32) -> PortFault {
        self.maps
            .get("fw_faults")
            .and_then(|map| {
                map.lookup(&ifindex.to_ne_bytes(), MapFlags::ANY)
                    .ok()
                    .flatten()
            })
            .and_then(|bytes| fw_port_fault::from_bytes(&bytes))
            .map(|f| PortFault {
                failed: f.failed,
                overflowed: f.overflowed,
                errno: -f.error,
            })
            .unwrap_or_default()
    }

    /// Packets by reason, summed over CPUs; the index is the reason's number.
    pub fn reasons(&self) -> Result<Vec<u64>, DatapathError> {
        (0..FW_REASONS_MAX)
            .map(|reason: u32| {
                let cpus = self.of_cpus("fw_reasons", reason)?;
                let counts = cpus.iter().filter_map(|count| count.first_chunk());
                Ok(counts.map(|count| u64::from_ne_bytes(*count)).sum())
            })
            .collect()
    }

    /// Packets over the limit of a reason, summed over CPUs.
    pub fn policed(&self, reason: u32) -> Result<u64, DatapathError> {
        let cpus = self.of_cpus("fw_policers", reason)?;
        let policers = cpus.iter().filter_map(|p| fw_policer::from_bytes(p));
        Ok(policers.map(|policer| policer.dropped).sum())
    }

    /// An element of a per-CPU array, of each CPU.
    fn of_cpus(&self, name: &'static str, index: u32) -> Result<Vec<Vec<u8>>, DatapathError> {
        let values = get(&self.maps, name)?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let error = |source| DatapathError::Map { map: name, source };
        Ok(values.map_err(error)?.unwrap_or_default())
    }

    /// Chooses the tuple to be watched; `None` ends it. After an error it is watched all the same, but the kernel's own
    /// reasons are missing.
    pub fn watch(&self, tuple: Option<&fw_watch>) -> Result<(), DatapathError> {
        if let Some(tuple) = tuple {
            self.update("fw_watches", &0u32.to_ne_bytes(), tuple.as_bytes())?;
        }
        self.control.set_watch(tuple.is_some().into());
        match &self.drops {
            Some(drops) => drops.watch(tuple.is_some()),
            None => Ok(()),
        }
    }

    /// Names of the kernel's reasons (`enum skb_drop_reason`) by number, in lower case and without their prefix. Numbers
    /// differ from kernel to kernel. Empty if the kernel does not describe them.
    #[must_use]
    pub fn drop_reasons(&self) -> &BTreeMap<u32, String> {
        &self.drop_reasons
    }

    /// True if the kernel's own reasons are told of what is watched.
    #[must_use]
    pub fn tells_drops(&self) -> bool {
        self.drops.is_some()
    }

    fn update(&self, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), DatapathError> {
        get(&self.maps, name)?
            .update(key, value, MapFlags::ANY)
            .map_err(|source| DatapathError::Map { map: name, source })
    }

    fn delete(&self, name: &'static str, key: &[u8]) -> Result<(), DatapathError> {
        remove(get(&self.maps, name)?, key)
            .map_err(|source| DatapathError::Map { map: name, source })
    }
}

fn attach_tracepoint(object: &Object, name: &'static str) -> Result<Link, DatapathError> {
    let prog = object.progs_mut().find(|p| p.name() == name);
    let prog = prog.ok_or(DatapathError::Missing {
        object: "watchdog",
        name,
    })?;
    prog.attach().map_err(|source| DatapathError::Object {
        object: "watchdog",
        what: "attaching to the xdp tracepoints",
        source,
    })
}

/// The library's own words, for whoever debugs. Warnings are kept for the error that they belong to.
fn log_libbpf(level: libbpf_rs::PrintLevel, message: String) {
    tracing::debug!("libbpf: {}", message.trim_end());
    if level == libbpf_rs::PrintLevel::Warn {
        warnings::note(&message);
    }
}

/// The calling thread's network namespace, as its inode is numbered. 0 is none's.
fn netns_inum() -> u32 {
    use std::os::unix::fs::MetadataExt;
    let netns = std::fs::metadata("/proc/thread-self/ns/net");
    netns.map_or(0, |netns| netns.ino() as u32)
}

/// True if the kernel proper, not a module, has this kfunc.
#[must_use]
pub fn has_builtin_kfunc(name: &std::ffi::CStr) -> bool {
    // SAFETY: the name is terminated, and the BTF is used only between load and free.
    unsafe {
        let btf = libbpf_sys::btf__load_vmlinux_btf();
        if btf.is_null() {
            return false;
        }
        let id = libbpf_sys::btf__find_by_name_kind(btf, name.as_ptr(), libbpf_sys::BTF_KIND_FUNC);
        libbpf_sys::btf__free(btf);
        id > 0
    }
}

/// Elements are as many as a power of two, and the first stays unused.
fn element_mask(elements: u32) -> u32 {
    (elements + 1).next_power_of_two() - 1
}
