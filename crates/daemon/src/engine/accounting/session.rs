// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the thread of a collector does: messages are made of records, and sent.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use freeway_api::CollectorState;
use freeway_export::{Encoder, Format, Record};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc::Receiver;
use tokio::time::sleep;

use super::counters::Counters;
use crate::config::{self, Export, Transport};

/// Records that are taken from the queue at once: a message has fewer.
const BATCH: usize = 64;
/// For so long a message waits for more records.
const LINGER: Duration = Duration::from_millis(500);
/// Messages that UDP sends in one go, and the pause after them, so that a collector can follow.
const BURST: u64 = 16;
const BREATH: Duration = Duration::from_millis(4);
/// A connection that takes nothing for so long is made anew, and one that is not there by then is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
/// A host that has refused a datagram is not believed to listen for so long: it does not refuse each, for errors are
/// limited (`icmp_ratelimit`).
const SUSPICION: Duration = Duration::from_secs(10);
/// How long what waits may take once nothing more comes.
const LAST: Duration = Duration::from_secs(2);
/// How long a device may take no datagram before one is given up.
const STUCK: Duration = Duration::from_millis(200);
/// How often it is looked whether anything still comes.
const GLANCE: Duration = Duration::from_millis(50);

enum Way {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// When the machine started, milliseconds since 1970.
fn boot_ms() -> u64 {
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    let up = nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    now_ms().saturating_sub(up.as_millis() as u64)
}

/// Sends until nothing more comes.
pub async fn run(config: &Export, queue: Receiver<Record>, counters: &Counters) {
    let mut sender = Sender {
        config,
        queue,
        counters,
        batch: Vec::new(),
        refused: None,
    };
    sender.send().await;
    let left = sender.batch.len() + sender.queue.len();
    counters.dropped.fetch_add(left as u64, Relaxed);
}

struct Sender<'a> {
    config: &'a Export,
    queue: Receiver<Record>,
    counters: &'a Counters,
    batch: Vec<Record>,
    /// When a datagram was last refused.
    refused: Option<Instant>,
}

impl Sender<'_> {
    async fn send(&mut self) {
        let mut retry = RETRY_MIN;
        loop {
            let connected = tokio::select! {
                way = connect(self.config) => way,
                () = ended(&self.queue) => return,
            };
            let failed = match connected {
                Ok(way) => {
                    self.counters.connects.fetch_add(1, Relaxed);
                    retry = RETRY_MIN;
                    self.ready();
                    match self.session(way).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.down(&failed);
            let again = Instant::now() + retry;
            retry = (retry * 2).min(RETRY_MAX);
            while Instant::now() < again {
                if self.queue.is_closed() {
                    return;
                }
                sleep(GLANCE).await;
            }
        }
    }

    /// Over one socket; `Ok`: nothing more comes.
    async fn session(&mut self, mut way: Way) -> io::Result<()> {
        let format = match self.config.format {
            config::Format::Ipfix => Format::Ipfix {
                biflow: self.config.biflow,
            },
            config::Format::Netflow9 => Format::Netflow9,
        };
        let mut encoder = Encoder::new(format, self.config.domain, self.config.room(), boot_ms());
        let mut described = None;
        let mut closed: Option<Instant> = None;
        let mut messages = 0;
        loop {
            if self.batch.is_empty() && !self.fill().await {
                return Ok(());
            }
            if self.queue.is_closed() && closed.get_or_insert_with(Instant::now).elapsed() > LAST {
                return Ok(());
            }
            let templates = match (&way, described) {
                (_, None) => true,
                (Way::Tcp(_), Some(_)) => false,
                (Way::Udp(_), Some((when, message))) => {
                    self.are_templates_due(when, messages - message)
                }
            };
            if templates {
                described = Some((Instant::now(), messages));
            }
            let (message, taken) = encoder.message(&self.batch, templates, now_ms());
            if taken == 0 {
                // it is longer than any message: nothing that is written is
                self.batch.remove(0);
                self.counters.dropped.fetch_add(1, Relaxed);
                continue;
            }
            match &mut way {
                Way::Tcp(stream) => {
                    // what was not taken whole is sent again in the next connection
                    tokio::select! {
                        written = write(stream, &message) => written?,
                        () = ended(&self.queue) => return Ok(()),
                    }
                }
                Way::Udp(socket) => self.send_datagram(socket, &message, taken).await,
            }
            self.batch.drain(..taken);
            messages += 1;
            self.counters.records.fetch_add(taken as u64, Relaxed);
            self.counters.messages.fetch_add(1, Relaxed);
            self.counters
                .octets
                .fetch_add(message.len() as u64, Relaxed);
            if matches!(way, Way::Udp(_)) && messages % BURST == 0 {
                sleep(BREATH).await;
            }
        }
    }

    fn are_templates_due(&self, since: Instant, messages: u64) -> bool {
        since.elapsed() >= Duration::from_secs(self.config.template_s.into())
            || messages >= self.config.template_messages.into()
    }

    /// An error is of a datagram before, which the host has refused, unless it comes twice.
    async fn send_datagram(&mut self, socket: &UdpSocket, message: &[u8], records: usize) {
        let mut sent = send(socket, message).await;
        if let Err(error) = &sent {
            self.refused = Some(Instant::now());
            self.down(error);
            self.counters.dropped.fetch_add(records as u64, Relaxed);
            sent = send(socket, message).await;
        } else if self.refused.is_none_or(|when| when.elapsed() > SUSPICION) {
            self.ready();
        }
        if let Err(error) = sent {
            self.down(&error);
        }
    }

    /// Waits for records; false: nothing more comes.
    async fn fill(&mut self) -> bool {
        if self.queue.recv_many(&mut self.batch, BATCH).await == 0 {
            return false;
        }
        let lingered = tokio::time::Instant::now() + LINGER;
        while self.batch.len() < BATCH {
            let room = BATCH - self.batch.len();
            let more = self.queue.recv_many(&mut self.batch, room);
            match tokio::time::timeout_at(lingered, more).await {
                Ok(1..) => {}
                // the last ones
                Ok(0) | Err(_) => break,
            }
        }
        true
    }

    fn ready(&self) {
        if self.counters.set_state(CollectorState::Ready) {
            tracing::info!("collector {}: ready", self.config.collector);
        }
    }

    fn down(&self, error: &io::Error) {
        self.counters.failed(error);
        if self.counters.set_state(CollectorState::Down) {
            tracing::warn!("collector {}: {error}", self.config.collector);
        }
    }
}

/// Completes a while after nothing more comes.
async fn ended(queue: &Receiver<Record>) {
    while !queue.is_closed() {
        sleep(GLANCE).await;
    }
    sleep(LAST).await;
}

async fn connect(config: &Export) -> io::Result<Way> {
    let to = config.collector;
    match config.transport {
        Transport::Udp => {
            let any: SocketAddr = match to {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            // a connected socket is told what the host refuses
            socket.connect(to).await?;
            Ok(Way::Udp(socket))
        }
        Transport::Tcp => {
            let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(to)).await??;
            Ok(Way::Tcp(stream))
        }
    }
}

async fn send(socket: &UdpSocket, message: &[u8]) -> io::Result<usize> {
    tokio::time::timeout(STUCK, socket.send(message)).await?
}

async fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    // a collector says nothing: what can be read is its end
    let mut byte = [0];
    match stream.try_read(&mut byte) {
        Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    tokio::time::timeout(PATIENCE, stream.write_all(message)).await?
}
