// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink sockets: [`Channel`] asks and waits for the answer, [`Listener`] hears of changes.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use netlink_sys::{Socket, SocketAddr};

use crate::error::{Error, Result};
use crate::message::{ACK, DONE, DUMP, DUMP_INTERRUPTED, ERROR, Message, REQUEST, messages};
use crate::nla::Writer;

/// Larger than any datagram of a dump (`netlink_dump` allocates at most 32 KiB).
const DATAGRAM_BYTES: usize = 128 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Room for the acknowledgements of a batch.
const CHANNEL_BUFFER_BYTES: usize = 1 << 20;

fn name_of(protocol: i32) -> &'static str {
    match protocol {
        libc::NETLINK_ROUTE => "rtnetlink",
        libc::NETLINK_NETFILTER => "nfnetlink",
        libc::NETLINK_XFRM => "xfrm netlink",
        libc::NETLINK_GENERIC => "generic netlink",
        libc::NETLINK_SOCK_DIAG => "sock_diag netlink",
        _ => "netlink",
    }
}

fn set_option<T>(fd: RawFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// SO_RCVBUFFORCE passes net.core.rmem_max; without the privilege SO_RCVBUF gets as near as it may.
fn set_receive_buffer(fd: RawFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

fn open(protocol: i32) -> Result<Socket> {
    let what = || format!("open a {} socket", name_of(protocol));
    let mut socket =
        Socket::new(protocol as isize).map_err(|error| Error::system(what(), error))?;
    socket
        .bind(&SocketAddr::new(0, 0))
        .map_err(|error| Error::system(what(), error))?;
    Ok(socket)
}

/// Receives one datagram; its true length, which may exceed the buffer, and whether the kernel sent it.
fn receive(socket: &Socket, buf: &mut [u8], flags: i32) -> io::Result<(usize, bool)> {
    let mut room = &mut *buf;
    loop {
        match socket.recv_from(&mut room, flags | libc::MSG_TRUNC) {
            Ok((len, from)) => return Ok((len, from.port_number() == 0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A socket for requests. Each waits for its answer, at most five seconds.
pub struct Channel {
    socket: Socket,
    protocol: i32,
    seq: u32,
    buf: Vec<u8>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("protocol", &self.protocol)
            .field("seq", &self.seq)
            .finish()
    }
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// It is one consistent state.
    Consistent,
    /// Something changed while it was made (NLM_F_DUMP_INTR).
    Interrupted,
}

impl Channel {
    /// Opens a socket of a NETLINK_ protocol in the calling thread's network namespace.
    pub fn open(protocol: i32) -> Result<Channel> {
        let socket = open(protocol)?;
        let fd = socket.as_raw_fd();
        let timeout = libc::timeval {
            tv_sec: ANSWER_TIMEOUT.as_secs() as libc::time_t,
            tv_usec: 0,
        };
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
            .and_then(|()| set_receive_buffer(fd, CHANNEL_BUFFER_BYTES))
            .map_err(|error| Error::system("prepare a netlink socket", error))?;
        // Without them errors are only less verbose.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Channel {
            socket,
            protocol,
            seq: 0,
            buf: vec![0; DATAGRAM_BYTES],
        })
    }

    /// The socket's port, which is in the events of what it did.
    pub fn port(&self) -> Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket
            .get_address(&mut address)
            .map_err(|error| Error::system("look up a netlink socket's port", error))?;
        Ok(address.port_number())
    }

    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1).max(1);
        self.seq
    }

    fn send(&self, what: &str, writer: &Writer) -> Result<()> {
        self.socket
            .send_to(writer.as_bytes(), &SocketAddr::new(0, 0), 0)
            .map_err(|error| Error::system(what, error))?;
        Ok(())
    }

    /// Sends one request and hands each answer to `each`, until the acknowledgement.
    pub fn request(
        &mut self,
        what: &str,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        each: &mut dyn FnMut(Message<'_>),
    ) -> Result<()> {
        let seq = self.next_seq();
        let mut writer = Writer::default();
        writer.message(kind, REQUEST | ACK, seq, body);
        self.send(what, &writer)?;
        self.answers(what, seq, each).map(|_| ())
    }

    /// Asks for a dump and hands each part to `each`.
    pub fn dump(
        &mut self,
        what: &str,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        each: &mut dyn FnMut(Message<'_>),
    ) -> Result<Dump> {
        let seq = self.next_seq();
        let mut writer = Writer::default();
        writer.message(kind, REQUEST | DUMP, seq, body);
        self.send(what, &writer)?;
        self.answers(what, seq, each)
    }

    fn answers(&mut self, what: &str, seq: u32, each: &mut dyn FnMut(Message<'_>)) -> Result<Dump> {
        let mut outcome = Dump::Consistent;
        loop {
            let (len, from_kernel) = receive(&self.socket, &mut self.buf, 0)
                .map_err(|error| Error::system(what, error))?;
            let datagram = self.buf.get(..len).ok_or_else(|| Error::Malformed {
                what: what.to_owned(),
                detail: format!("a datagram of {len} bytes"),
            })?;
            if !from_kernel {
                continue;
            }
            for message in messages(datagram).filter(|message| message.seq == seq) {
                if message.flags & DUMP_INTERRUPTED != 0 {
                    outcome = Dump::Interrupted;
                }
                match message.kind {
                    ERROR | DONE => {
                        return message
                            .status()
                            .map(|()| outcome)
                            .map_err(|(error, words)| Error::refused(what, error, words));
                    }
                    _ => each(message),
                }
            }
        }
    }

    /// Sends several requests in one system call; one result each, in order.
    /// `body` writes the message of an index with [`Writer::message`], given its flags and sequence number.
    ///
    /// The kernel carries them out in order before the call returns. Failures are always answered, and success only
    /// where it is asked for: the last one's acknowledgement stands for all before it.
    pub fn batch(
        &mut self,
        count: usize,
        mut body: impl FnMut(&mut Writer, usize, u16, u32),
    ) -> Vec<io::Result<()>> {
        let Some(last) = count.checked_sub(1) else {
            return Vec::new();
        };
        let mut writer = Writer::default();
        let mut first = self.next_seq();
        if first.checked_add(count as u32).is_none() {
            self.seq = 0;
            first = self.next_seq();
        }
        for index in 0..count {
            let flags = if index == last {
                REQUEST | ACK
            } else {
                REQUEST
            };
            body(&mut writer, index, flags, first + index as u32);
        }
        self.seq = first + count as u32;
        let mut results: Vec<io::Result<()>> = (0..count).map(|_| Ok(())).collect();
        let mut ended = false;
        let mut failure = self
            .socket
            .send_to(writer.as_bytes(), &SocketAddr::new(0, 0), 0)
            .err();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while !ended && failure.is_none() {
            match receive(&self.socket, &mut self.buf, 0) {
                Ok((len, true)) => {
                    for message in messages(self.buf.get(..len).unwrap_or_default()) {
                        let index = message.seq.wrapping_sub(first) as usize;
                        if let (ERROR, Some(slot)) = (message.kind, results.get_mut(index)) {
                            *slot = message.status().map_err(|(error, _)| error);
                            ended |= index == last;
                        }
                    }
                }
                Ok((_, false)) => {}
                Err(error) => failure = Some(error),
            }
            if Instant::now() > deadline && failure.is_none() {
                failure = Some(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
        if let Some(failure) = failure {
            // answers may be lost: none can be told to have succeeded
            let code = failure.raw_os_error().unwrap_or(libc::EIO);
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(io::Error::from_raw_os_error(code));
            }
        }
        results
    }
}

/// How reading a [`Listener`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The kernel had to drop some messages.
    pub overrun: bool,
    /// There may be more.
    pub more: bool,
}

/// A non-blocking socket that is a member of multicast groups.
pub struct Listener {
    socket: Socket,
    buf: Vec<u8>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("fd", &self.fd()).finish()
    }
}

impl Listener {
    /// Joins the groups that exist; an unknown group (older kernel) is left out.
    pub fn open(protocol: i32, groups: &[u32], receive_buffer_bytes: usize) -> Result<Listener> {
        let socket = open(protocol)?;
        let what = || format!("listen to {}", name_of(protocol));
        socket
            .set_non_blocking(true)
            .map_err(|error| Error::system(what(), error))?;
        set_receive_buffer(socket.as_raw_fd(), receive_buffer_bytes)
            .map_err(|error| Error::system(what(), error))?;
        let mut joined = 0;
        for &group in groups {
            match socket.add_membership(group) {
                Ok(()) => joined += 1,
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(Error::system(what(), error)),
            }
        }
        if joined == 0 {
            return Err(Error::system(
                what(),
                io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            ));
        }
        Ok(Listener {
            socket,
            buf: vec![0; DATAGRAM_BYTES],
        })
    }

    /// Hears no more of what the socket with this port did: the kernel drops it before it takes up the buffer.
    pub fn ignore(&self, port: u32) -> Result<()> {
        let code = |code: u32, k, jt| libc::sock_filter {
            code: code as u16,
            jt,
            jf: 0,
            k,
        };
        // nlmsg_pid is in host order, a load in network order
        let port = u32::from_be_bytes(port.to_ne_bytes());
        let mut program = [
            code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 12, 0),
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, port, 1),
            code(libc::BPF_RET | libc::BPF_K, u32::MAX, 0),
            code(libc::BPF_RET | libc::BPF_K, 0, 0),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        set_option(self.fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
            .map_err(|error| Error::system("filter kernel events", error))
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Hands the messages of at most `limit` waiting datagrams to `each`, without blocking.
    pub fn drain(&mut self, limit: usize, each: &mut dyn FnMut(Message<'_>)) -> Result<Drained> {
        let mut overrun = false;
        for _ in 0..limit {
            match receive(&self.socket, &mut self.buf, libc::MSG_DONTWAIT) {
                Ok((len, from_kernel)) => match self.buf.get(..len) {
                    Some(datagram) if from_kernel => messages(datagram).for_each(&mut *each),
                    Some(_) => {}
                    None => overrun = true,
                },
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        return Ok(Drained {
                            overrun,
                            more: false,
                        });
                    }
                    Some(libc::ENOBUFS) => overrun = true,
                    _ => return Err(Error::system("read kernel events", error)),
                },
            }
        }
        Ok(Drained {
            overrun,
            more: true,
        })
    }
}
