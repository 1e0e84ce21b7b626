// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a capture file, pcap or pcapng, one after the other.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use freeway_console::{Exit, Stop};
use pcap_parser::pcapng::Block;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

/// Read at a time,
const BUFFER_BYTES: usize = 1 << 16;
/// and for a block that needs more. Larger ones are no captures of frames.
const BLOCK_BYTES_MAX: usize = 1 << 22;
/// Link types have 28 bits; those above say whether frames have their FCS.
const LINK_TYPE_MASK: i32 = 0x0fff_ffff;
/// Of pcapng, unless an interface says otherwise: microseconds.
const TSRESOL: u8 = 6;

/// A file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As tcpdump writes it.
    Pcap,
    /// As Wireshark writes it.
    Pcapng,
}

impl Format {
    /// As files are called.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        }
    }
}

/// A frame as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// Nanoseconds since the epoch of the file's clock.
    pub at_ns: u64,
    /// From the MAC addresses on.
    pub bytes: &'a [u8],
    /// False if the capture has only its beginning.
    pub whole: bool,
}

/// Gives all frames of a file to `each`, in order, until that breaks.
pub fn read(
    file: &Path,
    each: impl FnMut(Recorded<'_>) -> ControlFlow<()>,
) -> Result<Format, Stop> {
    let unfit = |why: String| Stop::new(Exit::BAD_FILE, format!("{}: {why}", file.display()));
    let source = File::open(file).map_err(|error| unfit(format!("cannot open it: {error}")))?;
    parse(source, each).map_err(unfit)
}

/// What to do next.
enum Step {
    Consume(usize, ControlFlow<()>),
    Refill,
    Grow,
    End,
}

fn parse(
    source: impl Read + Send,
    mut each: impl FnMut(Recorded<'_>) -> ControlFlow<()>,
) -> Result<Format, String> {
    let mut reader = create_reader(BUFFER_BYTES, source).map_err(|error| why(&error, 0))?;
    let mut state = State::default();
    let mut capacity = BUFFER_BYTES;
    loop {
        let step = match reader.next() {
            Ok((length, block)) => Step::Consume(length, state.block(block, &mut each)?),
            Err(PcapError::Eof) => Step::End,
            Err(PcapError::Incomplete(_)) => Step::Refill,
            Err(PcapError::BufferTooSmall) => Step::Grow,
            Err(error) => return Err(why(&error, state.frames)),
        };
        match step {
            Step::Consume(length, flow) => {
                reader.consume(length);
                if flow.is_break() {
                    return Ok(state.format);
                }
                continue;
            }
            Step::End => return Ok(state.format),
            Step::Refill => {}
            Step::Grow => {
                capacity *= 2;
                if capacity > BLOCK_BYTES_MAX || !reader.grow(capacity) {
                    return Err(damaged(state.frames));
                }
            }
        }
        let before = reader.data().len();
        reader.refill().map_err(|error| why(&error, state.frames))?;
        let stuck = reader.data().len() == before && !reader.reader_exhausted();
        // it asks for more, and there is no room for it
        if stuck && capacity >= BLOCK_BYTES_MAX {
            return Err(damaged(state.frames));
        }
        if stuck {
            capacity *= 2;
            reader.grow(capacity);
        }
    }
}

fn damaged(frames: u64) -> String {
    format!("it is damaged after {frames} frames; capture again, or cut it with editcap")
}

fn why<I>(error: &PcapError<I>, frames: u64) -> String {
    match error {
        PcapError::Eof => "it is empty".into(),
        PcapError::ReadError => "cannot read it".into(),
        PcapError::Incomplete(_) | PcapError::UnexpectedEof => {
            format!("it is cut short after {frames} frames; repair it with editcap")
        }
        PcapError::HeaderNotRecognized => {
            "it is neither pcap nor pcapng; if it is compressed, unpack it first".into()
        }
        _ => damaged(frames),
    }
}

/// What is known of the file so far.
struct State {
    format: Format,
    nanoseconds: bool,
    interfaces: Vec<Clock>,
    frames: u64,
    last_ns: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            format: Format::Pcap,
            nanoseconds: false,
            interfaces: Vec::new(),
            frames: 0,
            last_ns: 0,
        }
    }
}

impl State {
    fn block(
        &mut self,
        block: PcapBlockOwned<'_>,
        each: &mut impl FnMut(Recorded<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, String> {
        let mut frame = |state: &mut Self, at_ns: u64, bytes: &[u8], length: u32| {
            state.frames += 1;
            state.last_ns = at_ns;
            each(Recorded {
                at_ns,
                bytes,
                whole: bytes.len() as u64 >= u64::from(length),
            })
        };
        Ok(match block {
            PcapBlockOwned::LegacyHeader(header) => {
                ethernet(header.network)?;
                self.nanoseconds = header.is_nanosecond_precision();
                ControlFlow::Continue(())
            }
            PcapBlockOwned::Legacy(of) => {
                let fraction_ns = if self.nanoseconds { 1 } else { 1000 };
                let at_ns =
                    u64::from(of.ts_sec) * 1_000_000_000 + u64::from(of.ts_usec) * fraction_ns;
                frame(self, at_ns, of.data, of.origlen)
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.format = Format::Pcapng;
                self.interfaces.clear();
                ControlFlow::Continue(())
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(of)) => {
                ethernet(of.linktype)?;
                self.interfaces.push(Clock::of(of.if_tsresol));
                ControlFlow::Continue(())
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(of)) => {
                let clock = self.interfaces.get(of.if_id as usize);
                let clock = clock.ok_or_else(|| damaged(self.frames))?;
                let at_ns = clock.ns(u64::from(of.ts_high) << 32 | u64::from(of.ts_low));
                frame(self, at_ns, of.packet_data(), of.origlen)
            }
            PcapBlockOwned::NG(Block::SimplePacket(of)) => {
                // it has no time, and is of the first interface
                if self.interfaces.is_empty() {
                    return Err(damaged(self.frames));
                }
                frame(self, self.last_ns, of.packet_data(), of.origlen)
            }
            PcapBlockOwned::NG(_) => ControlFlow::Continue(()),
        })
    }
}

fn ethernet(link_type: Linktype) -> Result<(), String> {
    let number = link_type.0 & LINK_TYPE_MASK;
    if number == Linktype::ETHERNET.0 {
        return Ok(());
    }
    Err(format!(
        "its frames have link type {number} and not Ethernet (1); capture at an Ethernet port, not with `-i any`"
    ))
}

/// What an interface of a pcapng file counts time in: 10 to the power of -n, or 2 to that of -n with the highest bit set.
#[derive(Clone, Copy, Debug)]
struct Clock {
    per_s: u128,
}

impl Clock {
    fn of(tsresol: u8) -> Self {
        let power = u32::from(tsresol & 0x7f);
        let base: u128 = if tsresol & 0x80 == 0 { 10 } else { 2 };
        let per_s = base.checked_pow(power);
        Self {
            per_s: per_s.unwrap_or(10u128.pow(TSRESOL.into())),
        }
    }

    fn ns(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000_000 / self.per_s;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A file of frames with their times, microseconds.
    pub fn pcap(frames: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4u32.to_le_bytes());
        file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(65_535u32.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for (at_us, bytes) in frames {
            let length = bytes.len() as u32;
            for word in [at_us / 1_000_000, at_us % 1_000_000, length, length] {
                file.extend(word.to_le_bytes());
            }
            file.extend(*bytes);
        }
        file
    }

    fn ng_block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).next_multiple_of(4) + 12;
        let mut block = [kind, length].map(u32::to_le_bytes).concat();
        block.extend(body);
        block.resize(length as usize - 4, 0);
        block.extend(length.to_le_bytes());
        block
    }

    /// The same as pcapng, with times of nanoseconds.
    fn pcapng(frames: &[(u32, &[u8])], link_type: u16) -> Vec<u8> {
        let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let mut file = ng_block(0x0a0d_0d0a, &section);
        let interface = [
            &u32::from(link_type).to_le_bytes()[..],
            &[0; 4],
            // if_tsresol: nanoseconds; end of options
            &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        file.extend(ng_block(1, &interface));
        for (at_us, bytes) in frames {
            let at_ns = u64::from(*at_us) * 1000;
            let length = bytes.len() as u32;
            let head = [0, (at_ns >> 32) as u32, at_ns as u32, length, length];
            let body = [&head.map(u32::to_le_bytes).concat()[..], bytes].concat();
            file.extend(ng_block(6, &body));
        }
        file
    }

    /// Time, bytes, and whether it is whole.
    type Read = (u64, Vec<u8>, bool);

    fn all(file: &[u8]) -> Result<(Format, Vec<Read>), String> {
        let mut frames = Vec::new();
        let format = parse(file, |frame| {
            frames.push((frame.at_ns, frame.bytes.to_vec(), frame.whole));
            ControlFlow::Continue(())
        })?;
        Ok((format, frames))
    }

    const FRAMES: [(u32, &[u8]); 3] = [
        (0, &[1; 60]),
        (1_500_000, &[2; 61]),
        (1_500_001, &[3; 1514]),
    ];

    #[test]
    fn both_formats_are_read() {
        let expected = FRAMES.map(|(at_us, bytes)| (u64::from(at_us) * 1000, bytes.to_vec(), true));
        assert_eq!(all(&pcap(&FRAMES)), Ok((Format::Pcap, expected.to_vec())));
        let file = pcapng(&FRAMES, 1);
        assert_eq!(all(&file), Ok((Format::Pcapng, expected.to_vec())));
        assert_eq!(all(&pcap(&[])), Ok((Format::Pcap, vec![])));
    }

    #[test]
    fn snapped_frames_are_told_apart() {
        let mut file = pcap(&[(0, &[7; 60])]);
        file[24 + 12..24 + 16].copy_from_slice(&1500u32.to_le_bytes());
        let (_, frames) = all(&file).unwrap();
        assert!(!frames[0].2);
    }

    #[test]
    fn files_longer_than_the_buffer() {
        let frames: Vec<(u32, &[u8])> = (0..1000).map(|at| (at, &[9u8; 1400][..])).collect();
        for file in [pcap(&frames), pcapng(&frames, 1)] {
            assert_eq!(all(&file).unwrap().1.len(), 1000);
        }
        // a block that the buffer does not hold at first
        let long = vec![5; 2 * BUFFER_BYTES];
        for file in [pcap(&[(0, &long)]), pcapng(&[(0, &long)], 1)] {
            assert_eq!(all(&file).unwrap().1[0].1.len(), long.len());
        }
    }

    #[test]
    fn reading_ends_when_told() {
        let mut count = 0;
        let read = parse(&pcap(&FRAMES)[..], |_| {
            count += 1;
            ControlFlow::Break(())
        });
        assert_eq!((read, count), (Ok(Format::Pcap), 1));
    }

    #[test]
    fn other_files_are_refused() {
        let why = |file: &[u8]| all(file).unwrap_err();
        assert!(why(b"").contains("empty"));
        assert!(why(b"#!/bin/sh\necho this is no capture").contains("neither pcap nor pcapng"));
        assert!(why(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).contains("unpack it"));
        assert!(why(&pcapng(&FRAMES, 113)).contains("link type 113"));
        let mut raw = pcap(&FRAMES);
        raw[20] = 101;
        assert!(why(&raw).contains("link type 101"));
        let mut huge = pcap(&FRAMES);
        huge[24 + 8..24 + 12].fill(0xff);
        assert!(why(&huge).contains("cut short after 0 frames"));
        // not even a file that goes on holds such a frame
        huge.resize(2 * BLOCK_BYTES_MAX, 0);
        assert!(why(&huge).contains("damaged after 0 frames"));
    }

    /// Whatever is missing or different: an error or frames, in bounded time.
    #[test]
    fn damage_does_no_harm() {
        let frames: [(u32, &[u8]); 2] = [(0, &[1; 30]), (7, &[2; 17])];
        for file in [pcap(&frames), pcapng(&frames, 1)] {
            let whole = all(&file).unwrap().1.len();
            for length in 0..file.len() {
                match all(&file[..length]) {
                    // it ends between two frames
                    Ok((_, frames)) => assert!(frames.len() < whole),
                    Err(why) => assert!(!why.contains('\n'), "{why}"),
                }
            }
            for at in 0..file.len() {
                for flip in [0x01, 0xff] {
                    let mut other = file.clone();
                    other[at] ^= flip;
                    let _ = all(&other);
                }
            }
        }
    }

    #[test]
    fn clocks_of_interfaces() {
        assert_eq!(Clock::of(6).ns(1_500_000), 1_500_000_000);
        assert_eq!(Clock::of(9).ns(7), 7);
        assert_eq!(Clock::of(0x80 | 10).ns(512), 500_000_000);
        // what is no resolution is the usual one
        assert_eq!(Clock::of(0x7f).ns(1), 1000);
        assert_eq!(Clock::of(0).ns(u64::MAX), u64::MAX);
    }
}
