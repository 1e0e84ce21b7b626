// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands to connection tracking (ctnetlink).

use std::io;
use std::net::IpAddr;

use crate::decode::connection::*;
use crate::error::Result;
use crate::message::Message;
use crate::model::*;
use crate::nla::Writer;
use crate::socket::Channel;

/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW: without NLM_F_CREATE it changes an existing connection.
const CT_NEW: u16 = 1 << 8;
/// IPCTNL_MSG_CT_GET.
const CT_GET: u16 = (1 << 8) | 1;
/// IPCTNL_MSG_CT_DELETE: without a tuple, of all connections.
const CT_DELETE: u16 = (1 << 8) | 2;
/// Messages in one system call: they must fit into the socket's send buffer, and the answers of all, should they
/// fail, into its receive buffer.
const BATCH: usize = 512;
/// What window tracking is set to: liberal, so that segments beyond the window it last saw pass.
const LIBERAL_FLAGS: u8 = TCP_FLAG_BE_LIBERAL;
/// The mask also clears MAXACK_SET (else a correct RST is invalid after 2 GiB) and DATA_UNACKNOWLEDGED
/// (else the idle timeout sticks at 300 s). `nlattr_to_tcp`.
const LIBERAL_MASK: u8 = TCP_FLAG_BE_LIBERAL | TCP_FLAG_DATA_UNACKNOWLEDGED | TCP_FLAG_MAXACK_SET;

/// One TCP connection to prepare for the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPrepare {
    /// The original tuple.
    pub orig: Tuple,
    /// The zone, 0 by default.
    pub zone: u16,
    /// Also set the time to expiry, in seconds.
    pub timeout_s: Option<u32>,
}

/// A time to expiry to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetTimeout {
    /// The original tuple.
    pub orig: Tuple,
    /// The zone, 0 by default.
    pub zone: u16,
    /// The time to expiry, in seconds.
    pub seconds: u32,
}

/// Which connections a dump returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Only this IP version.
    pub family: Option<Family>,
    /// Only this IP protocol number.
    pub proto: Option<u8>,
    /// Only connections with this address in one of the tuples.
    pub addr: Option<IpAddr>,
}

impl ConnectionFilter {
    /// True if the filter lets the connection through.
    pub fn matches(&self, connection: &Connection) -> bool {
        let (orig, reply) = (&connection.orig, &connection.reply);
        let has = |ip| [orig.src, orig.dst, reply.src, reply.dst].contains(&ip);
        self.family.is_none_or(|family| family == connection.family)
            && self.proto.is_none_or(|proto| proto == connection.proto)
            && self.addr.is_none_or(has)
    }
}

/// A command socket to connection tracking, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel,
}

impl Conntrack {
    /// Opens the socket.
    pub fn open() -> Result<Conntrack> {
        Ok(Conntrack {
            channel: Channel::open(libc::NETLINK_NETFILTER)?,
        })
    }

    /// The socket's port, which is in the events of what it did ([`Mirror::ignore`](crate::mirror::Mirror::ignore)).
    pub fn port(&self) -> Result<u32> {
        self.channel.port()
    }

    /// Makes window tracking of each connection liberal in both directions, and sets its timeout if asked to;
    /// one result each, in order. `ENOENT` means that the connection is gone. Cannot be undone.
    pub fn prepare_tcp(&mut self, batch: &[TcpPrepare]) -> Vec<io::Result<()>> {
        self.change(batch, encode_prepare)
    }

    /// Sets the time to expiry of connections; one result each, in order.
    pub fn set_timeouts(&mut self, batch: &[SetTimeout]) -> Vec<io::Result<()>> {
        self.change(batch, |writer, change| {
            subject(writer, CTA_TUPLE_ORIG, &change.orig, change.zone);
            writer.attr(CTA_TIMEOUT, &change.seconds.to_be_bytes());
        })
    }

    /// Sets the time to expiry of one connection, in seconds.
    pub fn set_timeout(&mut self, orig: &Tuple, zone: u16, seconds: u32) -> io::Result<()> {
        let change = SetTimeout {
            orig: *orig,
            zone,
            seconds,
        };
        self.set_timeouts(std::slice::from_ref(&change))
            .pop()
            .unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EIO)))
    }

    fn change<T>(&mut self, batch: &[T], body: impl Fn(&mut Writer, &T)) -> Vec<io::Result<()>> {
        let mut results = Vec::with_capacity(batch.len());
        for chunk in batch.chunks(BATCH) {
            results.extend(
                self.channel
                    .batch(chunk.len(), |writer, index, flags, seq| {
                        if let Some(item) = chunk.get(index) {
                            writer.message(CT_NEW, flags, seq, |writer| body(writer, item));
                        }
                    }),
            );
        }
        results
    }

    /// The connection that a tuple belongs to, as original or as reply tuple.
    pub fn get(&mut self, tuple: &Tuple, zone: u16) -> Result<Option<Connection>> {
        let what = "look up a connection";
        let mut found = None;
        let mut each =
            |message: Message<'_>| found = found.take().or_else(|| connection(message.payload));
        // `nf_conntrack_find_get` finds either tuple, whatever the attribute says.
        let body = |writer: &mut Writer| subject(writer, CTA_TUPLE_ORIG, tuple, zone);
        match self.channel.request(what, CT_GET, body, &mut each) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Deletes all connections of the namespace, and returns when the kernel has.
    pub fn flush(&mut self) -> Result<()> {
        let body = |writer: &mut Writer| writer.raw(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        let what = "delete all connections";
        self.channel.request(what, CT_DELETE, body, &mut |_| {})
    }

    /// All connections that the filter lets through.
    pub fn dump(&mut self, filter: &ConnectionFilter) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        self.for_each(filter, &mut |connection| connections.push(connection))?;
        Ok(connections)
    }

    /// Visits all connections that the filter lets through, without keeping them. A connection may be missing
    /// or come twice when the table is resized meanwhile.
    pub fn for_each(
        &mut self,
        filter: &ConnectionFilter,
        visit: &mut dyn FnMut(Connection),
    ) -> Result<()> {
        let family = filter.family.map_or(libc::AF_UNSPEC as u8, Family::number);
        let mut each = |message: Message<'_>| {
            connection(message.payload)
                .filter(|found| filter.matches(found))
                .map(&mut *visit);
        };
        let what = "list the connections";
        self.channel.dump(
            what,
            CT_GET,
            |writer| writer.raw(&[family, 0, 0, 0]),
            &mut each,
        )?;
        Ok(())
    }
}

/// The body of a preparation message.
fn encode_prepare(writer: &mut Writer, prepare: &TcpPrepare) {
    let flags = [LIBERAL_FLAGS, LIBERAL_MASK];
    subject(writer, CTA_TUPLE_ORIG, &prepare.orig, prepare.zone);
    writer.nest(CTA_PROTOINFO, |writer| {
        writer.nest(CTA_PROTOINFO_TCP, |writer| {
            writer.attr(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &flags);
            writer.attr(CTA_PROTOINFO_TCP_FLAGS_REPLY, &flags);
        });
    });
    if let Some(timeout_s) = prepare.timeout_s {
        writer.attr(CTA_TIMEOUT, &timeout_s.to_be_bytes());
    }
}

/// The header and the attributes that say which connection is meant.
fn subject(writer: &mut Writer, kind: u16, tuple: &Tuple, zone: u16) {
    writer.raw(&[tuple.family().number(), 0, 0, 0]);
    encode_tuple(writer, kind, tuple);
    if zone != 0 {
        writer.attr(CTA_ZONE, &zone.to_be_bytes());
    }
}

fn encode_tuple(writer: &mut Writer, kind: u16, tuple: &Tuple) {
    let tuple = tuple.tracked();
    let (src, dst) = match tuple.family() {
        Family::Ipv4 => (1, 2),
        Family::Ipv6 => (3, 4),
    };
    writer.nest(kind, |writer| {
        writer.nest(CTA_TUPLE_IP, |writer| {
            writer.attr_ip(src, tuple.src);
            writer.attr_ip(dst, tuple.dst);
        });
        writer.nest(CTA_TUPLE_PROTO, |writer| {
            writer.attr(CTA_PROTO_NUM, &[tuple.proto]);
            let [icmp_kind, icmp_code] = tuple.dport.to_be_bytes();
            let icmp = match i32::from(tuple.proto) {
                libc::IPPROTO_ICMP => 4,
                libc::IPPROTO_ICMPV6 => 7,
                _ => {
                    writer.attr(CTA_PROTO_SRC_PORT, &tuple.sport.to_be_bytes());
                    writer.attr(CTA_PROTO_DST_PORT, &tuple.dport.to_be_bytes());
                    return;
                }
            };
            writer.attr(icmp, &tuple.sport.to_be_bytes());
            writer.attr(icmp + 1, &[icmp_kind]);
            writer.attr(icmp + 2, &[icmp_code]);
        });
    });
}
