// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes in the kernel by netlink from this process, so that the time of the acknowledgement is known.

use std::io;
use std::net::Ipv4Addr;
use std::ops::Add;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use freeway_lab::Netns;
use freeway_lab::clock::monotonic_ns;

const REQUEST: u16 = 0x01;
const ACK: u16 = 0x04;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;

/// CLOCK_MONOTONIC around a change.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Just before the request was handed to the kernel.
    pub before_ns: u64,
    /// Just after its acknowledgement was read.
    pub acked_ns: u64,
}

/// A netlink socket of a namespace.
pub struct Netlink {
    fd: OwnedFd,
    seq: u32,
}

/// A message before it has a header: type, flags, body.
type Part = (u16, u16, Vec<u8>);

impl Netlink {
    pub fn route(netns: &Netns) -> Self {
        Self::open(netns, libc::NETLINK_ROUTE)
    }

    pub fn xfrm(netns: &Netns) -> Self {
        Self::open(netns, libc::NETLINK_XFRM)
    }

    pub fn netfilter(netns: &Netns) -> Self {
        Self::open(netns, libc::NETLINK_NETFILTER)
    }

    fn open(netns: &Netns, protocol: i32) -> Self {
        let fd = netns
            .enter(|| {
                let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
                // SAFETY: socket(2) takes no pointers.
                unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) }
            })
            .unwrap();
        assert!(fd >= 0, "netlink: {}", io::Error::last_os_error());
        // SAFETY: the kernel has just returned this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Self { fd, seq: 0 }
    }

    /// One request that has to succeed.
    #[track_caller]
    pub fn change(&mut self, (kind, flags, body): Part) -> Acked {
        self.batch(&[(kind, flags | ACK, body)])
    }

    /// Several in one datagram; the last acknowledgement counts.
    #[track_caller]
    fn batch(&mut self, parts: &[Part]) -> Acked {
        let mut datagram = Vec::new();
        let mut awaited = Vec::new();
        for (kind, flags, body) in parts {
            self.seq += 1;
            datagram.extend((16 + body.len() as u32).to_ne_bytes());
            datagram.extend(kind.to_ne_bytes());
            datagram.extend((flags | REQUEST).to_ne_bytes());
            datagram.extend(self.seq.to_ne_bytes());
            datagram.extend(0u32.to_ne_bytes());
            datagram.extend(body);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
            if flags & ACK != 0 {
                awaited.push(self.seq);
            }
        }
        let before_ns = monotonic_ns();
        // SAFETY: the datagram outlives the call.
        let sent = unsafe {
            libc::send(
                self.fd.as_raw_fd(),
                datagram.as_ptr().cast(),
                datagram.len(),
                0,
            )
        };
        assert_eq!(sent, datagram.len() as isize, "netlink send");
        let mut buffer = vec![0u8; 32768];
        while !awaited.is_empty() {
            // SAFETY: the buffer outlives the call.
            let len = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            assert!(len > 0, "netlink: {}", io::Error::last_os_error());
            let word = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
            let mut at = 0;
            while at + 20 <= len as usize {
                // NLMSG_ERROR, with the code behind the header
                if word(at + 4) & 0xffff == 2 {
                    let error = word(at + 16).cast_signed();
                    assert_eq!(error, 0, "{}", io::Error::from_raw_os_error(-error));
                    awaited.retain(|seq| *seq != word(at + 8));
                }
                at += (word(at) as usize).next_multiple_of(4).max(16);
            }
        }
        Acked {
            before_ns,
            acked_ns: monotonic_ns(),
        }
    }

    /// One nftables transaction.
    #[track_caller]
    pub fn nft(&mut self, part: Part) -> Acked {
        // nfgenmsg: the resource is the subsystem, network order
        let edge = vec![0, 0, 0, 10];
        self.batch(&[
            (0x10, 0, edge.clone()),
            (part.0, part.1 | ACK, part.2),
            (0x11, 0, edge),
        ])
    }
}

fn attr(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + payload.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nest(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attr(kind | 0x8000, &parts.concat())
}

/// What a route leads to.
pub enum Target {
    Gateway(Ipv4Addr, u32),
    Nexthop(u32),
    Unreachable,
    Blackhole,
}

fn route_body((prefix, len): (Ipv4Addr, u8), target: &Target) -> Vec<u8> {
    let kind = match target {
        Target::Gateway(..) | Target::Nexthop(_) => 1,
        Target::Blackhole => 6,
        Target::Unreachable => 7,
    };
    // rtmsg: table main, protocol static, scope universe
    let mut body = vec![libc::AF_INET as u8, len, 0, 0, 254, 4, 0, kind, 0, 0, 0, 0];
    body.extend(attr(1, &prefix.octets()));
    if let Target::Gateway(gateway, ifindex) = target {
        body.extend(attr(4, &ifindex.to_ne_bytes()));
        body.extend(attr(5, &gateway.octets()));
    }
    if let Target::Nexthop(id) = target {
        body.extend(attr(30, &id.to_ne_bytes()));
    }
    body
}

pub fn nexthop_replace(id: u32, gateway: Ipv4Addr, ifindex: u32) -> Part {
    // nhmsg
    let mut body = vec![libc::AF_INET as u8, 0, 4, 0, 0, 0, 0, 0];
    body.extend(attr(1, &id.to_ne_bytes()));
    body.extend(attr(5, &ifindex.to_ne_bytes()));
    body.extend(attr(6, &gateway.octets()));
    (104, CREATE | REPLACE, body)
}

pub fn nexthop_delete(id: u32) -> Part {
    let mut body = vec![0; 8];
    body.extend(attr(1, &id.to_ne_bytes()));
    (105, 0, body)
}

/// A routing rule: packets to a prefix find no route.
pub fn rule((prefix, len): (Ipv4Addr, u8), present: bool) -> Part {
    // fib_rule_hdr: FR_ACT_BLACKHOLE
    let mut body = vec![libc::AF_INET as u8, len, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0];
    body.extend(attr(1, &prefix.octets()));
    body.extend(attr(6, &100u32.to_ne_bytes()));
    match present {
        true => (32, CREATE, body),
        false => (33, 0, body),
    }
}

pub fn address(ifindex: u32, address: Ipv4Addr, present: bool) -> Part {
    // ifaddrmsg: one host, permanent, universe
    let mut body = vec![libc::AF_INET as u8, 32, 0x80, 0];
    body.extend(ifindex.to_ne_bytes());
    body.extend(attr(1, &address.octets()));
    body.extend(attr(2, &address.octets()));
    match present {
        true => (20, CREATE | REPLACE, body),
        false => (21, 0, body),
    }
}

pub fn route_replace(prefix: (Ipv4Addr, u8), target: &Target) -> Part {
    (24, CREATE | REPLACE, route_body(prefix, target))
}

pub fn route_delete(prefix: (Ipv4Addr, u8), target: &Target) -> Part {
    (25, 0, route_body(prefix, target))
}

fn neighbour_body(ifindex: u32, address: Ipv4Addr, mac: Option<[u8; 6]>) -> Vec<u8> {
    let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
    body.extend(ifindex.to_ne_bytes());
    // NUD_PERMANENT
    body.extend(0x80u16.to_ne_bytes());
    body.extend([0, 0]);
    body.extend(attr(1, &address.octets()));
    if let Some(mac) = mac {
        body.extend(attr(2, &mac));
    }
    body
}

pub fn neighbour_replace(ifindex: u32, address: Ipv4Addr, mac: [u8; 6]) -> Part {
    (
        28,
        CREATE | REPLACE,
        neighbour_body(ifindex, address, Some(mac)),
    )
}

/// NUD_FAILED.
pub fn neighbour_failed(ifindex: u32, address: Ipv4Addr) -> Part {
    let mut body = neighbour_body(ifindex, address, None);
    body[8..10].copy_from_slice(&0x20u16.to_ne_bytes());
    (28, CREATE | REPLACE, body)
}

pub fn neighbour_delete(ifindex: u32, address: Ipv4Addr) -> Part {
    (29, 0, neighbour_body(ifindex, address, None))
}

fn link_body(ifindex: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0];
    body.extend(ifindex.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(change.to_ne_bytes());
    body
}

pub fn link_mtu(ifindex: u32, mtu: u32) -> Part {
    let mut body = link_body(ifindex, 0, 0);
    body.extend(attr(4, &mtu.to_ne_bytes()));
    (16, 0, body)
}

pub fn link_mac(ifindex: u32, mac: [u8; 6]) -> Part {
    let mut body = link_body(ifindex, 0, 0);
    body.extend(attr(1, &mac));
    (16, 0, body)
}

/// `master` 0: none.
pub fn link_master(ifindex: u32, master: u32) -> Part {
    let mut body = link_body(ifindex, 0, 0);
    body.extend(attr(10, &master.to_ne_bytes()));
    (16, 0, body)
}

fn tcmsg(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [ifindex, handle, parent, info] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// A root qdisc that drops every packet, for all are longer than its bucket.
pub fn qdisc_tbf(ifindex: u32) -> Part {
    let mut body = tcmsg(ifindex, 0, 0xffff_ffff, 0);
    body.extend(attr(1, b"tbf\0"));
    // tc_tbf_qopt: tc_ratespec of one byte a second over Ethernet, no peak rate, limit, buffer, mtu
    let mut parameters = vec![0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    parameters.resize(24, 0);
    for word in [1u32, 0, 0] {
        parameters.extend(word.to_ne_bytes());
    }
    body.extend(nest(
        2,
        &[attr(1, &parameters), attr(6, &1u32.to_ne_bytes())],
    ));
    (36, CREATE | REPLACE, body)
}

pub fn qdisc_delete(ifindex: u32) -> Part {
    (37, 0, tcmsg(ifindex, 0, 0xffff_ffff, 0))
}

pub fn qdisc_clsact(ifindex: u32) -> Part {
    let mut body = tcmsg(ifindex, 0xffff_0000, 0xffff_fff1, 0);
    body.extend(attr(1, b"clsact\0"));
    (36, CREATE, body)
}

/// Priority 1, all protocols, at clsact's ingress.
fn filter_body(ifindex: u32) -> Vec<u8> {
    let info = 1 << 16 | u32::from(0x0003u16.to_be());
    let mut body = tcmsg(ifindex, 1, 0xffff_fff2, info);
    body.extend(attr(1, b"bpf\0"));
    body
}

/// A classifier with direct action.
pub fn filter_bpf(ifindex: u32, program: &OwnedFd) -> Part {
    let mut body = filter_body(ifindex);
    body.extend(nest(
        2,
        &[
            attr(6, &program.as_raw_fd().to_ne_bytes()),
            attr(7, b"dropper\0"),
            attr(8, &1u32.to_ne_bytes()),
        ],
    ));
    (44, CREATE, body)
}

pub fn filter_delete(ifindex: u32) -> Part {
    (45, 0, filter_body(ifindex))
}

/// Calls bpf(2) with the first 64 bytes of an attribute made of words.
fn bpf(command: i64, words: &[u32]) -> io::Result<OwnedFd> {
    let mut attribute = [0u32; 32];
    attribute[..words.len()].copy_from_slice(words);
    // SAFETY: what the attribute points to outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), 64) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn halves(pointer: *const u8) -> [u32; 2] {
    let address = pointer as u64;
    match cfg!(target_endian = "little") {
        true => [address as u32, (address >> 32) as u32],
        false => [(address >> 32) as u32, address as u32],
    }
}

/// A program that returns a constant: for BPF_PROG_TYPE_SCHED_CLS (3) 2 is TC_ACT_SHOT.
pub fn constant_program(kind: u32, value: i32) -> OwnedFd {
    // r0 = value; exit
    let mut instructions = vec![0xb7, 0, 0, 0];
    instructions.extend(value.to_ne_bytes());
    instructions.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
    let license = b"GPL\0";
    let [code, code_high] = halves(instructions.as_ptr());
    let [text, text_high] = halves(license.as_ptr());
    bpf(5, &[kind, 2, code, code_high, text, text_high]).unwrap()
}

/// Attaches a program to a device of the calling thread's namespace, by a link; BPF_TCX_INGRESS is 46, BPF_XDP 37.
pub fn attach_link(program: &OwnedFd, ifindex: u32, hook: u32) -> io::Result<OwnedFd> {
    bpf(28, &[program.as_raw_fd() as u32, ifindex, hook])
}

/// An IPsec policy that blocks what is forwarded to a prefix.
pub fn policy_block((prefix, len): (Ipv4Addr, u8), present: bool) -> Part {
    // xfrm_selector
    let mut body = prefix.octets().to_vec();
    body.resize(40, 0);
    body.extend((libc::AF_INET as u16).to_ne_bytes());
    body.extend([len, 0, 0, 0, 0, 0]);
    body.extend([0; 8]);
    // XFRM_POLICY_FWD
    const FORWARD: u8 = 2;
    if !present {
        body.extend([0, 0, 0, 0, FORWARD, 0, 0, 0]);
        return (0x14, 0, body);
    }
    // xfrm_lifetime_cfg without limits, xfrm_lifetime_cur
    body.extend([0xff; 32]);
    body.extend([0; 32]);
    body.extend([0; 32]);
    // priority, index, direction, XFRM_POLICY_BLOCK
    body.extend([0, 0, 0, 0, 0, 0, 0, 0, FORWARD, 1, 0, 0]);
    body.resize(body.len().next_multiple_of(8), 0);
    (0x13, CREATE, body)
}

pub fn link_up(ifindex: u32, up: bool) -> Part {
    (16, 0, link_body(ifindex, up.into(), 1))
}

/// A UDP connection from the client to the server.
#[derive(Clone, Copy, Debug)]
pub struct Tracked {
    pub client: Ipv4Addr,
    pub server: Ipv4Addr,
    pub sport: u16,
    pub dport: u16,
}

const CT_NEW: u16 = 1 << 8;
const CT_DELETE: u16 = 1 << 8 | 2;

impl Tracked {
    fn body(&self) -> Vec<u8> {
        let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
        let (from, to) = ((self.client, self.sport), (self.server, self.dport));
        let ip = [attr(1, &from.0.octets()), attr(2, &to.0.octets())];
        let proto = [
            attr(1, &[17]),
            attr(2, &from.1.to_be_bytes()),
            attr(3, &to.1.to_be_bytes()),
        ];
        body.extend(nest(1, &[nest(1, &ip), nest(2, &proto)]));
        body
    }

    pub fn delete(&self) -> Part {
        (CT_DELETE, 0, self.body())
    }

    pub fn mark(&self, mark: u32) -> Part {
        let mut body = self.body();
        body.extend(attr(8, &mark.to_be_bytes()));
        (CT_NEW, 0, body)
    }
}

const NFT_NEWRULE: u16 = 10 << 8 | 6;
const NFT_DELRULE: u16 = 10 << 8 | 8;

fn rule_body(table: &str, chain: &str) -> Vec<u8> {
    // nfgenmsg: inet
    let mut body = vec![1, 0, 0, 0];
    let name = |kind, name: &str| attr(kind, format!("{name}\0").as_bytes());
    body.extend(name(1, table));
    body.extend(name(2, chain));
    body
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    let name = attr(1, format!("{name}\0").as_bytes());
    nest(1, &[name, nest(2, data)])
}

/// `udp sport <= LAST drop` in a chain of an inet table.
pub fn rule_drop_sports(table: &str, chain: &str, last: u16) -> Part {
    let word = |kind, value: u32| attr(kind, &value.to_be_bytes());
    let load = [word(1, 1), word(2, 2), word(3, 0), word(4, 2)];
    let compare = [
        word(1, 1),
        word(2, 3),
        nest(3, &[attr(1, &last.to_be_bytes())]),
    ];
    // register 0 is the verdict, code 0 is NF_DROP
    let verdict = [word(1, 0), nest(2, &[nest(2, &[word(1, 0)])])];
    let mut body = rule_body(table, chain);
    body.extend(nest(
        4,
        &[
            expression("payload", &load),
            expression("cmp", &compare),
            expression("immediate", &verdict),
        ],
    ));
    (NFT_NEWRULE, CREATE, body)
}

/// Removes all rules of a chain.
pub fn rules_flush(table: &str, chain: &str) -> Part {
    (NFT_DELRULE, 0, rule_body(table, chain))
}

/// An element of a set of an inet table comes (of a verdict map with NF_DROP) or goes.
pub fn element(table: &str, set: &str, key: &[u8], verdict: bool, present: bool) -> Part {
    let mut parts = vec![nest(1, &[attr(1, key)])];
    if verdict {
        parts.push(nest(2, &[nest(2, &[attr(1, &0u32.to_be_bytes())])]));
    }
    let mut body = rule_body(table, set);
    body.extend(nest(3, &[nest(1, &parts)]));
    match present {
        true => (10 << 8 | 12, CREATE, body),
        false => (10 << 8 | 14, 0, body),
    }
}

impl Add<Duration> for Acked {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        let later_ns = later.as_nanos() as u64;
        Self {
            before_ns: self.before_ns + later_ns,
            acked_ns: self.acked_ns + later_ns,
        }
    }
}

/// A change that is no netlink request, with the times around it.
pub fn timed<T>(change: impl FnOnce() -> T) -> Acked {
    let before_ns = monotonic_ns();
    change();
    Acked {
        before_ns,
        acked_ns: monotonic_ns(),
    }
}
