// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to open a connection through a router that masquerades, by the way in which both of its directions come to
//! one worker, needing root: `cargo run --release -p freeway --example setup_cost -- [CONNECTIONS] [ROUNDS]`.
//!
//! Each way has Freeway's programs at both ports, learning; nobody takes the offers. Samples are short and interleaved, and
//! time is this process's on its CPU, where the router's work is done, too: veth receives on the sender's.

use std::error::Error;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use freeway_datapath::{Attachment, Datapath, Hook, LoadOptions};
use freeway_lab::{Lab, Options, Topology};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, connect, listen,
    recv, recvfrom, sendto, setsockopt, socket, sockopt,
};
use nix::time::{ClockId, clock_gettime};

const FAR_FUTURE: u32 = 1 << 30;
const WAN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT_MIN: u16 = 2000;

/// How connections come to their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As the kernel chooses.
    Chance,
    /// `[engine] same_core`.
    Precedents,
    /// Rules: a range of ports for each bucket, which nft has of a hash of its own.
    Ranges,
}

const WAYS: [Way; 3] = [Way::Chance, Way::Precedents, Way::Ranges];

/// What is timed: connect(), a datagram, or a datagram until its answer has come.
const KINDS: [(&str, SockType, bool); 3] = [
    ("TCP", SockType::Stream, false),
    ("UDP, first datagram", SockType::Datagram, false),
    ("UDP, with its answer", SockType::Datagram, true),
];

/// 512 ranges of ports, chosen by nft's jhash of the source.
fn ranges() -> String {
    let mut text = String::from("flush ruleset\ntable ip nat {\n");
    let mut map = String::new();
    for bucket in 0..512 {
        let low = 1024 + bucket * 126;
        let _ = writeln!(
            text,
            "chain b{bucket} {{ meta l4proto {{ tcp, udp }} masquerade to :{low}-{}; }}",
            low + 125
        );
        let _ = write!(map, "{bucket} : goto b{bucket}, ");
    }
    text + &format!(
        "chain postrouting {{ type nat hook postrouting priority srcnat;\n\
         oifname != \"wan0\" accept\n\
         meta l4proto {{ tcp, udp }} jhash ip saddr . th sport mod 512 seed 0x5eed vmap {{ {map} }}\n\
         masquerade\n}}\n}}\n{FILTER}"
    )
}

fn plain() -> String {
    format!(
        "flush ruleset\ntable ip nat {{ chain postrouting {{ type nat hook postrouting priority srcnat;\n\
         oifname \"wan0\" masquerade\n}}\n}}\n{FILTER}"
    )
}

const FILTER: &str = "table inet filter { chain forward {\n\
    type filter hook forward priority filter; policy drop;\n\
    ct state established,related accept\n\
    ct state invalid drop\n\
    iifname \"lan0\" oifname \"wan0\" ct state new accept\n}\n}\n";

/// A data plane, attached for one sample at a time.
struct Programs(Datapath);

impl Programs {
    fn load(lab: &Lab, precedents: bool) -> Result<Self, Box<dyn Error>> {
        let datapath = Datapath::load(&LoadOptions {
            precedents,
            ..LoadOptions::default()
        })?;
        let now = datapath.clock.now_tick()?;
        datapath.control.set_on(true);
        datapath.control.set_epoch(1);
        datapath.control.set_deadline(now.wrapping_add(FAR_FUTURE));
        datapath.control.set_learn(1);
        datapath.control.set_offer_budget(1000);
        datapath.control.set_tracks4(1);
        if precedents {
            let of_lan = datapath.precedents()?;
            of_lan.set_table(0, WAN.into())?;
            of_lan.set_origin(lab.lan_port().ifindex, &[(WAN.into(), 0)])?;
        }
        Ok(Self(datapath))
    }

    fn attach(&self, lab: &Lab) -> Result<Vec<Attachment>, Box<dyn Error>> {
        let (lan, wan) = (lab.lan_port().ifindex, lab.wan_port().ifindex);
        [Hook::Xdp, Hook::Ingress, Hook::Egress]
            .into_iter()
            .flat_map(|hook| [(lan, hook), (wan, hook)])
            .map(|(port, hook)| Ok(self.0.attach(port, hook)?))
            .collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    freeway_lab::signal::cleanup_on_signal()?;
    freeway_datapath::raise_descriptor_limit()?;
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u16| arguments.next().map_or(Ok(default), |text| text.parse());
    let (count, rounds) = (number(500)?, number(41)?);
    let lab = Lab::build(Topology::parse("nat")?, Options::default())?;
    let router = std::fs::File::open(lab.router().path())?;
    setns(router, CloneFlags::CLONE_NEWNET)?;
    let loaded = [Programs::load(&lab, false)?, Programs::load(&lab, true)?];
    let rulesets = [plain(), ranges()];
    let to = SocketAddr::from((SERVER, 5000));
    let listener = lab.server().enter(|| listener(to))??;
    let sink = lab.server().enter(|| UdpSocket::bind(to))??;
    sink.set_nonblocking(true)?;
    let mut samples: Vec<[[f64; KINDS.len()]; WAYS.len()]> = Vec::new();
    for _ in 0..rounds {
        let mut round = [[0.0; KINDS.len()]; WAYS.len()];
        for (way, costs) in WAYS.iter().zip(&mut round) {
            let ruleset = &rulesets[usize::from(*way == Way::Ranges)];
            lab.router().tool_with_input("nft -f -", ruleset)?;
            lab.router().tool("conntrack -F")?;
            let programs = &loaded[usize::from(*way == Way::Precedents)];
            let attached = programs.attach(&lab)?;
            *costs = lab.client().enter(|| sample(count, to, &sink))??;
            drop(attached);
            programs.0.events.take(usize::MAX);
            // what came in is of no interest
            while nix::sys::socket::accept(listener.as_raw_fd())
                .map(nix::unistd::close)
                .is_ok()
            {}
        }
        samples.push(round);
    }
    for (at, (what, ..)) in KINDS.iter().enumerate() {
        for (number, way) in WAYS.iter().enumerate() {
            let cost = median(samples.iter().map(|round| round[number][at]));
            // ratios within a round, for the machine's speed drifts
            let ratio = median(samples.iter().map(|round| round[number][at] / round[0][at]));
            println!(
                "{what:>21}, {way:>10?}: {:6.2} us a connection, {:+5.1} %",
                cost / 1000.0,
                100.0 * (ratio - 1.0)
            );
        }
    }
    Ok(())
}

/// Nanoseconds for each connection, in the order of [`KINDS`].
fn sample(count: u16, to: SocketAddr, server: &UdpSocket) -> nix::Result<[f64; KINDS.len()]> {
    let mut costs = [0.0; KINDS.len()];
    let (mut first, mut room) = (PORT_MIN, [0; 8]);
    for ((kind, answered), cost) in KINDS
        .into_iter()
        .map(|(_, kind, answered)| (kind, answered))
        .zip(&mut costs)
    {
        let sockets = (0..count).map(|n| bound(kind, first + n));
        let sockets: Vec<OwnedFd> = sockets.collect::<Result<_, _>>()?;
        let (to, none) = (SockaddrStorage::from(to), MsgFlags::empty());
        let begun = cpu_time()?;
        for socket in &sockets {
            if kind == SockType::Stream {
                connect(socket.as_raw_fd(), &to)?;
                continue;
            }
            sendto(socket.as_raw_fd(), b"first", &to, none)?;
            if answered {
                let (_, from) = recvfrom::<SockaddrStorage>(server.as_raw_fd(), &mut room)?;
                sendto(
                    server.as_raw_fd(),
                    b"answer",
                    &from.ok_or(Errno::EPROTO)?,
                    none,
                )?;
                recv(socket.as_raw_fd(), &mut room, none)?;
            }
        }
        *cost = (cpu_time()? - begun).as_nanos() as f64 / f64::from(count);
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        for socket in &sockets {
            // a RST leaves nothing behind
            setsockopt(socket, sockopt::Linger, &at_once)?;
        }
        while server.recv(&mut room).is_ok() {}
        first += count;
    }
    Ok(costs)
}

fn bound(kind: SockType, port: u16) -> nix::Result<OwnedFd> {
    let fd = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    let from = SocketAddr::from((CLIENT, port));
    bind(fd.as_raw_fd(), &SockaddrStorage::from(from))?;
    Ok(fd)
}

fn listener(at: SocketAddr) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&fd, Backlog::new(4096)?)?;
    Ok(fd)
}

fn cpu_time() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Into::into)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
