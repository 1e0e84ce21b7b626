// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of any content, sent and received byte by byte through packet sockets.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::attach::Attached;
use crate::clock::realtime_ns;
use crate::error::{Context, LabError};
use crate::port::Port;
use crate::reference::attach_pass;
use crate::sink::Captured;

/// The longest frame that is captured whole; a lab's MTU is far below.
const FRAME_MAX: usize = 9216;
/// What the kernel may queue for a capture, bytes.
const QUEUE_BYTES: libc::c_int = 64 << 20;
/// Frames that one call to [`Capture::collect`] returns at most, unless told otherwise.
const FRAMES_MAX: usize = 1 << 20;

/// All protocols, network byte order, as packet(7) wants it.
const ETH_P_ALL_BE: u16 = (libc::ETH_P_ALL as u16).to_be();

pub(crate) fn packet_socket(port: &Port, protocol_be: u16) -> Result<OwnedFd, LabError> {
    let what = format!(
        "open a packet socket on {} in {}",
        port.name,
        port.netns.name()
    );
    let ifindex = port.ifindex.cast_signed();
    port.netns
        .enter(|| {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: socket(2) takes no pointers. Protocol 0 receives nothing until the bind below.
            let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel has just returned this descriptor to us alone.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: all zeroes are a valid sockaddr_ll.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol_be;
            address.sll_ifindex = ifindex;
            let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: the address is a sockaddr_ll of this length and outlives the call.
            match unsafe { libc::bind(fd, (&raw const address).cast(), len) } {
                0 => Ok(socket),
                _ => Err(io::Error::last_os_error()),
            }
        })?
        .context(what)
}

pub(crate) fn set_option(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int of this length and outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            len,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(crate) fn wait(socket: &OwnedFd, events: libc::c_short, until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    // Rounded up, so that the last fraction of a millisecond is not spun away.
    let timeout = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int;
    // SAFETY: one pollfd that outlives the call.
    match unsafe { libc::poll(&raw mut poll, 1, timeout) } {
        n if n >= 0 => Ok(n > 0),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// CLOCK_REALTIME just before it was handed to the kernel, nanoseconds.
    pub before_ns: u64,
    /// CLOCK_REALTIME just after, nanoseconds. A veth's receive path has often run by then.
    pub after_ns: u64,
}

/// Sends frames out of a host's port, past its qdisc.
#[derive(Debug)]
pub struct Injector {
    socket: OwnedFd,
    port: Port,
}

impl Injector {
    /// Opens an injector on a port.
    pub fn open(port: &Port) -> Result<Self, LabError> {
        let socket = packet_socket(port, 0)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .context("send past the qdisc")?;
        Ok(Self {
            socket,
            port: port.clone(),
        })
    }

    /// Sends one frame, complete but for the FCS. The kernel takes 14 bytes to MTU + 14, and four more with a tag.
    pub fn send(&self, frame: &[u8]) -> Result<Injected, LabError> {
        let patience = Instant::now() + Duration::from_secs(1);
        loop {
            let before_ns = realtime_ns();
            // SAFETY: the frame outlives the call.
            let sent = unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            if sent >= 0 {
                return Ok(Injected {
                    before_ns,
                    after_ns: realtime_ns(),
                });
            }
            let error = io::Error::last_os_error();
            let full = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS));
            if !full || Instant::now() > patience {
                let Port { name, netns, .. } = &self.port;
                let what = format!("send {} bytes from {name} in {}", frame.len(), netns.name());
                return Err(error).context(what);
            }
            wait(&self.socket, libc::POLLOUT, patience).context("wait to send")?;
        }
    }

    /// Sends frames in order, `gap` apart.
    pub fn send_all(&self, frames: &[Vec<u8>], gap: Duration) -> Result<Vec<Injected>, LabError> {
        let start = Instant::now();
        frames
            .iter()
            .zip(0u32..)
            .map(|(frame, i)| {
                std::thread::sleep((gap * i).saturating_sub(start.elapsed()));
                self.send(frame)
            })
            .collect()
    }
}

/// Receives the frames that arrive at a host's port, as they were on the wire.
///
/// GRO is switched off on the port meanwhile, for it merges segments before packet sockets see them. An XDP program
/// that passes everything keeps the port's NAPI alive; a sink that is there already does so too, but what it drops
/// is not seen here. Short packets arrive short, for the kernel trims Ethernet padding of what it forwards.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    port: Port,
    seen: VecDeque<Captured>,
    dropped: u64,
    // In this order: GRO comes back before the program goes.
    _gro: GroOff,
    _pass: Option<Attached>,
}

#[derive(Debug)]
struct GroOff {
    port: Port,
}

impl Drop for GroOff {
    fn drop(&mut self) {
        // Where this fails the namespace is gone.
        let _ = self
            .port
            .netns
            .tool(&format!("ethtool -K {} gro on", self.port.name));
    }
}

impl Capture {
    /// Starts to capture at a host's port. What arrives from now on is kept, up to 64 MiB.
    pub fn open(port: &Port) -> Result<Self, LabError> {
        let pass = match attach_pass(port) {
            Ok(attached) => Some(attached),
            Err(LabError::Io { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => None,
            Err(error) => return Err(error),
        };
        port.netns
            .tool(&format!("ethtool -K {} gro off", port.name))?;
        let gro = GroOff { port: port.clone() };
        let socket = packet_socket(port, ETH_P_ALL_BE)?;
        let option = |level, name, value| {
            set_option(&socket, level, name, value).context("set up the capture's socket")
        };
        option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE_BYTES)?;
        option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        let port = port.clone();
        Ok(Self {
            socket,
            port,
            seen: VecDeque::new(),
            dropped: 0,
            _gro: gro,
            _pass: pass,
        })
    }

    /// Waits until `wanted` frames that `filter` accepts are there, or the time is over; returns what there is.
    /// Frames that it does not accept are forgotten.
    pub fn collect(
        &mut self,
        wanted: usize,
        timeout: Duration,
        filter: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Captured>, LabError> {
        let until = Instant::now() + timeout;
        let mut frames = Vec::new();
        while frames.len() < wanted.min(FRAMES_MAX) {
            match self.next(until)? {
                None => break,
                Some(frame) if filter(&frame.bytes) => frames.push(frame),
                Some(_) => {}
            }
        }
        Ok(frames)
    }

    /// Everything that `filter` accepts until nothing has arrived for `quiet`.
    pub fn drain(
        &mut self,
        quiet: Duration,
        filter: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Captured>, LabError> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next(Instant::now() + quiet)? {
            if filter(&frame.bytes) {
                frames.push(frame);
            }
            if frames.len() >= FRAMES_MAX {
                break;
            }
        }
        Ok(frames)
    }

    /// What arrives before a frame that `last` accepts; `None` if that does not come in time, and then it is lost.
    pub fn drain_until(
        &mut self,
        timeout: Duration,
        last: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<Captured>>, LabError> {
        let until = Instant::now() + timeout;
        let mut frames = Vec::new();
        while let Some(frame) = self.next(until)? {
            if last(&frame.bytes) {
                return Ok(Some(frames));
            }
            frames.push(frame);
        }
        Ok(None)
    }

    /// Frames that the kernel could not queue since the capture began.
    pub fn dropped(&mut self) -> Result<u64, LabError> {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to the structure. Reading resets the counters.
        let rc = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error()).context("read the capture's statistics");
        }
        self.dropped += u64::from(stats.tp_drops);
        Ok(self.dropped)
    }

    fn next(&mut self, until: Instant) -> Result<Option<Captured>, LabError> {
        loop {
            if let Some(frame) = self.seen.pop_front() {
                return Ok(Some(frame));
            }
            let what = || {
                format!(
                    "receive at {} in {}",
                    self.port.name,
                    self.port.netns.name()
                )
            };
            match receive(&self.socket).context(what())? {
                Some(frame) => self.seen.push_back(frame),
                None if Instant::now() >= until => return Ok(None),
                None => {
                    wait(&self.socket, libc::POLLIN, until).context(what())?;
                }
            }
        }
    }
}

/// Length of the two MAC addresses, after which tags come.
const MACS: usize = 12;

/// `struct tpacket_auxdata` (linux/if_packet.h).
#[repr(C)]
struct Auxdata {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

/// Bits of the status: a tag was taken off, and its TPID is told, too.
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

impl Auxdata {
    /// The tag that the kernel took off before sockets see a frame (`skb_vlan_untag`).
    fn tag(&self) -> Option<[u8; 4]> {
        let both = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID;
        let ([a, b], [c, d]) = (self.vlan_tpid.to_be_bytes(), self.vlan_tci.to_be_bytes());
        (self.status & both == both).then_some([a, b, c, d])
    }
}

/// One frame as it was on the wire, with its kernel timestamp, if there is one.
fn receive(socket: &OwnedFd) -> io::Result<Option<Captured>> {
    let mut bytes = vec![0u8; FRAME_MAX];
    // Aligned as control messages need it; a timestamp takes 32 bytes, auxiliary data 40.
    let mut control = [0u64; 16];
    let mut buffer = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeroes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut buffer;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to buffers of the given lengths that outlive the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if len < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    bytes.truncate(len as usize);
    let (mut time_ns, mut tag) = (0, None);
    // SAFETY: the kernel has filled in the control messages, and the macros stay within msg_controllen.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let time: libc::timespec = libc::CMSG_DATA(header)
                    .cast::<libc::timespec>()
                    .read_unaligned();
                time_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            }
            if (*header).cmsg_level == libc::SOL_PACKET
                && (*header).cmsg_type == libc::PACKET_AUXDATA
            {
                let auxdata = libc::CMSG_DATA(header).cast::<Auxdata>().read_unaligned();
                tag = auxdata.tag();
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if let Some(tag) = tag.filter(|_| bytes.len() >= MACS) {
        bytes.splice(MACS..MACS, tag);
    }
    Ok(Some(Captured { time_ns, bytes }))
}
