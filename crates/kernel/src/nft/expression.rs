// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule expressions, decoded as far as an analysis needs them.

/// A verdict (struct nft_verdict).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leave the hook.
    Accept,
    /// Drop.
    Drop,
    /// Next rule.
    Continue,
    /// NFT_BREAK: next rule.
    Break,
    /// Call a chain.
    Jump(String),
    /// Continue in a chain and do not come back.
    Goto(String),
    /// Back to the caller.
    Return,
    /// Hand to user space, or a number that is not known.
    Other(i32),
}

/// A register: its first 32-bit slot (`nft_parse_register`); 16-byte registers take four.
pub type Register = u32;

/// Comparison operators (enum nft_cmp_ops).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// An expression of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Expression {
    /// Loads a constant.
    Load { dreg: Register, data: Vec<u8> },
    /// Gives a verdict.
    Verdict(Verdict),
    /// Compares; the rule ends when it fails.
    Cmp {
        sreg: Register,
        op: CmpOp,
        data: Vec<u8>,
    },
    /// dreg = (sreg & mask) ^ xor.
    Bitwise {
        sreg: Register,
        dreg: Register,
        len: u32,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Shifts, or a boolean operation of two registers.
    BitwiseOther {
        sreg: Register,
        other: Option<Register>,
        dreg: Register,
        len: u32,
    },
    /// Swaps bytes.
    Byteorder {
        sreg: Register,
        dreg: Register,
        len: u32,
        size: u32,
    },
    /// Compares with a range; the rule ends when it fails.
    Range {
        sreg: Register,
        negated: bool,
        from: Vec<u8>,
        to: Vec<u8>,
    },
    /// Looks into a set; with a `dreg` loads a map's value, or gives its verdict.
    Lookup {
        set: String,
        sreg: Register,
        dreg: Option<Register>,
        negated: bool,
    },
    /// Loads bytes of the packet. Bases: 0 link, 1 network, 2 transport, 3 inner.
    Payload {
        dreg: Register,
        base: u32,
        offset: u32,
        len: u32,
    },
    /// Writes bytes of the packet.
    PayloadSet {
        sreg: Register,
        base: u32,
        offset: u32,
        len: u32,
    },
    /// Loads an NFT_META_ key.
    Meta { dreg: Register, key: u32 },
    /// Writes an NFT_META_ key.
    MetaSet { key: u32 },
    /// Loads an NFT_CT_ key.
    Ct {
        dreg: Register,
        key: u32,
        direction: Option<u8>,
    },
    /// Writes an NFT_CT_ key.
    CtSet { key: u32 },
    /// Loads a fact of the route (NFT_RT_).
    Rt { dreg: Register, key: u32 },
    /// Loads a result of a route lookup.
    Fib { dreg: Register },
    /// Loads an option or extension header (op 0 IPv6, 1 TCP, 2 IPv4).
    Exthdr {
        dreg: Register,
        op: u32,
        present: bool,
    },
    /// Writes or strips an option.
    ExthdrSet { op: u32 },
    /// Refers to a stateful object, by name or through a map.
    Objref {
        kind: Option<u32>,
        name: String,
        map: Option<String>,
    },
    /// An iptables match.
    Match {
        name: String,
        revision: u32,
        info: Vec<u8>,
    },
    /// An iptables target.
    Target {
        name: String,
        revision: u32,
        info: Vec<u8>,
    },
    /// Has packets change a set of the same table.
    Dynset { set: String },
    /// Drops and answers with an error.
    Reject,
    /// Any other expression that has no register to load.
    Named(String),
    /// Could not be decoded.
    Malformed(String),
}

impl Expression {
    /// The kernel's name of the expression, with the name of the match or target.
    pub fn name(&self) -> String {
        let name = match self {
            Expression::Load { .. } | Expression::Verdict(_) => "immediate",
            Expression::Cmp { .. } => "cmp",
            Expression::Bitwise { .. } | Expression::BitwiseOther { .. } => "bitwise",
            Expression::Byteorder { .. } => "byteorder",
            Expression::Range { .. } => "range",
            Expression::Lookup { .. } => "lookup",
            Expression::Payload { .. } => "payload",
            Expression::PayloadSet { .. } => "payload set",
            Expression::Meta { .. } => "meta",
            Expression::MetaSet { .. } => "meta set",
            Expression::Ct { .. } => "ct",
            Expression::CtSet { .. } => "ct set",
            Expression::Rt { .. } => "rt",
            Expression::Fib { .. } => "fib",
            Expression::Exthdr { .. } => "exthdr",
            Expression::ExthdrSet { .. } => "exthdr set",
            Expression::Objref { .. } => "objref",
            Expression::Dynset { .. } => "dynset",
            Expression::Reject => "reject",
            Expression::Match { name, .. } => return format!("xt match {name}"),
            Expression::Target { name, .. } => return format!("xt target {name}"),
            Expression::Named(name) | Expression::Malformed(name) => name,
        };
        name.to_owned()
    }
}
