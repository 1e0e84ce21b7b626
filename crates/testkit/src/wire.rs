// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments and datagrams of any content between two hosts whose kernels know nothing of them: both ends' wires, and
//! who waits for what arrives there.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freeway_lab::frame::{MAC_LAN, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Lab, Port};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// Behind the LAN port, but nobody's: the client's kernel drops what is for it.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
/// The same at the server.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 200);
/// What the server sees of the client.
pub const SEEN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// What has not arrived by then will not: a busy machine may need most of it. By the clock, for connections live by it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Near,
    Far,
}

use Side::{Far, Near};

impl Side {
    pub fn other(self) -> Side {
        match self {
            Near => Far,
            Far => Near,
        }
    }
}

/// What a packet says, addresses aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub proto: u8,
    /// The near end's port, which the masquerade keeps, and the far one's.
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Segment {
    /// The frame as `from` sends it, with an IP identification, which a router leaves as it is.
    fn frame(&self, from: Side, macs: [[u8; 6]; 2], id: u16) -> Vec<u8> {
        let (src, dst, ports) = match from {
            Near => (NEAR, FAR, self.ports),
            Far => (FAR, SEEN, (self.ports.1, self.ports.0)),
        };
        let mut l4 = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        let sum_at = match self.proto {
            TCP => {
                let words = 5 + self.options.len() / 4;
                l4.extend(self.seq.to_be_bytes());
                l4.extend(self.ack.to_be_bytes());
                l4.extend([(words as u8) << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
                l4.extend(&self.options);
                16
            }
            _ => {
                l4.extend((8 + self.payload.len() as u16).to_be_bytes());
                l4.extend([0, 0]);
                6
            }
        };
        l4.extend(&self.payload);
        let mut pseudo = [src.octets(), dst.octets()].concat();
        pseudo.extend([0, self.proto]);
        pseudo.extend((l4.len() as u16).to_be_bytes());
        pseudo.extend(&l4);
        if pseudo.len() % 2 == 1 {
            pseudo.push(0);
        }
        l4[sum_at..sum_at + 2].copy_from_slice(&(!sum16(&pseudo)).to_be_bytes());
        let mut ip = vec![0x45, 0];
        ip.extend((20 + l4.len() as u16).to_be_bytes());
        ip.extend(id.to_be_bytes());
        ip.extend([0x40, 0, 64, self.proto, 0, 0]);
        ip.extend(src.octets());
        ip.extend(dst.octets());
        let sum = !sum16(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        [macs.concat(), vec![0x08, 0x00], ip, l4].concat()
    }

    /// What arrived at `to`, and its identification; `None` if it is not for the end that it should be for, or damaged.
    fn parse(frame: &[u8], to: Side) -> Option<(u16, Segment)> {
        let ip = frame.get(14..)?;
        if frame[12..14] != [0x08, 0x00] || ip[0] != 0x45 {
            return None;
        }
        let ip = ip.get(..usize::from(u16::from_be_bytes([ip[2], ip[3]])))?;
        let (src, dst) = match to {
            Near => (FAR, NEAR),
            Far => (SEEN, FAR),
        };
        let l4 = ip.get(20..).filter(|l4| l4.len() >= 8)?;
        if ip[12..16] != src.octets() || ip[16..20] != dst.octets() || sum16(&ip[..20]) != 0xffff {
            return None;
        }
        let mut pseudo = ip[12..20].to_vec();
        pseudo.extend([0, ip[9]]);
        pseudo.extend((l4.len() as u16).to_be_bytes());
        pseudo.extend(l4);
        if pseudo.len() % 2 == 1 {
            pseudo.push(0);
        }
        let word = |at: usize| u32::from_be_bytes(l4[at..at + 4].try_into().unwrap());
        let (sport, dport) = ((word(0) >> 16) as u16, word(0) as u16);
        let mut segment = Segment {
            proto: ip[9],
            ports: match to {
                Near => (dport, sport),
                Far => (sport, dport),
            },
            ..Segment::default()
        };
        if ![TCP, UDP].contains(&segment.proto) {
            return None;
        }
        assert_eq!(sum16(&pseudo), 0xffff, "the checksum of what arrived");
        let payload_at = match segment.proto {
            TCP => {
                (segment.seq, segment.ack, segment.flags) = (word(4), word(8), l4[13]);
                let len = usize::from(l4[12] >> 4) * 4;
                segment.options = l4[20..len].to_vec();
                len
            }
            _ => 8,
        };
        segment.payload = l4[payload_at..].to_vec();
        Some((u16::from_be_bytes([ip[4], ip[5]]), segment))
    }
}

type Arrived = Mutex<HashMap<(u8, u16, u16), Vec<(u16, Segment)>>>;

struct End {
    injector: Injector,
    /// The router's there, and its own.
    macs: [[u8; 6]; 2],
    arrived: Arc<(Arrived, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

/// The two ends; many threads may use them for connections of their own.
pub struct Wire {
    ends: [End; 2],
    stop: Arc<AtomicBool>,
    /// Each frame has an identification of its own, so that a late one is not taken for a copy.
    next_id: AtomicU16,
}

impl Wire {
    pub fn open(lab: &Lab) -> Wire {
        let line =
            format!("ip neighbour replace {NEAR} lladdr 02:00:00:00:01:02 nud permanent dev lan0");
        lab.router().tool(&line).unwrap();
        Self::open_from(lab, lab.client_port(), MAC_LAN)
    }

    /// The near end is another one, of whose MAC address the router knows.
    pub fn open_from(lab: &Lab, near: &Port, router: [u8; 6]) -> Wire {
        let line =
            format!("ip neighbour replace {FAR} lladdr 02:00:00:00:02:02 nud permanent dev wan0");
        lab.router().tool(&line).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let end = |port: &Port, side: Side, router: [u8; 6]| {
            let mut capture = Capture::open(port).unwrap();
            let arrived = Arc::new((Arrived::default(), Condvar::new()));
            let (theirs, end) = (Arc::clone(&arrived), Arc::clone(&stop));
            let reader = thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    let frames = capture
                        .collect(1, Duration::from_millis(50), |_| true)
                        .unwrap();
                    for (id, segment) in frames
                        .iter()
                        .filter_map(|frame| Segment::parse(&frame.bytes, side))
                    {
                        let key = (segment.proto, segment.ports.0, segment.ports.1);
                        let mut all = theirs.0.lock().unwrap();
                        all.entry(key).or_default().push((id, segment));
                        theirs.1.notify_all();
                    }
                }
            });
            End {
                injector: Injector::open(port).unwrap(),
                macs: [router, port.mac],
                arrived,
                reader: Some(reader),
            }
        };
        Wire {
            ends: [
                end(near, Near, router),
                end(lab.server_port(), Far, MAC_WAN),
            ],
            stop,
            next_id: AtomicU16::new(0),
        }
    }

    /// Sends without looking.
    pub fn send(&self, from: Side, segment: &Segment) -> u16 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let end = &self.ends[from as usize];
        end.injector
            .send(&segment.frame(from, end.macs, id))
            .unwrap();
        id
    }

    /// What has arrived at an end for these ports since the last [`Wire::deliver`] to it.
    pub fn arrived(&self, at: Side, proto: u8, ports: (u16, u16)) -> Vec<Segment> {
        let (lock, _) = &*self.ends[at as usize].arrived;
        let all = lock.lock().unwrap();
        let there = all.get(&(proto, ports.0, ports.1));
        let segments = there.into_iter().flatten();
        segments.map(|(_, segment)| segment.clone()).collect()
    }

    /// True if the same arrives at the other end, once.
    pub fn deliver(&self, from: Side, segment: &Segment) -> bool {
        let (lock, changed) = &*self.ends[from.other() as usize].arrived;
        let key = (segment.proto, segment.ports.0, segment.ports.1);
        lock.lock().unwrap().remove(&key);
        let id = self.send(from, segment);
        let end = Instant::now() + PATIENCE;
        let mut all = lock.lock().unwrap();
        let copies = loop {
            let there = all.get(&key).map_or(&[][..], Vec::as_slice);
            let same = |(its, one): &&(u16, Segment)| *its == id && one == segment;
            let copies = there.iter().filter(same).count();
            if copies > 0 || Instant::now() > end {
                break copies;
            }
            all = changed.wait_timeout(all, crate::POLL).unwrap().0;
        };
        // others go on with what arrived
        drop(all);
        assert!(copies <= 1, "{copies} copies of {segment:?}");
        copies == 1
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for end in &mut self.ends {
            if let Some(reader) = end.reader.take() {
                let read = reader.join();
                assert!(
                    read.is_ok() || thread::panicking(),
                    "a wire's reader failed"
                );
            }
        }
    }
}

/// A TCP connection of two ends that say what they are told to.
pub struct Talk<'a> {
    pub wire: &'a Wire,
    pub ports: (u16, u16),
    /// The next sequence number of each side.
    pub next: [u32; 2],
    /// Options of every segment but the first.
    pub options: Vec<u8>,
}

impl<'a> Talk<'a> {
    /// A handshake by the near side; each segment has to arrive.
    #[track_caller]
    pub fn open(wire: &'a Wire, ports: (u16, u16), isn: [u32; 2]) -> Self {
        let mut talk = Talk {
            wire,
            ports,
            next: isn,
            options: Vec::new(),
        };
        assert!(talk.handshake(), "the handshake of {ports:?}");
        talk
    }

    /// The handshake again, from the present numbers.
    pub fn handshake(&mut self) -> bool {
        // MSS, SACK permitted, window scale
        self.options = vec![2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 1, 1];
        let syn = self.say_at(Near, SYN, self.next[0], 0, &[]);
        self.next[0] = self.next[0].wrapping_add(1);
        let synack = self.say(Far, SYN | ACK, &[]);
        self.next[1] = self.next[1].wrapping_add(1);
        self.options = Vec::new();
        syn && synack && self.say(Near, ACK, &[])
    }

    /// The segment at given numbers arrives.
    pub fn say_at(&self, from: Side, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> bool {
        let segment = Segment {
            proto: TCP,
            ports: self.ports,
            seq,
            ack,
            flags,
            options: self.options.clone(),
            payload: payload.to_vec(),
        };
        self.wire.deliver(from, &segment)
    }

    /// The next segment in order arrives; FIN does not count.
    pub fn say(&mut self, from: Side, flags: u8, payload: &[u8]) -> bool {
        let (seq, ack) = (self.next[from as usize], self.next[from.other() as usize]);
        self.next[from as usize] = seq.wrapping_add(payload.len() as u32);
        self.say_at(from, flags, seq, ack, payload)
    }

    /// Data there and back, each acknowledged.
    pub fn exchange(&mut self) -> bool {
        let mut arrived = true;
        for from in [Near, Far] {
            arrived &= self.say(from, PSH | ACK, b"some bytes of data, more than none");
            arrived &= self.say(from.other(), ACK, b"");
        }
        arrived
    }

    /// FIN, which takes a number.
    pub fn finish(&mut self, from: Side) -> bool {
        let arrived = self.say(from, FIN | ACK, b"");
        self.next[from as usize] = self.next[from as usize].wrapping_add(1);
        arrived
    }
}
