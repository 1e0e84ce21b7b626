// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a file that arrives in parts: which of them are written, and how many packets they are.

use std::collections::BTreeMap;

use super::captured::Captured;
use super::expression::Expression;

/// What has arrived and is not written yet.
pub struct Blocks {
    rest: Vec<u8>,
    /// Packets that are still wanted; `None`: all.
    left: Option<u64>,
    /// Statistics since none is. They follow what there was.
    reports: u32,
    /// Which packets are; `None`: all.
    expression: Option<Expression>,
    /// Of each CPU the packet whose other frame may follow.
    open: BTreeMap<u32, Packet>,
}

/// A packet, of which one frame at least has arrived.
#[derive(Default)]
struct Packet {
    number: Option<u64>,
    wanted: bool,
    /// Blocks of so many frames, until it is known whether they are.
    held: Vec<u8>,
    frames: u64,
}

const SECTION: u32 = 0x0a0d_0d0a;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Head and tail of a block.
const AROUND: usize = 12;

impl Blocks {
    /// For so many packets, of those that the expression takes.
    pub fn new(left: Option<u64>, expression: Option<Expression>) -> Self {
        Self {
            rest: Vec::new(),
            left,
            reports: 0,
            expression,
            open: BTreeMap::new(),
        }
    }

    /// All that was asked for has arrived, with both frames of the last packet: a report may lie between these.
    pub fn are_enough(&self) -> bool {
        self.reports > 1
    }

    /// What can be written now.
    pub fn take(&mut self, part: &[u8], captured: &mut Captured) -> Result<Vec<u8>, String> {
        self.rest.extend(part);
        let mut whole = Vec::new();
        while let (Some(kind), Some(length)) = (word(&self.rest, 0), word(&self.rest, 4)) {
            let length = length as usize;
            if length < AROUND || !length.is_multiple_of(4) {
                return Err("the daemon's answer is no pcapng: restart it".into());
            }
            if self.rest.len() < length {
                break;
            }
            let block: Vec<u8> = self.rest.drain(..length).collect();
            let body = &block[8..length - 4];
            match kind {
                SECTION => {
                    let comment = option(body.get(16..).unwrap_or_default(), 1);
                    let comment = String::from_utf8_lossy(comment.unwrap_or_default());
                    captured.kept = comment.lines().map(str::to_owned).collect();
                }
                STATISTICS => {
                    self.reports += u32::from(self.left == Some(0));
                    let lost = option(body.get(12..).unwrap_or_default(), 7);
                    let lost = lost.and_then(|lost| lost.try_into().ok());
                    captured.lost = lost.map_or(captured.lost, u64::from_ne_bytes);
                }
                PACKET => {
                    self.packet(&block, body, captured, &mut whole);
                    continue;
                }
                _ => {}
            }
            whole.extend(block);
        }
        Ok(whole)
    }

    /// A frame. Those of a packet follow one another, as far as its CPU goes.
    fn packet(&mut self, block: &[u8], body: &[u8], captured: &mut Captured, whole: &mut Vec<u8>) {
        let taken = word(body, 12).unwrap_or(0) as usize;
        let options = body.get(20 + taken.next_multiple_of(4)..);
        let options = options.unwrap_or_default();
        let number = option(options, 5).and_then(|number| number.try_into().ok());
        let number = number.map(u64::from_ne_bytes);
        let cpu = number.map_or(u32::MAX, |number| (number >> 32) as u32);
        let open = self.open.entry(cpu).or_default();
        // without a number it is alone
        if number.is_none() || open.number != number {
            *open = Packet {
                number,
                ..Packet::default()
            };
        }
        open.held.extend(block);
        open.frames += 1;
        let frame = body.get(20..20 + taken).unwrap_or_default();
        let length = word(body, 16).unwrap_or(0);
        let flags = option(options, 2).and_then(|flags| word(flags, 0));
        let leaves = flags.unwrap_or(0) & 3 == 2;
        let takes = |expression: &Expression| expression.takes(frame, length, leaves);
        if !open.wanted && self.expression.as_ref().is_none_or(takes) && self.left != Some(0) {
            open.wanted = true;
            self.left = self.left.map(|left| left - 1);
            captured.packets += 1;
        }
        if open.wanted {
            captured.frames += std::mem::take(&mut open.frames);
            whole.append(&mut open.held);
        }
    }
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    let word = octets.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

/// The value of an option.
fn option(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let half = |at: usize| {
            let half = options.get(at..at + 2)?.try_into().ok()?;
            Some(u16::from_ne_bytes(half))
        };
        let (code, length) = (half(0)?, usize::from(half(2)?));
        let value = options.get(4..4 + length)?;
        if code == wanted {
            return Some(value);
        }
        options = options.get(4 + length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 12).to_ne_bytes();
        [&kind.to_ne_bytes()[..], &length, body, &length].concat()
    }

    fn packet(number: u64) -> Vec<u8> {
        packet_of(number, *b"abc")
    }

    fn packet_of(number: u64, octets: [u8; 3]) -> Vec<u8> {
        let mut body = vec![0; 20];
        body[12..16].copy_from_slice(&3u32.to_ne_bytes());
        body[16..20].copy_from_slice(&3u32.to_ne_bytes());
        body.extend(octets);
        body.push(0);
        body.extend([5u16.to_ne_bytes(), 8u16.to_ne_bytes()].concat());
        body.extend(number.to_ne_bytes());
        block(PACKET, &body)
    }

    #[test]
    fn blocks_are_counted_whatever_the_parts() {
        let all = [packet(7), packet(7), packet(8), packet(9), packet(9)].concat();
        for size in [1, 7, 64, all.len()] {
            let (mut blocks, mut captured) = (Blocks::new(None, None), Captured::default());
            let parts = all.chunks(size);
            let whole: Vec<u8> = parts
                .flat_map(|p| blocks.take(p, &mut captured).unwrap())
                .collect();
            assert!(whole == all);
            assert_eq!((captured.packets, captured.frames), (3, 5));
        }
    }

    #[test]
    fn after_enough_packets_the_next_is_not_written() {
        let (mut blocks, mut captured) = (Blocks::new(Some(1), None), Captured::default());
        let report = || block(STATISTICS, &[0; 12]);
        // what came in and what left may lie in two parts, with a report between them
        let parts = [
            [report(), packet(7), report()].concat(),
            [packet(7), packet(8), report()].concat(),
        ];
        let mut whole = Vec::new();
        for part in parts {
            assert!(!blocks.are_enough());
            whole.extend(blocks.take(&part, &mut captured).unwrap());
        }
        let reports = [report(), packet(7), report(), packet(7), report()];
        assert_eq!(whole, reports.concat());
        assert_eq!(
            (blocks.are_enough(), captured.packets, captured.frames),
            (true, 1, 2)
        );
    }

    #[test]
    fn packets_of_cpus_mix_and_are_counted_once() {
        let other = 1 << 32;
        let all = [
            packet(7),
            packet(other),
            packet(7),
            packet(other),
            packet(8),
        ]
        .concat();
        let (mut blocks, mut captured) = (Blocks::new(Some(2), None), Captured::default());
        let whole = blocks.take(&all, &mut captured).unwrap();
        assert_eq!(whole, all[..all.len() / 5 * 4]);
        assert_eq!((captured.packets, captured.frames), (2, 4));
    }

    #[test]
    fn a_packet_is_wanted_whole_by_either_of_its_frames() {
        // the first octet is an x
        let expression = Expression::of("4\n48 0 0 0\n21 0 1 120\n6 0 0 1\n6 0 0 0\n");
        let (mut blocks, mut captured) = (Blocks::new(None, expression), Captured::default());
        let [plain, wanted] = [*b"abc", *b"xyz"];
        let frames = |number, octets: [[u8; 3]; 2]| octets.map(|of| packet_of(number, of)).concat();
        let all = [
            frames(1, [plain, plain]),
            frames(2, [plain, wanted]),
            frames(3, [wanted, plain]),
            frames(4, [plain, plain]),
        ];
        let whole = blocks.take(&all.concat(), &mut captured).unwrap();
        assert_eq!(whole, all[1..3].concat());
        assert_eq!((captured.packets, captured.frames), (2, 4));
    }

    #[test]
    fn what_is_no_block_is_an_error() {
        let mut captured = Captured::default();
        assert!(
            Blocks::new(None, None)
                .take(&block(6, b"")[..8], &mut captured)
                .is_ok()
        );
        assert!(
            Blocks::new(None, None)
                .take(b"HTTP/1.1", &mut captured)
                .is_err()
        );
    }
}
