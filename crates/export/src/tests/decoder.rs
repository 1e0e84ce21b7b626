// SPDX-License-Identifier: MIT OR Apache-2.0
//! A collector: templates and data sets by RFC 7011 (IPFIX) and RFC 3954 (NetFlow v9).

use std::collections::{BTreeMap, HashMap};

/// Values by enterprise and number.
pub type Decoded = BTreeMap<(u32, u16), Vec<u8>>;

#[derive(Debug, Default)]
pub struct Collector {
    /// By number: enterprise, element, length.
    templates: HashMap<u16, Vec<(u32, u16, usize)>>,
    pub records: Vec<Decoded>,
    /// What the next header is to say, by version.
    sequence: Option<u32>,
    pub messages: usize,
    /// The last header's.
    pub domain: u32,
    pub seconds: u32,
    pub uptime_ms: u32,
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(length);
    *bytes = rest;
    head
}

fn u16_of(bytes: &mut &[u8]) -> u16 {
    number(take(bytes, 2)) as u16
}

fn u32_of(bytes: &mut &[u8]) -> u32 {
    number(take(bytes, 4)) as u32
}

impl Collector {
    pub fn read(&mut self, message: &[u8]) {
        let mut rest = message;
        let before = self.records.len();
        let version = u16_of(&mut rest);
        let said = u16_of(&mut rest);
        if version == 9 {
            self.uptime_ms = u32_of(&mut rest);
        }
        self.seconds = u32_of(&mut rest);
        let sequence = u32_of(&mut rest);
        self.domain = u32_of(&mut rest);
        let mut told = 0;
        while !rest.is_empty() {
            let number = u16_of(&mut rest);
            let length = usize::from(u16_of(&mut rest));
            assert_eq!(length % 4, 0, "sets are padded");
            let mut set = take(&mut rest, length - 4);
            match (version, number) {
                (10, 2) | (9, 0) => told += self.templates(version, &mut set),
                (_, 256..) => self.data(number, &mut set),
                other => panic!("{other:?}"),
            }
        }
        let data = self.records.len() - before;
        assert_eq!(sequence, self.sequence.unwrap_or(sequence));
        let step = match version {
            10 => {
                assert_eq!(usize::from(said), message.len());
                data as u32
            }
            9 => {
                assert_eq!(usize::from(said), told + data);
                1
            }
            other => panic!("{other}"),
        };
        self.sequence = Some(sequence.wrapping_add(step));
        self.messages += 1;
    }

    fn templates(&mut self, version: u16, set: &mut &[u8]) -> usize {
        let mut count = 0;
        while set.len() >= 4 {
            let number = u16_of(set);
            let fields = u16_of(set);
            let field = |_| {
                let (element, length) = (u16_of(set), u16_of(set));
                let own = version == 10 && element & 0x8000 != 0;
                let enterprise = if own { u32_of(set) } else { 0 };
                let element = if own { element & 0x7fff } else { element };
                (enterprise, element, usize::from(length))
            };
            let fields = (0..fields).map(field).collect();
            self.templates.insert(number, fields);
            count += 1;
        }
        count
    }

    fn data(&mut self, number: u16, set: &mut &[u8]) {
        let fields = &self.templates[&number];
        let length: usize = fields.iter().map(|(.., length)| length).sum();
        while set.len() >= length {
            let value = |(enterprise, element, length): &(u32, u16, usize)| {
                ((*enterprise, *element), take(set, *length).to_vec())
            };
            self.records.push(fields.iter().map(value).collect());
        }
        assert!(set.len() < 4 && set.iter().all(|byte| *byte == 0));
    }
}
