// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the ruleset. A dump is not one transaction, so the generation is compared before and after.

use std::time::Instant;

use super::*;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::nla::Writer;
use crate::socket::{Channel, Dump};

const fn kind(message: u16) -> u16 {
    (10 << 8) | message
}
const NEWTABLE: u16 = kind(0);
const GETTABLE: u16 = kind(1);
const NEWCHAIN: u16 = kind(3);
const GETCHAIN: u16 = kind(4);
const NEWRULE: u16 = kind(6);
const GETRULE: u16 = kind(7);
const NEWSET: u16 = kind(9);
const GETSET: u16 = kind(10);
const NEWSETELEM: u16 = kind(12);
const GETSETELEM: u16 = kind(13);
const GETGEN: u16 = kind(16);
const NEWOBJ: u16 = kind(18);
const GETOBJ: u16 = kind(19);
const NEWFLOWTABLE: u16 = kind(22);
const GETFLOWTABLE: u16 = kind(23);
const DATA_VERDICT: u32 = 0xffff_ff00;
const ATTEMPTS: u32 = 10;
/// Elements beyond this number are not read; the map counts as unknown.
const ELEMENT_LIMIT: usize = 65_536;

/// The generation of the ruleset (NFT_MSG_GETGEN).
pub(crate) fn generation(channel: &mut Channel) -> Result<u32> {
    let what = "tell the generation of the nftables ruleset";
    let mut found = None;
    let mut each = |message: Message<'_>| found = decode::generation(message.payload).or(found);
    channel.request(what, GETGEN, |writer| writer.raw(&[0; 4]), &mut each)?;
    found.ok_or_else(|| Error::Malformed {
        what: what.into(),
        detail: "no generation".into(),
    })
}

impl Ruleset {
    /// Reads the ruleset of the calling thread's network namespace, consistently. A kernel without nftables
    /// has an empty one.
    pub fn read() -> Result<Ruleset> {
        let legacy = legacy_tables();
        let empty = Ruleset {
            legacy,
            ..Ruleset::default()
        };
        let mut channel = match Channel::open(libc::NETLINK_NETFILTER) {
            Err(error) if error.errno() == Some(libc::EPROTONOSUPPORT) => return Ok(empty),
            other => other?,
        };
        for _ in 0..ATTEMPTS {
            let before = match generation(&mut channel) {
                // nfnetlink knows no nf_tables.
                Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                    return Ok(empty);
                }
                other => other?,
            };
            let attempt = Reader {
                channel: &mut channel,
                interrupted: false,
            }
            .read();
            let (tables, interrupted) = match attempt {
                // Something went away between two dumps.
                Err(error) if error.errno() == Some(libc::ENOENT) => continue,
                other => other?,
            };
            if !interrupted && generation(&mut channel)? == before {
                return Ok(Ruleset {
                    generation: before,
                    tables,
                    ..empty
                });
            }
        }
        Err(Error::Unstable {
            what: "the nftables ruleset".into(),
            attempts: ATTEMPTS,
        })
    }
}

impl Ruleset {
    /// Takes a message of a dump. Elements of sets are asked for set by set, but may come, too.
    pub(crate) fn take(&mut self, kind: u16, payload: &[u8]) {
        let tables = &mut self.tables;
        match kind {
            NEWTABLE => tables.extend(decode::table(payload)),
            NEWCHAIN => {
                if let Some((table, name, chain)) = decode::chain(payload) {
                    tables.entry(table).or_default().chains.insert(name, chain);
                }
            }
            NEWRULE => {
                if let Some((table, chain, rule)) = decode::rule(payload) {
                    let table = tables.entry(table).or_default();
                    table.chains.entry(chain).or_default().rules.push(rule);
                }
            }
            NEWSET => {
                if let Some((table, name, set)) = decode::set(payload) {
                    tables.entry(table).or_default().sets.insert(name, set);
                }
            }
            NEWSETELEM => {
                if let Some((family, table, set)) = decode::elements_subject(payload) {
                    let table = tables.entry((family, table)).or_default();
                    let set = table.sets.entry(set).or_default();
                    let elements = set.elements.get_or_insert_default();
                    elements.extend(decode::elements(payload));
                }
            }
            NEWOBJ => {
                if let Some((table, name, kind)) = decode::object(payload) {
                    tables.entry(table).or_default().objects.push((name, kind));
                }
            }
            NEWFLOWTABLE => {
                if let Some((table, name, devices)) = decode::flowtable(payload) {
                    let table = tables.entry(table).or_default();
                    table.flowtables.insert(name, devices);
                }
            }
            _ => {}
        }
    }
}

type Tables = BTreeMap<(u8, String), Table>;

struct Reader<'a> {
    channel: &'a mut Channel,
    interrupted: bool,
}

impl Reader<'_> {
    fn dump(&mut self, what: &str, kind: u16, each: &mut dyn FnMut(u16, &[u8])) -> Result<()> {
        let mut each = |message: Message<'_>| each(message.kind, message.payload);
        let dump = self
            .channel
            .dump(what, kind, |writer| writer.raw(&[0; 4]), &mut each)?;
        self.interrupted |= dump == Dump::Interrupted;
        Ok(())
    }

    fn read(mut self) -> Result<(Tables, bool)> {
        let mut ruleset = Ruleset::default();
        for (what, kind) in [
            ("list the nftables tables", GETTABLE),
            ("list the nftables chains", GETCHAIN),
            ("list the nftables rules", GETRULE),
            ("list the nftables sets", GETSET),
            ("list the nftables objects", GETOBJ),
        ] {
            self.dump(what, kind, &mut |kind, payload| ruleset.take(kind, payload))?;
        }
        let what = "list the nftables flowtables";
        let flowtables = self.dump(what, GETFLOWTABLE, &mut |kind, payload| {
            ruleset.take(kind, payload);
        });
        match flowtables {
            // A kernel without flow tables.
            Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {}
            other => other?,
        }
        let mut tables = ruleset.tables;
        for ((family, table), content) in &mut tables {
            content.mark_changed_sets();
            for (name, set) in &mut content.sets {
                if set.data_type == DATA_VERDICT || set.flags & SET_ANONYMOUS != 0 {
                    set.elements = self.elements(*family, table, name)?;
                }
            }
        }
        Ok((tables, self.interrupted))
    }

    fn elements(&mut self, family: u8, table: &str, set: &str) -> Result<Option<Vec<Element>>> {
        let mut elements = Vec::new();
        let mut each = |message: Message<'_>| {
            if elements.len() <= ELEMENT_LIMIT {
                elements.extend(decode::elements(message.payload));
            }
        };
        let body = |writer: &mut Writer| {
            writer.raw(&[family, 0, 0, 0]);
            writer.attr_text(1, table);
            writer.attr_text(2, set);
        };
        let what = "list the elements of an nftables set";
        let dump = self.channel.dump(what, GETSETELEM, body, &mut each)?;
        self.interrupted |= dump == Dump::Interrupted;
        Ok((elements.len() <= ELEMENT_LIMIT).then_some(elements))
    }
}

/// Lists the elements of a named set piece by piece, each with the time before which nothing of the piece was asked
/// for. True: it is one consistent state; else some may be missing, and those that are gone may be there.
pub fn read_elements(
    (family, table, set): (u8, &str, &str),
    mut each: impl FnMut(Instant, Vec<Element>),
) -> Result<bool> {
    let mut channel = Channel::open(libc::NETLINK_NETFILTER)?;
    // the kernel makes a piece when the one before it is taken, and the first two at once
    let mut taken = [Instant::now(); 3];
    let mut piece = |message: Message<'_>| {
        taken = [taken[1], taken[2], Instant::now()];
        each(taken[0], decode::elements(message.payload));
    };
    let body = |writer: &mut Writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.attr_text(1, table);
        writer.attr_text(2, set);
    };
    let what = "list the elements of an nftables set";
    let dump = channel.dump(what, GETSETELEM, body, &mut piece)?;
    Ok(dump == Dump::Consistent)
}

/// Packets that the counter of a rule has counted; `None`: it has none.
pub fn rule_counter(family: u8, table: &str, chain: &str, handle: u64) -> Result<Option<u64>> {
    let mut channel = Channel::open(libc::NETLINK_NETFILTER)?;
    let mut packets = None;
    let body = |writer: &mut Writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.attr_text(1, table);
        writer.attr_text(2, chain);
        writer.attr(3, &handle.to_be_bytes());
    };
    let mut each = |message: Message<'_>| packets = decode::counted(message.payload).or(packets);
    channel.request("read the counter of a rule", GETRULE, body, &mut each)?;
    Ok(packets)
}
