// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set's elements as the data plane has them. No input and output, and no clock: times are ticks that come in.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::{
    FW_SCRUB_PAIR_DPORT, FW_SCRUB_PAIR_IP4, FW_SCRUB_PAIR_PROTO, FW_SCRUB_PAIR_SHIFT,
    FW_SCRUB_PAIR_SPORT,
};
use freeway_datapath::ScrubKey;
use freeway_kernel::model::Family;
use freeway_kernel::nft::Element;
use freeway_kernel::scrub::{DropRule, Part};

/// What the data plane's tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Item {
    /// An address, alone or with what stands beside it.
    Key(ScrubKey),
    /// A prefix of more than one.
    Net(IpAddr, u8),
}

/// What a set's elements are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub ip: Family,
    pub parts: Vec<Part>,
    pub intervals: bool,
}

impl Shape {
    pub fn of(rule: &DropRule) -> Self {
        Self {
            ip: rule.ip,
            parts: rule.parts.clone(),
            intervals: rule.intervals,
        }
    }

    /// Of concatenations; 0: none.
    pub fn kind(&self) -> u32 {
        let bits = self.parts.iter().map(|part| match part {
            Part::Addr => 0,
            Part::Proto => FW_SCRUB_PAIR_PROTO,
            Part::Dport => FW_SCRUB_PAIR_DPORT,
            Part::Sport => FW_SCRUB_PAIR_SPORT,
        });
        match (bits.sum(), self.ip) {
            (0, _) => 0,
            (bits, Family::Ipv4) => bits | FW_SCRUB_PAIR_IP4,
            (bits, Family::Ipv6) => bits,
        }
    }

    fn addr(&self, bytes: &[u8]) -> Option<IpAddr> {
        match self.ip {
            Family::Ipv4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
            Family::Ipv6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        }
    }

    fn addr_len(&self) -> usize {
        match self.ip {
            Family::Ipv4 => 4,
            Family::Ipv6 => 16,
        }
    }

    /// `None`: it is none that the data plane can have.
    fn key(&self, bytes: &[u8]) -> Option<ScrubKey> {
        let (mut at, mut addr) = (0, None);
        let mut pair = self.kind() << FW_SCRUB_PAIR_SHIFT;
        for part in &self.parts {
            let rest = bytes.get(at..)?;
            match part {
                Part::Addr => addr = Some(self.addr(rest)?),
                Part::Proto => pair |= u32::from(*rest.first()?) << 16,
                Part::Dport | Part::Sport => {
                    pair |= u32::from(u16::from_be_bytes(*rest.first_chunk()?));
                }
            }
            at += if *part == Part::Addr {
                self.addr_len()
            } else {
                4
            };
        }
        Some(ScrubKey { addr: addr?, pair })
    }
}

/// The earlier of two ends; 0: none.
pub(super) fn earlier(one: u32, other: u32) -> u32 {
    match (one, other) {
        (0, end) | (end, 0) => end,
        (one, other) if one.wrapping_sub(other).cast_signed() < 0 => one,
        (_, other) => other,
    }
}

/// True if an end has come.
pub(super) fn is_over(until_tick: u32, now_tick: u32) -> bool {
    until_tick != 0 && now_tick.wrapping_sub(until_tick).cast_signed() >= 0
}

/// The elements of a set, and what the data plane has of them.
#[derive(Debug)]
pub(super) struct Mirrored {
    pub identity: (u64, u64),
    pub shape: Shape,
    /// Its bit in the classes' keys.
    pub slot: u32,
    /// The reading that is under way.
    pub load: Option<u64>,
    /// When it is to be read again, for an element's end is too far away.
    pub again_tick: Option<u32>,
    known: bool,
    /// Elements that events told of since that began: what the reading says of them may be older.
    touched: HashSet<(Vec<u8>, bool)>,
    /// Until when; 0: for good.
    items: HashMap<Item, u32>,
    /// Of intervals: where they begin (true) and end; an end comes before a beginning at the same key.
    bounds: BTreeMap<(Vec<u8>, bool), u32>,
    /// Elements that the data plane cannot have.
    pub kept: u64,
}

impl Mirrored {
    pub fn new(identity: (u64, u64), shape: Shape, slot: u32) -> Self {
        Self {
            identity,
            shape,
            slot,
            load: None,
            again_tick: None,
            known: false,
            touched: HashSet::new(),
            items: HashMap::new(),
            bounds: BTreeMap::new(),
            kept: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn until(&self, item: &Item) -> Option<u32> {
        self.items.get(item).copied()
    }

    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.items.keys().copied()
    }

    /// A reading begins. Of a set that is known it finds out when elements end, and events go on to say which there are.
    pub fn begin(&mut self, load: u64) {
        self.load = Some(load);
        self.again_tick = None;
        self.kept = 0;
        self.touched.clear();
    }

    /// It has ended, as one state of the set or not; returns what changed. Single addresses that it missed are the
    /// kernel's. Of intervals beginnings or ends may be missing: then there are none, unless the set was known.
    pub fn end(&mut self, whole: bool) -> Vec<Item> {
        self.load = None;
        self.touched = HashSet::new();
        if !whole && !self.known {
            self.kept += self.bounds.len() as u64;
            self.bounds.clear();
        }
        self.known |= whole;
        self.settle(Vec::new())
    }

    /// One of its readings was of one state of the set.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Forgets everything; returns what the data plane had.
    pub fn clear(&mut self) -> Vec<Item> {
        self.bounds.clear();
        self.kept = 0;
        self.known = false;
        self.touched.clear();
        std::mem::take(&mut self.items).into_keys().collect()
    }

    /// Takes pieces of a reading, with the end of each; returns what changed.
    pub fn read(&mut self, elements: impl Iterator<Item = (Element, u32)>) -> Vec<Item> {
        let mut changed = Vec::new();
        for (element, until) in elements {
            let touched = (element.key.clone(), !element.interval_end);
            if !self.touched.contains(&touched) {
                self.put(&element, until, &mut changed);
            }
        }
        // what intervals stand for is worked out at the end
        changed
    }

    /// Takes what events told: what came, with its end, and what left; returns what changed.
    pub fn heard(
        &mut self,
        removed: impl Iterator<Item = Element>,
        added: impl Iterator<Item = (Element, u32)>,
    ) -> Vec<Item> {
        let mut changed = Vec::new();
        for element in removed {
            self.touch(&element);
            if self.shape.intervals && self.shape.parts.len() == 1 {
                self.bounds.remove(&(element.key, !element.interval_end));
            } else if let Some(key) = self.shape.key(&element.key) {
                let item = Item::Key(key);
                self.items.remove(&item);
                changed.push(item);
            }
        }
        for (element, until) in added {
            self.touch(&element);
            self.put(&element, until, &mut changed);
        }
        self.settle(changed)
    }

    fn touch(&mut self, element: &Element) {
        if self.load.is_some() {
            self.touched
                .insert((element.key.clone(), !element.interval_end));
        }
    }

    fn put(&mut self, element: &Element, until: u32, changed: &mut Vec<Item>) {
        let counts = |name: &String| matches!(name.as_str(), "counter" | "last");
        if element.catch_all || !element.expressions.iter().all(counts) {
            self.kept += 1;
            return;
        }
        if self.shape.intervals && self.shape.parts.len() == 1 {
            let bound = (element.key.clone(), !element.interval_end);
            self.bounds.insert(bound, until);
            return;
        }
        let range = element
            .key_end
            .as_ref()
            .is_some_and(|end| *end != element.key);
        match self.shape.key(&element.key).filter(|_| !range) {
            Some(key) => {
                self.items.insert(Item::Key(key), until);
                changed.push(Item::Key(key));
            }
            None => self.kept += 1,
        }
    }

    /// What intervals stand for now, beside what else changed.
    fn settle(&mut self, mut changed: Vec<Item>) -> Vec<Item> {
        let by_bounds = self.shape.intervals && self.shape.parts.len() == 1;
        if !by_bounds || (self.load.is_some() && !self.known) {
            return changed;
        }
        let items = self.expanded();
        changed.extend(self.items.keys().filter(|item| !items.contains_key(item)));
        let differs = |(item, until): &(&Item, &u32)| self.items.get(item) != Some(until);
        changed.extend(items.iter().filter(differs).map(|(item, _)| *item));
        self.items = items;
        changed
    }

    /// The prefixes of which the intervals are made.
    fn expanded(&self) -> HashMap<Item, u32> {
        let number = |key: &[u8]| {
            let bytes = key.iter().take(self.shape.addr_len());
            bytes.fold(0u128, |sum, byte| sum << 8 | u128::from(*byte))
        };
        let mut items = HashMap::new();
        let mut begun: Option<(u128, u32)> = None;
        for ((key, begins), until) in &self.bounds {
            let at = number(key);
            match (begins, begun) {
                (true, _) => begun = Some((at, *until)),
                (false, Some((from, until))) => {
                    if let Some(last) = at.checked_sub(1).filter(|last| *last >= from) {
                        self.prefixes(from, last, until, &mut items);
                    }
                    begun = None;
                }
                (false, None) => {}
            }
        }
        // one without an end may have it in the next event: if it has none, it is the kernel's
        items
    }

    fn prefixes(&self, from: u128, last: u128, until: u32, items: &mut HashMap<Item, u32>) {
        let bits = self.shape.addr_len() as u32 * 8;
        let mut at = from;
        loop {
            let aligned = if at == 0 { bits } else { at.trailing_zeros() };
            let left = last - at;
            // so many addresses from here on: 2^free - 1 <= left
            let room = match left {
                u128::MAX => 128,
                left => 127 - (left + 1).leading_zeros(),
            };
            let free = aligned.min(room).min(bits);
            let addr: IpAddr = match self.shape.ip {
                Family::Ipv4 => Ipv4Addr::from(at as u32).into(),
                Family::Ipv6 => Ipv6Addr::from(at).into(),
            };
            let item = match free {
                0 => Item::Key(ScrubKey { addr, pair: 0 }),
                _ => Item::Net(addr, (bits - free) as u8),
            };
            items.insert(item, until);
            let size = 1u128.checked_shl(free).unwrap_or(0);
            match at.checked_add(size).filter(|_| size != 0) {
                Some(next) if next <= last => at = next,
                _ => return,
            }
        }
    }

    /// Forgets what has timed out, of which the kernel tells nothing; returns what it was.
    pub fn expire(&mut self, now_tick: u32) -> Vec<Item> {
        if self.shape.intervals {
            self.bounds.retain(|_, until| !is_over(*until, now_tick));
        }
        let over: Vec<Item> = self
            .items
            .iter()
            .filter(|(_, until)| is_over(**until, now_tick))
            .map(|(item, _)| *item)
            .collect();
        for item in &over {
            self.items.remove(item);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ip: Family, intervals: bool) -> Mirrored {
        let shape = Shape {
            ip,
            parts: vec![Part::Addr],
            intervals,
        };
        Mirrored::new((1, 1), shape, 0)
    }

    fn element(addr: &str, interval_end: bool) -> Element {
        let key = match addr.parse().unwrap() {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        };
        Element {
            key,
            interval_end,
            ..Element::default()
        }
    }

    fn words(set: &Mirrored) -> Vec<String> {
        let word = |item: Item| match item {
            Item::Key(key) => key.addr.to_string(),
            Item::Net(addr, len) => format!("{addr}/{len}"),
        };
        let mut words: Vec<String> = set.items().map(word).collect();
        words.sort();
        words
    }

    fn range(from: &str, behind: &str) -> Vec<(Element, u32)> {
        vec![(element(from, false), 0), (element(behind, true), 0)]
    }

    #[test]
    fn intervals_are_prefixes() {
        for (from, behind, wanted) in [
            ("192.0.2.0", "192.0.3.0", vec!["192.0.2.0/24"]),
            ("192.0.2.1", "192.0.2.2", vec!["192.0.2.1"]),
            (
                "192.0.2.1",
                "192.0.2.5",
                vec!["192.0.2.1", "192.0.2.2/31", "192.0.2.4"],
            ),
            ("0.0.0.0", "128.0.0.0", vec!["0.0.0.0/1"]),
            (
                "255.255.255.254",
                "255.255.255.255",
                vec!["255.255.255.254"],
            ),
        ] {
            let mut set = set(Family::Ipv4, true);
            set.heard([].into_iter(), range(from, behind).into_iter());
            assert_eq!(words(&set), wanted);
            let gone = range(from, behind).into_iter().map(|(element, _)| element);
            let changed = set.heard(gone, [].into_iter());
            assert_eq!(changed.len(), wanted.len());
            assert_eq!(set.len(), 0);
        }
        // its end may be on its way
        let mut last = set(Family::Ipv6, true);
        last.heard([].into_iter(), [(element("::", false), 0)].into_iter());
        assert_eq!(last.len(), 0);
    }

    #[test]
    fn adjacent_intervals_and_those_in_pieces() {
        let mut set = set(Family::Ipv4, true);
        set.begin(1);
        // as a reading may bring them: the end of one is in another piece
        set.read([(element("10.0.0.0", false), 0)].into_iter());
        assert_eq!(set.len(), 0);
        let rest = [
            (element("10.1.0.0", true), 0),
            (element("10.1.0.0", false), 7),
            (element("10.2.0.0", true), 0),
        ];
        set.read(rest.into_iter());
        assert_eq!(set.len(), 0);
        assert_eq!(set.end(true).len(), 2);
        assert_eq!(words(&set), ["10.0.0.0/16", "10.1.0.0/16"]);
        let second = Item::Net("10.1.0.0".parse().unwrap(), 16);
        assert_eq!(set.until(&second), Some(7));
        assert_eq!(set.expire(6), []);
        assert_eq!(set.expire(7), [second]);
        assert_eq!(words(&set), ["10.0.0.0/16"]);
    }

    #[test]
    fn a_set_that_is_known_follows_events_while_it_is_read_again() {
        let both = |from, behind, until| {
            [
                (element(from, false), until),
                (element(behind, true), until),
            ]
            .into_iter()
        };
        let mut set = set(Family::Ipv4, true);
        set.begin(1);
        set.read(both("10.0.0.0", "10.1.0.0", 5));
        set.read(both("10.2.0.0", "10.3.0.0", 5));
        assert_eq!(set.end(true).len(), 2);
        set.begin(2);
        let gone = both("10.0.0.0", "10.1.0.0", 5).map(|(element, _)| element);
        assert_eq!(set.heard(gone, [].into_iter()).len(), 1);
        assert_eq!(words(&set), ["10.2.0.0/16"]);
        // the reading began before
        set.read(both("10.0.0.0", "10.1.0.0", 5));
        set.read(both("10.2.0.0", "10.3.0.0", 9));
        let left = Item::Net("10.2.0.0".parse().unwrap(), 16);
        assert_eq!(set.end(true), [left]);
        assert_eq!(set.until(&left), Some(9));
        // disturbed: it is still known
        set.begin(3);
        set.read([(element("10.9.0.0", false), 0)].into_iter());
        assert_eq!(set.end(false), []);
        assert_eq!(words(&set), ["10.2.0.0/16"]);
        // one of which nothing was known
        let mut set = self::set(Family::Ipv4, true);
        set.begin(1);
        set.read(both("10.0.0.0", "10.1.0.0", 5));
        assert_eq!(set.end(false), []);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn events_know_better_than_a_reading_that_began_before() {
        let mut set = set(Family::Ipv4, false);
        set.begin(1);
        let at = |last: u8| element(&format!("192.0.2.{last}"), false);
        set.heard([at(1)].into_iter(), [(at(2), 5)].into_iter());
        let read = [1, 2, 3].map(|last| (at(last), 9));
        set.read(read.into_iter());
        assert_eq!(words(&set), ["192.0.2.2", "192.0.2.3"]);
        let key = |last: u8| {
            Item::Key(ScrubKey {
                addr: [192, 0, 2, last].into(),
                pair: 0,
            })
        };
        assert_eq!(set.until(&key(2)), Some(5));
        assert_eq!(set.until(&key(3)), Some(9));
        assert_eq!(set.clear().len(), 2);
    }

    #[test]
    fn concatenations() {
        let shape = Shape {
            ip: Family::Ipv4,
            parts: vec![Part::Addr, Part::Proto, Part::Dport],
            intervals: true,
        };
        let mut set = Mirrored::new((1, 1), shape.clone(), 0);
        let key = vec![192, 0, 2, 1, 6, 0, 0, 0, 0, 22, 0, 0];
        let exact = Element {
            key: key.clone(),
            key_end: Some(key.clone()),
            ..Element::default()
        };
        let mut end = key.clone();
        end[3] = 9;
        let range = Element {
            key,
            key_end: Some(end),
            ..Element::default()
        };
        set.heard([].into_iter(), [(exact, 0), (range, 0)].into_iter());
        let kind = FW_SCRUB_PAIR_PROTO | FW_SCRUB_PAIR_DPORT | FW_SCRUB_PAIR_IP4;
        assert_eq!(shape.kind(), kind);
        let wanted = ScrubKey {
            addr: [192, 0, 2, 1].into(),
            pair: kind << FW_SCRUB_PAIR_SHIFT | 6 << 16 | 22,
        };
        assert_eq!(set.items().collect::<Vec<_>>(), [Item::Key(wanted)]);
        assert_eq!(set.kept, 1);
    }

    #[test]
    fn ends_wrap() {
        assert_eq!(earlier(0, 5), 5);
        assert_eq!(earlier(u32::MAX, 5), u32::MAX);
        assert!(is_over(u32::MAX, 0) && !is_over(5, u32::MAX) && !is_over(0, 7));
    }
}
