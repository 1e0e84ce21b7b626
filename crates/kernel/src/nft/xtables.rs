// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the legacy iptables as nftables would have them: struct ipt_entry and ip6t_entry, one after the other,
//! each with matches and a target. Chains are ranges of them, jumps are offsets.

use std::collections::BTreeMap;

use super::*;
use crate::nla::{text, u8_at, u16_at, u32_at};

/// struct ipt_getinfo: name of 32 bytes, valid hooks, 5 entry points, 5 underflows, number of entries, size.
pub(super) const INFO_LEN: usize = 84;

/// Where things are in an entry, which differs between IPv4 and IPv6.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of an address; source, destination, and their masks come first.
    address: usize,
    /// Offset of the source address in the packet's header, and of the destination.
    fields: [u32; 2],
    /// Protocol, flags and inversions.
    proto: usize,
    flags: usize,
    inverted: usize,
    /// The protocol counts only with this flag; 0: if it is not 0.
    has_proto: u8,
    goto: u8,
    /// Flag of rules for further fragments only.
    fragment: u8,
    target_offset: usize,
    next_offset: usize,
    counters: usize,
    /// Bytes before the matches.
    len: usize,
}

pub(super) const IP: Layout = Layout {
    address: 4,
    fields: [12, 16],
    proto: 80,
    flags: 82,
    inverted: 83,
    has_proto: 0,
    goto: 2,
    fragment: 1,
    target_offset: 88,
    next_offset: 90,
    counters: 96,
    len: 112,
};

pub(super) const IP6: Layout = Layout {
    address: 16,
    fields: [8, 24],
    proto: 128,
    flags: 131,
    inverted: 132,
    has_proto: 1,
    goto: 4,
    fragment: 0,
    target_offset: 140,
    next_offset: 142,
    counters: 152,
    len: 168,
};

/// Inversions (IPT_INV_).
const NOT_IN: u8 = 0x01;
const NOT_OUT: u8 = 0x02;
const NOT_SRC: u8 = 0x08;
const NOT_DST: u8 = 0x10;
const NOT_FRAGMENT: u8 = 0x20;
const NOT_PROTO: u8 = 0x40;
/// struct xt_entry_match and xt_entry_target: size, name of 29 bytes, revision.
const EXTENSION_LEN: usize = 32;
/// Chains by NF_INET_ number.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// An entry: a rule, or the head of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    offset: usize,
    bytes: &'a [u8],
    layout: Layout,
}

/// The entries of a table.
pub(super) fn entries(bytes: &[u8], layout: Layout) -> impl Iterator<Item = Entry<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..)?;
        let len = usize::from(u16_at(rest, layout.next_offset)?);
        let entry = Entry {
            offset,
            bytes: rest.get(..len).filter(|_| len > layout.len)?,
            layout,
        };
        offset += len;
        Some(entry)
    })
}

/// A match or target.
struct Extension<'a> {
    name: String,
    revision: u8,
    info: &'a [u8],
}

fn extension(bytes: &[u8]) -> Option<(Extension<'_>, &[u8])> {
    let len = usize::from(u16_at(bytes, 0)?);
    let (own, rest) = bytes.split_at_checked(len)?;
    let extension = Extension {
        name: text(own.get(2..31)?),
        revision: u8_at(own, 31)?,
        info: own.get(EXTENSION_LEN..)?,
    };
    Some((extension, rest))
}

impl<'a> Entry<'a> {
    /// What tells it from others; its counters do not.
    pub fn without_counters(&self) -> [&'a [u8]; 2] {
        let at = self.layout.counters;
        let (head, rest) = self.bytes.split_at_checked(at).unwrap_or((self.bytes, &[]));
        [head, rest.get(16..).unwrap_or_default()]
    }

    fn u8(&self, at: usize) -> u8 {
        u8_at(self.bytes, at).unwrap_or(0)
    }

    fn target(&self) -> Option<Extension<'a>> {
        let at = usize::from(u16_at(self.bytes, self.layout.target_offset)?);
        extension(self.bytes.get(at..)?).map(|(target, _)| target)
    }

    /// The chain that begins behind it (the error target of iptables).
    fn chain(&self) -> Option<String> {
        let target = self.target()?;
        (target.name == "ERROR").then(|| text(target.info))
    }

    fn inverts(&self, flag: u8) -> bool {
        self.u8(self.layout.inverted) & flag != 0
    }

    /// Compares register 0.
    fn compare(&self, inversion: u8, data: &[u8]) -> Expression {
        Expression::Cmp {
            sreg: 0,
            op: if self.inverts(inversion) {
                CmpOp::Ne
            } else {
                CmpOp::Eq
            },
            data: data.to_vec(),
        }
    }

    /// A rule's expressions without its verdict. `None` if it cannot be understood.
    fn conditions(&self) -> Option<Vec<Expression>> {
        let Layout {
            address, fields, ..
        } = self.layout;
        let mut expressions = Vec::new();
        for (index, inversion) in [NOT_SRC, NOT_DST].into_iter().enumerate() {
            let bytes = |slot: usize| self.bytes.get(slot * address..(slot + 1) * address);
            let (value, mask) = (bytes(index)?, bytes(index + 2)?);
            if mask.iter().all(|byte| *byte == 0) && !self.inverts(inversion) {
                continue;
            }
            let len = address as u32;
            expressions.push(Expression::Payload {
                dreg: 0,
                base: 1,
                offset: fields[index],
                len,
            });
            expressions.push(Expression::Bitwise {
                sreg: 0,
                dreg: 0,
                len,
                mask: mask.to_vec(),
                xor: vec![0; address],
            });
            expressions.push(self.compare(inversion, value));
        }
        for (index, (key, inversion)) in [(6, NOT_IN), (7, NOT_OUT)].into_iter().enumerate() {
            let at = 4 * address + 16 * index;
            let name = self.bytes.get(at..at + 16)?;
            let mask = self.bytes.get(at + 32..at + 48)?;
            // Including the terminating NUL, unless it is a prefix.
            let len = mask.iter().take_while(|byte| **byte == 0xff).count();
            if len == 0 && !self.inverts(inversion) {
                continue;
            }
            let mut name = name.get(..len)?.to_vec();
            if name.contains(&0) {
                name.resize(16, 0);
            }
            expressions.push(Expression::Meta { dreg: 0, key });
            expressions.push(self.compare(inversion, &name));
        }
        self.protocol(&mut expressions)?;
        let target_at = usize::from(u16_at(self.bytes, self.layout.target_offset)?);
        let mut matches = self.bytes.get(self.layout.len..target_at)?;
        while !matches.is_empty() {
            let (found, rest) = extension(matches)?;
            expressions.push(Expression::Match {
                name: found.name,
                revision: found.revision.into(),
                info: found.info.to_vec(),
            });
            matches = rest;
        }
        Some(expressions)
    }

    fn protocol(&self, expressions: &mut Vec<Expression>) -> Option<()> {
        const META_L4PROTO: u32 = 16;
        let layout = self.layout;
        let proto = u16_at(self.bytes, layout.proto)?;
        let flags = self.u8(layout.flags);
        let counts = match layout.has_proto {
            0 => proto != 0,
            flag => flags & flag != 0 && proto != 0,
        };
        if counts {
            expressions.push(Expression::Meta {
                dreg: 0,
                key: META_L4PROTO,
            });
            expressions.push(self.compare(NOT_PROTO, &[u8::try_from(proto).ok()?]));
        }
        if flags & layout.fragment != 0 {
            // The fragment's offset: not 0, or 0 if inverted.
            expressions.push(Expression::Payload {
                dreg: 0,
                base: 1,
                offset: 6,
                len: 2,
            });
            expressions.push(Expression::Bitwise {
                sreg: 0,
                dreg: 0,
                len: 2,
                mask: vec![0x1f, 0xff],
                xor: vec![0, 0],
            });
            expressions.push(Expression::Cmp {
                sreg: 0,
                op: if self.inverts(NOT_FRAGMENT) {
                    CmpOp::Eq
                } else {
                    CmpOp::Ne
                },
                data: vec![0, 0],
            });
        }
        Some(())
    }
}

/// A table as nftables would have it. `None` if it is not understood.
pub(super) fn table(
    name: &str,
    layout: Layout,
    info: &[u8; INFO_LEN],
    bytes: &[u8],
) -> Option<Table> {
    let valid = u32_at(info, 32)?;
    let mut begins: BTreeMap<usize, (u32, String)> = BTreeMap::new();
    for (hook, chain) in HOOKS.iter().enumerate() {
        if valid & 1 << hook != 0 {
            let at = u32_at(info, 36 + hook * 4)? as usize;
            begins.insert(at, (hook as u32, (*chain).to_owned()));
        }
    }
    // Jumps lead to the first rule of a chain, behind its head.
    let all: Vec<Entry<'_>> = entries(bytes, layout).collect();
    let end = all.last().map(|last| last.offset + last.bytes.len());
    if end != Some(bytes.len()) {
        return None;
    }
    let chain = |entry: &Entry<'_>| Some((entry.offset + entry.bytes.len(), entry.chain()?));
    let mut chains = BTreeMap::new();
    chains.extend(all.iter().filter_map(chain));
    let mut table = Table::default();
    let mut current = None;
    for entry in &all {
        if let Some((hook, chain)) = begins.get(&entry.offset) {
            table.chains.insert(chain.clone(), base_chain(name, *hook)?);
            current = Some(chain.clone());
        }
        if let Some(chain) = entry.chain() {
            // The last one ends the table.
            if chain != "ERROR" {
                table.chains.insert(chain.clone(), Chain::default());
            }
            current = Some(chain);
            continue;
        }
        let mut expressions = entry.conditions()?;
        expressions.extend(verdict(entry, &chains)?);
        let chain = table.chains.get_mut(current.as_ref()?)?;
        chain.rules.push(Rule {
            handle: 0,
            expressions,
        });
    }
    Some(table)
}

fn base_chain(table: &str, number: u32) -> Option<Chain> {
    let (kind, priority) = match (table, number) {
        ("raw", _) => ("filter", -300),
        ("mangle", _) => ("filter", -150),
        // NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC
        ("nat", 0 | 3) => ("nat", -100),
        ("nat", _) => ("nat", 100),
        ("filter", _) => ("filter", 0),
        ("security", _) => ("filter", 50),
        _ => return None,
    };
    Some(Chain {
        hook: Some(Hook {
            kind: kind.to_owned(),
            number,
            priority,
            drops: false,
            devices: Vec::new(),
        }),
        rules: Vec::new(),
    })
}

/// The expression of a target; none for one that only lets the packet go on.
fn verdict(entry: &Entry<'_>, chains: &BTreeMap<usize, String>) -> Option<Option<Expression>> {
    let target = entry.target()?;
    if !target.name.is_empty() {
        return Some(Some(Expression::Target {
            name: target.name,
            revision: target.revision.into(),
            info: target.info.to_vec(),
        }));
    }
    let code = u32_at(target.info, 0)?.cast_signed();
    let next = entry.offset + entry.bytes.len();
    let goto = entry.u8(entry.layout.flags) & entry.layout.goto != 0;
    let verdict = match code {
        // -NF_DROP - 1, -NF_ACCEPT - 1, XT_RETURN
        -1 => Verdict::Drop,
        -2 => Verdict::Accept,
        -5 => Verdict::Return,
        0.. => match chains.get(&(code as usize)) {
            Some(chain) if goto => Verdict::Goto(chain.clone()),
            Some(chain) => Verdict::Jump(chain.clone()),
            // A rule without target leads to the next one.
            None if code as usize == next => return Some(None),
            None => return None,
        },
        other => Verdict::Other(other),
    };
    Some(Some(Expression::Verdict(verdict)))
}

/// Runs the decoder: the tables that the bytes are, for IPv4 and IPv6.
pub(crate) fn fuzz(bytes: &[u8]) -> [Option<Table>; 2] {
    let (info, entries) = bytes.split_at(bytes.len().min(INFO_LEN));
    let mut whole = [0; INFO_LEN];
    whole[..info.len()].copy_from_slice(info);
    [
        table("filter", IP, &whole, entries),
        table("mangle", IP6, &whole, entries),
    ]
}
