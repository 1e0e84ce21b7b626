// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames through packet sockets, past the qdiscs: what a page is too small for.
//!
//! The kernel copies a frame from two pieces, the headers with the time, written each time, and what is the same in all frames
//! of a size. A frame for which the next port has no room is lost, some at the second try ([`send_all`]).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use super::offer::{Offer, Offered, Way, checked, frames_of};
use super::pace::Pace;
use crate::capture::{packet_socket, set_option};
use crate::clock::monotonic_ns;
use crate::error::{Context, LabError};
use crate::frame::{Direction, FLOWS_PER_BLOCK, FRAME_BYTES_JUMBO, FlowSpec, low32};
use crate::mix::Mix;
use crate::napi::{BURST_PRIORITY, real_time};
use crate::port::Port;
use crate::sendmmsg::{BATCH, send_all};
use crate::topology::Family;

/// Ethernet, IPv6 and UDP headers and the time.
const HEAD_MAX: usize = 14 + 40 + 8 + STAMP_BYTES;
const STAMP_BYTES: usize = 8;
const UDP_LEN: usize = 8;
/// Bytes of frames that may be on their way from a socket, with what the kernel keeps beside them: more than all queues hold, for
/// a router loses what it has no room for, and the sender does not wait.
const QUEUE_BYTES: libc::c_int = 64 << 20;

type Head = [u8; HEAD_MAX];

/// Frames of one length: their two pieces, and sums without all that varies.
#[derive(Debug)]
struct Shape {
    head: Head,
    tail: Vec<u8>,
    ip_sum: u32,
    l4_sum: u32,
}

/// One direction.
#[derive(Debug)]
struct End {
    socket: OwnedFd,
    port: Port,
    flows: FlowSpec,
    shapes: Vec<Shape>,
    /// Hosts beyond the far side, to which flows go instead; none if there are none.
    hosts: Vec<u32>,
}

/// What is next; it goes on from run to run.
#[derive(Debug, Default)]
struct Next {
    flow: u32,
    host: usize,
    turn: usize,
    way: usize,
}

/// Frames that are ready to leave, by way.
type Ready = Vec<Vec<(usize, Head)>>;

/// Open sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    ends: Vec<End>,
    order: Vec<u8>,
    next: Mutex<Next>,
}

impl Sockets {
    /// Opens a socket for each way.
    pub(super) fn open(ways: &[Way<'_>], mix: &Mix) -> Result<Self, LabError> {
        checked(ways)?;
        let ends = ways.iter().map(|way| End::open(way, mix));
        Ok(Self {
            ends: ends.collect::<Result<_, _>>()?,
            order: mix.order()?,
            next: Mutex::default(),
        })
    }

    pub(super) fn drive(&self, offer: &Offer) -> Result<Offered, LabError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready: Ready = vec![Vec::with_capacity(BATCH); self.ends.len()];
        let mut pace = Pace::new(offer, self.ends.len() as u64, monotonic_ns());
        while let Some(due) = pace.due(monotonic_ns()) {
            if due == 0 {
                std::hint::spin_loop();
                continue;
            }
            // a receiver's thread that is woken for each frame costs more than the frame
            let ahead = due > 1;
            if ahead {
                real_time(0, BURST_PRIORITY)?;
            }
            for _ in 0..due {
                if pace.count() {
                    // alone, so that it waits for no other
                    self.flush(&mut ready)?;
                    self.prepare(&mut next, monotonic_ns(), &mut ready);
                    self.flush(&mut ready)?;
                } else {
                    self.prepare(&mut next, 0, &mut ready);
                }
            }
            self.flush(&mut ready)?;
            if ahead {
                real_time(0, 0)?;
            }
        }
        Ok(pace.offered(monotonic_ns()))
    }

    /// Puts the next frame to those that are ready.
    fn prepare(&self, next: &mut Next, stamp_ns: u64, ready: &mut Ready) {
        let end = &self.ends[next.way];
        let shape = usize::from(self.order[next.turn]);
        let host = end.hosts.get(next.host).copied();
        let head = end.head(&end.shapes[shape], next.flow, host, stamp_ns);
        ready[next.way].push((shape, head));
        next.way += 1;
        if next.way == self.ends.len() {
            let last_flow = next.flow + 1 >= end.flows.flows;
            let last_host = next.host + 1 >= end.hosts.len();
            next.way = 0;
            next.host = if last_host || last_flow {
                0
            } else {
                next.host + 1
            };
            next.flow = if last_flow { 0 } else { next.flow + 1 };
            next.turn = (next.turn + 1) % self.order.len();
        }
    }

    fn flush(&self, ready: &mut Ready) -> Result<(), LabError> {
        for (end, frames) in self.ends.iter().zip(ready) {
            for batch in frames.chunks(BATCH) {
                end.send(batch)?;
            }
            frames.clear();
        }
        Ok(())
    }
}

impl End {
    fn open(way: &Way<'_>, mix: &Mix) -> Result<Self, LabError> {
        let Way { port, flows } = way;
        let shapes = mix.sizes().map(|size| Shape::of(flows, size));
        let shapes = shapes.collect::<Result<_, _>>()?;
        let socket = packet_socket(port, 0)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .context("send past the qdisc")?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, QUEUE_BYTES)
            .context("make room for frames on their way")?;
        let hosts = flows.beyond.map(|beyond| beyond.addresses());
        Ok(Self {
            socket,
            port: (*port).clone(),
            flows: *flows,
            shapes,
            hosts: hosts.into_iter().flatten().map(u32::from).collect(),
        })
    }

    /// The first piece of a frame; without a time 0 takes its place.
    fn head(&self, shape: &Shape, flow: u32, host: Option<u32>, stamp_ns: u64) -> Head {
        let flows = &self.flows;
        let block = flow / FLOWS_PER_BLOCK;
        let near_port = flows
            .near_port
            .wrapping_add((flow % FLOWS_PER_BLOCK) as u16);
        let far_port = flows.far_port.wrapping_add(block as u16);
        let near = low32(flows.near).wrapping_add(if flows.near_fixed { 0 } else { block });
        let stamp = stamp_ns.to_be_bytes();
        let l4 = flows.l4_offset();
        let (near_at, ports) = match (flows.family(), flows.direction) {
            (Family::Ipv4, Direction::Forward) => (l4 - 8, [near_port, far_port]),
            (Family::Ipv6, Direction::Forward) => (l4 - 20, [near_port, far_port]),
            (_, Direction::Reply) => (l4 - 4, [far_port, near_port]),
        };
        let addresses = sum32(near) + host.map_or(0, sum32);
        let ip_sum = shape.ip_sum + addresses;
        let words = stamp.chunks_exact(2);
        let stamp_sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = shape.l4_sum + addresses + ports.map(u32::from).iter().sum::<u32>() + stamp_sum;
        let mut head = shape.head;
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(near_at, &near.to_be_bytes());
        if let Some(host) = host {
            put(l4 - 4, &host.to_be_bytes());
        }
        if flows.family() == Family::Ipv4 {
            put(l4 - 10, &checksum(ip_sum).to_be_bytes());
        }
        put(l4, &ports[0].to_be_bytes());
        put(l4 + 2, &ports[1].to_be_bytes());
        // RFC 768: a checksum that computes to zero is sent as all ones
        let checksum = Some(checksum(sum)).filter(|sum| *sum != 0);
        put(l4 + 6, &checksum.unwrap_or(0xffff).to_be_bytes());
        put(l4 + UDP_LEN, &stamp);
        head
    }

    fn send(&self, frames: &[(usize, Head)]) -> Result<(), LabError> {
        let head_len = head_len(&self.flows);
        let pieces = frames.iter().map(|(shape, head)| {
            let tail: &[u8] = &self.shapes[*shape].tail;
            [&head[..head_len], tail]
        });
        let Err(error) = send_all(&self.socket, pieces) else {
            return Ok(());
        };
        let Port { name, netns, .. } = &self.port;
        Err(error).context(format!("send a frame from {name} in {}", netns.name()))
    }
}

impl Shape {
    fn of(flows: &FlowSpec, frame_bytes: u32) -> Result<Self, LabError> {
        let spec = frames_of(flows, frame_bytes);
        spec.check_up_to(FRAME_BYTES_JUMBO)?;
        let (template, ip_sum, l4_sum) = spec.template();
        let (first, tail) = template.split_at(head_len(flows));
        let mut head = [0; HEAD_MAX];
        head[..first.len()].copy_from_slice(first);
        Ok(Self {
            head,
            tail: tail.to_vec(),
            ip_sum: ip_sum.into(),
            l4_sum: l4_sum.into(),
        })
    }
}

fn head_len(flows: &FlowSpec) -> usize {
    flows.l4_offset() + UDP_LEN + STAMP_BYTES
}

/// Of its 16-bit words.
fn sum32(value: u32) -> u32 {
    (value >> 16) + (value & 0xffff)
}

/// The complement of a sum of 16-bit words, folded (RFC 1071).
fn checksum(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
