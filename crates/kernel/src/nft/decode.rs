// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of nf_tables. Numbers are in network byte order, register contents as the packet path has them.

use super::*;
use crate::nla::{Attr, Attrs, attrs_after};

/// sizeof(struct nfgenmsg).
const NFGENMSG: usize = 4;
const NFTA_LIST_ELEM: u16 = 1;
/// NFT_DATA_VALUE_MAXLEN: keys come from registers, which hold as much.
const KEY_LEN_MAX: u32 = 64;

fn u32_of(attrs: &Attrs<'_>, kind: u16) -> Option<u32> {
    attrs.clone().find(kind)?.be32()
}

fn u64_of(attrs: &Attrs<'_>, kind: u16) -> Option<u64> {
    attrs.clone().find(kind)?.be64()
}

fn text_of(attrs: &Attrs<'_>, kind: u16) -> Option<String> {
    attrs.clone().find(kind).map(|attr| attr.text())
}

/// NFTA_GEN_ID.
pub fn generation(payload: &[u8]) -> Option<u32> {
    attrs_after(payload, NFGENMSG).find(1)?.be32()
}

/// Family, name and flags of a table.
pub fn table(payload: &[u8]) -> Option<((u8, String), Table)> {
    let attrs = attrs_after(payload, NFGENMSG);
    let table = Table {
        dormant: u32_of(&attrs, 2).unwrap_or(0) & 1 != 0,
        handle: u64_of(&attrs, 4).unwrap_or(0),
        ..Table::default()
    };
    Some(((*payload.first()?, text_of(&attrs, 1)?), table))
}

/// Table, name and hook of a chain.
pub fn chain(payload: &[u8]) -> Option<((u8, String), String, Chain)> {
    let attrs = attrs_after(payload, NFGENMSG);
    let table = (*payload.first()?, text_of(&attrs, 1)?);
    let hook = attrs.clone().find(4).map(|hook| {
        let hook = hook.nested();
        Hook {
            kind: text_of(&attrs, 7).unwrap_or_default(),
            number: u32_of(&hook, 1).unwrap_or(0),
            priority: u32_of(&hook, 2).unwrap_or(0) as i32,
            drops: u32_of(&attrs, 5) == Some(0),
            devices: devices(&hook),
        }
    });
    Some((
        table,
        text_of(&attrs, 3)?,
        Chain {
            hook,
            rules: Vec::new(),
        },
    ))
}

/// NFTA_HOOK_DEV or NFTA_HOOK_DEVS. A prefix (6.16 and later) has no terminating NUL.
fn devices(hook: &Attrs<'_>) -> Vec<String> {
    let name = |attr: Attr<'_>| {
        let text = attr.text();
        let prefix = attr.kind == 2 || !attr.payload.contains(&0);
        if prefix { text + "*" } else { text }
    };
    match hook.clone().find(4) {
        Some(list) => list.nested().map(name).collect(),
        None => hook
            .clone()
            .find(3)
            .map(|attr| attr.text())
            .into_iter()
            .collect(),
    }
}

/// Table, chain and rule.
pub fn rule(payload: &[u8]) -> Option<((u8, String), String, Rule)> {
    let attrs = attrs_after(payload, NFGENMSG);
    let table = (*payload.first()?, text_of(&attrs, 1)?);
    let handle = u64_of(&attrs, 3).unwrap_or(0);
    let expressions = attrs.clone().find(4).map_or_else(Vec::new, |list| {
        list.nested()
            .filter(|attr| attr.kind == NFTA_LIST_ELEM)
            .map(expression)
            .collect()
    });
    Some((
        table,
        text_of(&attrs, 2)?,
        Rule {
            handle,
            expressions,
        },
    ))
}

/// Packets that a rule's first counter has counted.
pub fn counted(payload: &[u8]) -> Option<u64> {
    let list = attrs_after(payload, NFGENMSG).find(4)?.nested();
    let mut expressions = list.filter(|attr| attr.kind == NFTA_LIST_ELEM);
    expressions.find_map(|attr| {
        let attrs = attr.nested();
        let counter = text_of(&attrs, 1)? == "counter";
        u64_of(&attrs.find(2)?.nested(), 2).filter(|_| counter)
    })
}

/// Table, name and properties of a set.
pub fn set(payload: &[u8]) -> Option<((u8, String), String, Set)> {
    let attrs = attrs_after(payload, NFGENMSG);
    let table = (*payload.first()?, text_of(&attrs, 1)?);
    let set = Set {
        flags: u32_of(&attrs, 3).unwrap_or(0),
        handle: u64_of(&attrs, 16).unwrap_or(0),
        key_len: u32_of(&attrs, 5).unwrap_or(0).min(KEY_LEN_MAX),
        data_type: u32_of(&attrs, 6).unwrap_or(0),
        object_type: u32_of(&attrs, 15).unwrap_or(0),
        expressions: expression_names(&attrs, 17, 18),
        elements: None,
    };
    Some((table, text_of(&attrs, 2)?, set))
}

/// The elements in a message.
pub fn elements(payload: &[u8]) -> Vec<Element> {
    let list = attrs_after(payload, NFGENMSG).find(3);
    list.map_or_else(Vec::new, |list| {
        list.nested().map(|attr| element(&attr.nested())).collect()
    })
}

/// Table and set of an element message.
pub fn elements_subject(payload: &[u8]) -> Option<(u8, String, String)> {
    let attrs = attrs_after(payload, NFGENMSG);
    Some((*payload.first()?, text_of(&attrs, 1)?, text_of(&attrs, 2)?))
}

fn element(attrs: &Attrs<'_>) -> Element {
    let flags = u32_of(attrs, 3).unwrap_or(0);
    Element {
        key: value(attrs, 1).unwrap_or_default(),
        key_end: value(attrs, 10),
        interval_end: flags & 1 != 0,
        catch_all: flags & 2 != 0,
        expires_ms: u64_of(attrs, 5),
        verdict: attrs
            .clone()
            .find(2)
            .and_then(|data| verdict(&data.nested())),
        expressions: expression_names(attrs, 7, 11),
    }
}

fn expression_names(attrs: &Attrs<'_>, one: u16, several: u16) -> Vec<String> {
    let name = |attr: Attr<'_>| text_of(&attr.nested(), 1);
    let list = attrs.clone().find(several).map(|list| list.nested());
    let single = attrs.clone().find(one);
    single
        .into_iter()
        .chain(list.into_iter().flatten())
        .filter_map(name)
        .collect()
}

/// Table, name and type of an object.
pub fn object(payload: &[u8]) -> Option<((u8, String), String, u32)> {
    let attrs = attrs_after(payload, NFGENMSG);
    Some((
        (*payload.first()?, text_of(&attrs, 1)?),
        text_of(&attrs, 2)?,
        u32_of(&attrs, 3)?,
    ))
}

/// Table, name and devices of a flowtable.
pub fn flowtable(payload: &[u8]) -> Option<((u8, String), String, Vec<String>)> {
    let attrs = attrs_after(payload, NFGENMSG);
    let hook = attrs.clone().find(3).map(|hook| hook.nested());
    let list = hook.and_then(|hook| hook.find(3)).map(|list| list.nested());
    let devices = list
        .into_iter()
        .flatten()
        .map(|device| device.text())
        .collect();
    Some((
        (*payload.first()?, text_of(&attrs, 1)?),
        text_of(&attrs, 2)?,
        devices,
    ))
}

/// NFTA_DATA_VALUE of an attribute of type nft_data.
fn value(attrs: &Attrs<'_>, kind: u16) -> Option<Vec<u8>> {
    attrs
        .clone()
        .find(kind)?
        .nested()
        .find(1)
        .map(|value| value.payload.to_vec())
}

/// NFTA_DATA_VERDICT.
fn verdict(data: &Attrs<'_>) -> Option<Verdict> {
    let verdict = data.clone().find(2)?.nested();
    let chain = || text_of(&verdict, 2).unwrap_or_default();
    Some(match u32_of(&verdict, 1)? as i32 {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -1 => Verdict::Continue,
        -2 => Verdict::Break,
        -3 => Verdict::Jump(chain()),
        -4 => Verdict::Goto(chain()),
        -5 => Verdict::Return,
        other => Verdict::Other(other),
    })
}

/// Registers 1 to 4 are of 16 bytes, 8 and up (NFT_REG32_00) of 4. `None` for the verdict register.
fn register(number: u32) -> Option<Register> {
    match number {
        1..=4 => Some((number - 1) * 4),
        8..=23 => Some(number - 8),
        _ => None,
    }
}

fn expression(attr: Attr<'_>) -> Expression {
    let attrs = attr.nested();
    let Some(name) = text_of(&attrs, 1) else {
        return Expression::Malformed("nameless".into());
    };
    let data = attrs
        .find(2)
        .map(|data| data.nested())
        .unwrap_or(crate::nla::attrs(&[]));
    typed(&name, &data).unwrap_or(Expression::Malformed(name))
}

fn typed(name: &str, data: &Attrs<'_>) -> Option<Expression> {
    let number = |kind| u32_of(data, kind);
    let reg = |kind| u32_of(data, kind).and_then(register);
    let has = |kind| data.clone().find(kind).is_some();
    Some(match name {
        "immediate" => {
            let content = data.clone().find(2)?.nested();
            match verdict(&content) {
                Some(verdict) => Expression::Verdict(verdict),
                None => Expression::Load {
                    dreg: reg(1)?,
                    data: content.find(1)?.payload.to_vec(),
                },
            }
        }
        "cmp" => Expression::Cmp {
            sreg: reg(1)?,
            op: match number(2)? {
                0 => CmpOp::Eq,
                1 => CmpOp::Ne,
                2 => CmpOp::Lt,
                3 => CmpOp::Le,
                4 => CmpOp::Gt,
                5 => CmpOp::Ge,
                _ => return None,
            },
            data: value(data, 3)?,
        },
        "bitwise" if number(6).unwrap_or(0) == 0 => Expression::Bitwise {
            sreg: reg(1)?,
            dreg: reg(2)?,
            len: number(3)?,
            mask: value(data, 4)?,
            xor: value(data, 5)?,
        },
        "bitwise" => Expression::BitwiseOther {
            sreg: reg(1)?,
            other: reg(8),
            dreg: reg(2)?,
            len: number(3)?,
        },
        "byteorder" => Expression::Byteorder {
            sreg: reg(1)?,
            dreg: reg(2)?,
            len: number(4)?,
            size: number(5)?,
        },
        "range" => Expression::Range {
            sreg: reg(1)?,
            negated: number(2)? == 1,
            from: value(data, 3)?,
            to: value(data, 4)?,
        },
        "lookup" => Expression::Lookup {
            set: text_of(data, 1)?,
            sreg: reg(2)?,
            // Register 0 takes verdicts.
            dreg: number(3).map(|number| register(number).unwrap_or(Register::MAX)),
            negated: number(5).unwrap_or(0) & 1 != 0,
        },
        "payload" if has(5) => Expression::PayloadSet {
            sreg: reg(5)?,
            base: number(2)?,
            offset: number(3)?,
            len: number(4)?,
        },
        "payload" => Expression::Payload {
            dreg: reg(1)?,
            base: number(2)?,
            offset: number(3)?,
            len: number(4)?,
        },
        "meta" if has(3) => Expression::MetaSet { key: number(2)? },
        "meta" => Expression::Meta {
            dreg: reg(1)?,
            key: number(2)?,
        },
        "ct" if has(4) => Expression::CtSet { key: number(2)? },
        "ct" => Expression::Ct {
            dreg: reg(1)?,
            key: number(2)?,
            direction: data.clone().find(3).and_then(|attr| attr.u8()),
        },
        "rt" => Expression::Rt {
            dreg: reg(1)?,
            key: number(2)?,
        },
        "fib" => Expression::Fib { dreg: reg(1)? },
        "exthdr" if has(1) => Expression::Exthdr {
            dreg: reg(1)?,
            op: number(6).unwrap_or(0),
            present: number(5).unwrap_or(0) & 1 != 0,
        },
        "exthdr" => Expression::ExthdrSet {
            op: number(6).unwrap_or(0),
        },
        "objref" => Expression::Objref {
            kind: number(1),
            name: text_of(data, 2).unwrap_or_default(),
            map: text_of(data, 4),
        },
        "match" | "target" => {
            let (name_text, revision) = (text_of(data, 1)?, number(2)?);
            let info = data.clone().find(3)?.payload.to_vec();
            if name == "match" {
                Expression::Match {
                    name: name_text,
                    revision,
                    info,
                }
            } else {
                Expression::Target {
                    name: name_text,
                    revision,
                    info,
                }
            }
        }
        "dynset" => Expression::Dynset {
            set: text_of(data, 1)?,
        },
        "reject" => Expression::Reject,
        other => Expression::Named(other.to_owned()),
    })
}

/// Runs every decoder.
pub(crate) fn fuzz(payload: &[u8]) {
    let _ = (
        generation(payload),
        table(payload),
        chain(payload),
        rule(payload),
        set(payload),
    );
    let _ = (
        elements(payload),
        elements_subject(payload),
        object(payload),
        flowtable(payload),
        counted(payload),
    );
}
