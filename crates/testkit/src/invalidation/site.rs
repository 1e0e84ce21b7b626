// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab with a daemon under load, in which a change is made again and again, and what came of it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::clock::monotonic_ns;
use freeway_lab::{
    FlowSpec, Generator, Lab, Load, MeasureSpec, Options, Proto, Rule, Running, Sink, SinkSpec,
    Until, measure,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::netlink::{Acked, Netlink, Tracked};
use crate::engine::{Device, Engine, of_lab, take_ports_of};
use crate::{Moment, Router};

/// A change that takes so long was not followed.
const IGNORED_MS: f64 = 1000.0;
/// What is still on its way so long after a change is late in any case.
pub const WATCH: Duration = Duration::from_millis(30);
/// No frame for so long: there will be none.
pub const QUIET_NS: u64 = 15_000_000;
/// Share of the bystanders' frames that the kernel may see: revalidation, and what learns.
pub const BYSTANDERS_KERNEL_MAX: f64 = 0.05;

pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const GATEWAY_A: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub const GATEWAY_B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
pub const MAC_A: [u8; 6] = [2, 0, 0, 0, 0x0a, 1];
pub const MAC_A2: [u8; 6] = [2, 0, 0, 0, 0x0a, 2];
pub const MAC_B: [u8; 6] = [2, 0, 0, 0, 0x0b, 1];
pub const MAC_WAN2: [u8; 6] = [2, 0, 0, 0, 2, 0x81];
pub const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(203, 0, 113, 0), 24);
pub const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);

/// Concerned flows, and as many bystanders.
pub const FLOWS: u32 = 32;
/// What comes after a change, but is not measured: a busy machine may need most of it.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How often a row is measured at most.
pub const ATTEMPTS: u32 = 5;
/// So many trials, each of which takes longer than that: the change is not followed, and more trials would say no more.
const IGNORED_TRIALS: usize = 3;
/// First port of the bystanders; a multiple of [`FLOWS`].
pub const BYSTANDER_PORT: u16 = 0x4000 + FLOWS as u16;

/// The first connection of those that are changed.
pub const VICTIM: u32 = 2 * FLOWS;
/// Kinds of changes that each have as many connections as they have trials.
const CHANGES: u32 = 2;
/// Connections that are older than the daemon. The kernel announces no change of them; the data plane looks at each
/// connection once a second.
pub const OLDER: u32 = 5;
pub const OLDER_MS: f64 = 1300.0;

/// The first connection of those that are older.
pub fn older() -> u32 {
    VICTIM + CHANGES * trials() as u32 * ATTEMPTS
}

/// Rules of the sink.
pub const OLD: usize = 0;
pub const NEW: usize = 1;
pub const BYSTANDERS: usize = 2;
pub const CONCERNED: usize = 3;

pub fn trials() -> usize {
    let chosen = std::env::var("FREEWAY_TRIALS").ok();
    let chosen = chosen.and_then(|trials| trials.parse().ok());
    chosen.unwrap_or(if crate::long() { 200 } else { 10 })
}

pub fn destination_mac(mac: [u8; 6]) -> Rule {
    Rule {
        offset: 2,
        mask: u32::MAX,
        value: u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]),
    }
}

pub fn source_mac(mac: [u8; 6]) -> Rule {
    Rule {
        offset: 8,
        mask: u32::MAX,
        value: u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]),
    }
}

pub fn destination(address: Ipv4Addr) -> Rule {
    Rule {
        offset: 30,
        mask: u32::MAX,
        value: address.into(),
    }
}

/// IPv4 frames of 300 bytes.
pub const LONG: Rule = Rule {
    offset: 16,
    mask: 0xffff_0000,
    value: (300 - 4 - 14) << 16,
};

/// UDP over IPv4 from `flows` ports, a power of two, beginning at a multiple of it.
pub fn source_ports(first: u16, flows: u32) -> Rule {
    Rule {
        offset: 34,
        mask: (0x1_0000 - flows) << 16,
        value: u32::from(first) << 16,
    }
}

/// Delays of one kind of change.
pub struct Row {
    pub kind: String,
    pub ack_ms: Vec<f64>,
    pub request_ms: Vec<f64>,
    pub bystanders: Option<Bystanders>,
    /// The worst may take so long; otherwise the 99th percentile has the limit of events.
    pub bound_ms: Option<f64>,
}

/// What became of the flows that a kind of change does not concern.
pub struct Bystanders {
    pub sent: u64,
    pub arrived: u64,
    /// Of those that were sent after all flows had become fast: how many, and how many were fast.
    pub watched: u64,
    pub fast: u64,
    /// Frames of all flows that a port had no room for, see [`crate::dropped`].
    pub dropped: u64,
    /// What is lost and what is fast says something: the engine's devices have rings in memory, which overflow where others
    /// have its CPU, and no port counts that.
    pub judged: bool,
    /// The flows were learned anew, as after a daemon that had no CPU for two seconds: `fast` is too small.
    pub anew: bool,
}

impl Bystanders {
    fn kernel_share(&self) -> f64 {
        1.0 - self.fast as f64 / self.watched.max(1) as f64
    }

    pub fn lost(&self) -> u64 {
        self.sent - self.arrived.min(self.sent)
    }
}

/// Which quantile of the delays is judged, and its limit in milliseconds. Few trials have no 99th percentile, and some
/// of them meet a busy machine; a change that is not followed shows in all of them.
fn limit() -> (f64, f64) {
    let (median_max, _) = crate::late_max();
    let share = if crate::long() { 0.99 } else { 0.5 };
    (share, median_max.as_secs_f64() * 1e3)
}

pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

impl Row {
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            ack_ms: Vec::new(),
            request_ms: Vec::new(),
            bystanders: None,
            bound_ms: None,
        }
    }

    /// Of a change that sends no event.
    pub fn bounded(kind: &str, bound_ms: f64) -> Self {
        Self {
            bound_ms: Some(bound_ms),
            ..Self::new(kind)
        }
    }

    pub fn add(&mut self, acked: Acked, last_ns: u64) {
        let ms = |from: u64| last_ns.saturating_sub(from) as f64 / 1e6;
        self.ack_ms.push(ms(acked.acked_ns));
        self.request_ms.push(ms(acked.before_ns));
    }

    /// More trials than a few, or those of a long row, are later than a change that is followed may be.
    fn is_late(&self) -> bool {
        let (share, limit_ms) = self.limit();
        quantile(&self.ack_ms, share) > limit_ms
    }

    /// Which share of trials is to be how soon.
    fn limit(&self) -> (f64, f64) {
        self.bound_ms.map_or_else(limit, |bound| (1.0, bound))
    }

    /// No busy machine does that.
    fn is_ignored(&self) -> bool {
        self.bound_ms.is_none()
            && self.ack_ms.len() >= IGNORED_TRIALS
            && self.ack_ms.iter().all(|ms| *ms > IGNORED_MS)
    }

    pub fn print(&self) {
        let q = |values: &[f64]| {
            (
                quantile(values, 0.5),
                quantile(values, 0.99),
                quantile(values, 1.0),
            )
        };
        let ((p50, p99, worst), (request_p50, request_p99, request_worst)) =
            (q(&self.ack_ms), q(&self.request_ms));
        let n = self.ack_ms.len();
        let others = self.bystanders.as_ref().map_or(String::new(), |b| {
            format!(
                "; bystanders: {} of {} lost, {} dropped by ports, {:.2} % fast",
                b.lost(),
                b.sent,
                b.dropped,
                100.0 * (1.0 - b.kernel_share())
            )
        });
        println!(
            "row: {:17} n {n:3}  from ack p50 {p50:6.3} p99 {p99:6.3} worst {worst:6.3} ms  \
             from request p50 {request_p50:6.3} p99 {request_p99:6.3} worst {request_worst:6.3} ms{others}",
            self.kind
        );
        let bystanders: Option<Value> = self
            .bystanders
            .as_ref()
            .map(|b| json!({ "sent": b.sent, "arrived": b.arrived, "fast": b.fast, "dropped": b.dropped }));
        let row = json!({
            "kind": self.kind, "trials": n,
            "ack_ms": { "p50": p50, "p99": p99, "worst": worst },
            "request_ms": { "p50": request_p50, "p99": request_p99, "worst": request_worst },
            "bystanders": bystanders, "bound_ms": self.bound_ms,
        });
        append_json(&row);
    }
}

/// Adds a line to the file that FREEWAY_JSON names, if it does.
pub fn append_json(row: &Value) {
    if let Some(path) = std::env::var_os("FREEWAY_JSON") {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        writeln!(file, "{row}").unwrap();
    }
}

/// Rows of a lab. Failing comes last, so that every row is printed.
#[derive(Default)]
pub struct Rows(pub Vec<String>);

impl Rows {
    pub fn take(&mut self, row: &Row, stays_fast: bool) {
        row.print();
        if row.is_late() {
            let (share, limit_ms) = row.limit();
            let (percentile, judged) = (share * 100.0, quantile(&row.ack_ms, share));
            self.0.push(format!(
                "{}: p{percentile:.0} is {judged:.3} ms, more than {limit_ms}",
                row.kind
            ));
        }
        let Some(b) = row.bystanders.as_ref().filter(|b| b.judged) else {
            return;
        };
        if b.arrived > b.sent || b.lost() > b.dropped {
            self.0.push(format!(
                "{}: {} of {} bystanders' frames arrived, ports dropped {}",
                row.kind, b.arrived, b.sent, b.dropped
            ));
        }
        if stays_fast && b.kernel_share() > BYSTANDERS_KERNEL_MAX {
            self.0.push(format!(
                "{}: {:.1} % of the bystanders' frames went through the kernel",
                row.kind,
                100.0 * b.kernel_share()
            ));
        }
    }

    #[track_caller]
    pub fn judge(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// Who forwards what is fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Xdp,
    /// The same by the kernel's routes, without flows.
    Routes,
    /// An engine that has the router's ports.
    Engine,
    /// The same by the kernel's routes, without flows.
    EngineRoutes,
}

impl Place {
    /// What a row's name begins with.
    fn prefix(self) -> &'static str {
        match self {
            Place::Xdp => "",
            Place::Routes => "routes: ",
            Place::Engine => "engine: ",
            Place::EngineRoutes => "engine, routes: ",
        }
    }

    fn is_routes(self) -> bool {
        matches!(self, Place::Routes | Place::EngineRoutes)
    }
}

fn engine(lab: &Lab) -> Engine {
    Engine::start_keeping(lab, || {
        take_ports_of(lab.router(), 1, Device::AfXdp, &of_lab())
    })
}

/// A lab with its daemon under load.
pub struct Site {
    place: Place,
    pub daemon: Router,
    _engine: Option<Engine>,
    pub lab: Lab,
    /// The router's ports, ifindex.
    pub lan: u32,
    pub wan: u32,
    pub sink: Sink,
    pub bystanders: Arc<Generator>,
    /// Frames a second of the concerned flows, and of the bystanders.
    pub pps: u64,
}

/// Bystanders at work.
pub struct Watch {
    pub running: Running,
    pub sent_before: u64,
    pub learned: u64,
    pub arrived_before: u64,
    pub fast_before: u64,
    pub dropped_before: u64,
}

impl Site {
    pub fn build(name: &str, options: Options) -> Site {
        Self::build_at(Place::Xdp, name, options)
    }

    pub fn build_at(place: Place, name: &str, options: Options) -> Site {
        // Inherited by the generators' threads and the daemon.
        // SAFETY: setpriority(2) takes no pointers; on Linux 0 is the calling thread.
        let rc = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
        assert_eq!(rc, 0, "nice: {}", std::io::Error::last_os_error());
        let lab = crate::build_with(name, options);
        let tracked = name == "nat";
        let (connections, all) = (older(), older() + OLDER * ATTEMPTS);
        if tracked {
            // the last rows come minutes after the connections
            let path = "net/netfilter/nf_conntrack_udp_timeout_stream";
            lab.router().sysctl(path, "3600").unwrap();
            lab.prime(Proto::Udp, all, Some(0)).unwrap();
        }
        let spec = MeasureSpec {
            flows: 2 * FLOWS,
            frame_bytes: 128,
            ..MeasureSpec::default()
        };
        let kernel = measure(&lab, &spec).unwrap();
        let pps = crate::paced((1e9 / kernel.ns_per_frame / 4.0) as u64);
        println!(
            "{name}: the kernel forwards {:.3} Mpps; concerned flows and bystanders get {pps} frames a second each",
            kernel.mpps()
        );
        let (engine, daemon) = match place {
            Place::Xdp => (None, Router::start(&lab)),
            Place::Routes => {
                let config = "[policy]\nroutes = true\n";
                (None, Router::start_with(&lab, config))
            }
            Place::Engine | Place::EngineRoutes => {
                let engine = engine(&lab);
                if tracked {
                    // those before went with the ports' addresses
                    lab.prime(Proto::Udp, all, Some(0)).unwrap();
                }
                let config = format!("[policy]\nroutes = {}\n", place.is_routes());
                let daemon = Engine::daemon(lab.router(), &config, &["lan0", "wan0"]);
                (Some(engine), daemon)
            }
        };
        let mut second = CpuSet::new();
        second.set(1).unwrap();
        let pid = Pid::from_raw(daemon.child.id().cast_signed());
        if let Err(error) = sched_setaffinity(pid, &second) {
            println!("the daemon shares CPU 0 with the generator: {error}");
        }
        if tracked {
            // Connections that are older than the daemon announce nothing: all but the last ones are opened anew.
            let mut netlink = Netlink::netfilter(lab.router());
            for flow in 0..connections {
                netlink.change(connection(flow).delete());
            }
            lab.prime(Proto::Udp, connections, Some(0)).unwrap();
        }
        let spec = FlowSpec {
            near_port: BYSTANDER_PORT,
            ..lab.flows(Proto::Udp, FLOWS, 128)
        };
        let sink = Sink::attach(
            lab.server_port(),
            SinkSpec {
                rules: true,
                ..SinkSpec::default()
            },
        )
        .unwrap();
        sink.set_rule(BYSTANDERS, source_ports(BYSTANDER_PORT, FLOWS))
            .unwrap();
        let bystanders = Arc::new(Generator::new(lab.client_port(), &spec).unwrap());
        let [lan, wan] = ["lan0", "wan0"].map(|port| lab.router().ifindex(port).unwrap());
        Site {
            place,
            daemon,
            _engine: engine,
            lab,
            lan,
            wan,
            sink,
            bystanders,
            pps,
        }
    }

    /// How often each change is made. What goes by routes has the same events as flows have.
    fn trials(&self) -> usize {
        match self.place {
            Place::Routes if !crate::long() => trials() / 2,
            Place::EngineRoutes => trials() / 4,
            _ => trials(),
        }
    }

    /// A row of what is measured here.
    pub fn row(&self, kind: &str) -> Row {
        Row::new(&format!("{}{kind}", self.place.prefix()))
    }

    pub fn netlink(&self) -> Netlink {
        Netlink::route(self.lab.router())
    }

    pub fn load(&self) -> Load {
        Load::paced(Until::Stopped, self.pps).on_cpu(0)
    }

    pub fn flows(&self, first: u16, count: u32) -> Vec<Value> {
        let last = first + (count as u16 - 1);
        let filter = format!("proto udp sport {first}-{last}");
        self.daemon.flows(&filter)
    }

    /// Fast packets of the flows from these ports.
    pub fn fast(&self, first: u16) -> u64 {
        if self.place.is_routes() {
            return self.daemon.stats().reason("routed");
        }
        let packets = |flow: &Value| flow["packets"].as_u64().unwrap();
        self.flows(first, FLOWS).iter().map(packets).sum()
    }

    /// Waits until what the flows from these ports are sent to has a route that carries them.
    #[track_caller]
    fn wait_routed(&self, first: u16) {
        let to = match first {
            BYSTANDER_PORT => SERVER,
            _ => FAR,
        };
        crate::until("a confirmed route", PATIENCE, || {
            let before = self.fast(first);
            let routes = self.daemon.json(&["routes", &to.to_string()]);
            thread::sleep(Duration::from_millis(2));
            (routes["answer"]["fast"] == true && self.fast(first) > before).then_some(())
        });
    }

    /// Waits until all flows from these ports are active and have forwarded since.
    #[track_caller]
    pub fn wait_fast(&self, first: u16, count: u32) {
        if self.place.is_routes() {
            return self.wait_routed(first);
        }
        let end = Moment::now() + PATIENCE;
        let active = |flows: &[Value]| flows.iter().filter(|f| f["state"] == "active").count();
        let sum =
            |flows: &[Value]| -> u64 { flows.iter().map(|f| f["packets"].as_u64().unwrap()).sum() };
        let mut before = u64::MAX;
        loop {
            let flows = self.flows(first, count);
            if active(&flows) >= count as usize {
                if sum(&flows) > before {
                    return;
                }
                before = sum(&flows);
            }
            assert!(
                Moment::now() < end,
                "only {} of {count} flows from port {first} are active\n{}",
                active(&flows),
                format_args!(
                    "{}\n{:#}\n{:#?}",
                    self.daemon.stats(),
                    self.daemon.status(),
                    flows
                )
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn start_bystanders(&self) -> Watch {
        let arrived_before = self.sink.mark(BYSTANDERS).unwrap().count;
        let sent_before = self.bystanders.frames().unwrap();
        let dropped_before = crate::dropped(&self.lab);
        let running = self.bystanders.start(self.load()).unwrap();
        self.wait_fast(BYSTANDER_PORT, FLOWS);
        // what was learned does not count
        let learned = self.bystanders.frames().unwrap() - sent_before;
        let fast_before = self.fast(BYSTANDER_PORT);
        Watch {
            learned,
            running,
            sent_before,
            arrived_before,
            fast_before,
            dropped_before,
        }
    }

    /// `fast` counts the present flows only: flows that were learned anew in between make it smaller.
    pub fn stop_bystanders(&self, watch: Watch) -> Bystanders {
        watch.running.stop().unwrap();
        thread::sleep(Duration::from_millis(20));
        let sent = self.bystanders.frames().unwrap() - watch.sent_before;
        let arrived = self.sink.mark(BYSTANDERS).unwrap().count - watch.arrived_before;
        let fast = self.fast(BYSTANDER_PORT);
        let anew = fast < watch.fast_before;
        let watched = sent - watch.learned;
        let fast = fast.saturating_sub(watch.fast_before).min(watched);
        Bystanders {
            sent,
            arrived,
            watched,
            fast,
            dropped: crate::dropped(&self.lab) - watch.dropped_before,
            judged: self.place == Place::Xdp,
            anew,
        }
    }

    /// Watches for frames by the old state; there are some when this returns.
    #[track_caller]
    pub fn watch_old(&self, rule: Rule) {
        self.sink.set_rule(OLD, rule).unwrap();
        let end = Moment::now() + PATIENCE;
        loop {
            let mark = self.sink.mark(OLD).unwrap();
            if mark.count > 20 && monotonic_ns() - mark.last_seen_ns < 500_000 {
                return;
            }
            assert!(
                Moment::now() < end,
                "no frames by the old state: {mark:?}, of all {:?}\n{}\n{:#}",
                self.sink.counts().unwrap(),
                self.daemon.stats(),
                self.daemon.status()
            );
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// The last frame that matched rule `OLD`: none has followed for a while.
    #[track_caller]
    pub fn last_old(&self) -> u64 {
        let end = Moment::now() + Duration::from_secs(3);
        loop {
            thread::sleep(WATCH);
            let last = self.sink.mark(OLD).unwrap().last_seen_ns;
            if monotonic_ns() - last >= QUIET_NS || Moment::now() > end {
                return last;
            }
        }
    }
}

/// Measures again what a busy machine may have spoilt, and prints all; a long row's times have no second chance.
pub fn again(mut measure: impl FnMut() -> Row) -> Row {
    for _ in 1..ATTEMPTS {
        let row = measure();
        let late = !crate::long() && row.is_late() && !row.is_ignored();
        // of a change that concerns them, too, the kernel has much more
        let little_more = BYSTANDERS_KERNEL_MAX..2.0 * BYSTANDERS_KERNEL_MAX;
        let held_up =
            |all: &Bystanders| all.anew || all.judged && little_more.contains(&all.kernel_share());
        if !late && !row.bystanders.as_ref().is_some_and(held_up) {
            return row;
        }
        row.print();
        println!("     {}: once more", row.kind);
    }
    measure()
}

/// Fresh flows for every trial: one whose outcome changes more than three times in a minute stays in the kernel.
pub struct Trials<'a> {
    pub site: &'a Site,
    pub next_port: u16,
    pub bystanders: bool,
    /// The concerned flows' source, if not the client's.
    pub near: Option<Ipv4Addr>,
}

impl Trials<'_> {
    /// Repeats a change on new flows to [`FAR`]. `new`: what they must look like afterwards, if they go on.
    pub fn run(
        &mut self,
        kind: &'static str,
        old: Rule,
        new: Option<Rule>,
        mut change: impl FnMut(&mut Netlink) -> Acked,
        mut undo: impl FnMut(&mut Netlink),
    ) -> Row {
        again(|| self.measure(kind, old, new, &mut change, &mut undo))
    }

    pub fn measure(
        &mut self,
        kind: &'static str,
        old: Rule,
        new: Option<Rule>,
        change: &mut impl FnMut(&mut Netlink) -> Acked,
        undo: &mut impl FnMut(&mut Netlink),
    ) -> Row {
        let site = self.site;
        let mut netlink = site.netlink();
        let mut row = site.row(kind);
        let watch = self.bystanders.then(|| site.start_bystanders());
        for _ in 0..site.trials() {
            if row.is_ignored() {
                break;
            }
            let first = self.next_port;
            self.next_port += FLOWS as u16;
            if self.next_port >= 0xff00 {
                self.next_port = 0x5000;
            }
            let flows = site.lab.flows(Proto::Udp, FLOWS, 300);
            let spec = FlowSpec {
                far: FAR.into(),
                near: self.near.map_or(flows.near, IpAddr::from),
                near_port: first,
                ..flows
            };
            site.sink.set_rule(CONCERNED, destination(FAR)).unwrap();
            let generator = Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap());
            let running = generator.start(site.load()).unwrap();
            // The same flows have short frames too, which go on and must not vouch for the long ones.
            let short = FlowSpec {
                frame_bytes: 128,
                ..spec
            };
            let short = Arc::new(Generator::new(site.lab.client_port(), &short).unwrap());
            let load = Load::paced(Until::Stopped, site.pps / 8).on_cpu(0);
            let short = short.start(load).unwrap();
            site.wait_fast(first, FLOWS);
            site.sink
                .set_rule(NEW, new.unwrap_or(destination(FAR)))
                .unwrap();
            site.watch_old(old);
            let acked = change(&mut netlink);
            row.add(acked, site.last_old());
            if new.is_some() {
                crate::until("frames by the new state", PATIENCE, || {
                    let mark = site.sink.mark(NEW).unwrap();
                    (mark.last_seen_ns > acked.acked_ns).then_some(())
                });
            }
            running.stop().unwrap();
            short.stop().unwrap();
            undo(&mut netlink);
        }
        row.bystanders = watch.map(|watch| site.stop_bystanders(watch));
        row
    }
}

/// Connection number `flow` of the lab.
pub fn connection(flow: u32) -> Tracked {
    Tracked {
        client: Ipv4Addr::new(192, 0, 2, 2),
        server: SERVER,
        sport: 0x4000 + flow as u16,
        dport: 9000,
    }
}
