// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway capture`: writes what the daemon sends, and counts what it is.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use freeway_api::{CaptureQuery, Client, filter};
use freeway_console::{Exit, Stop, plural};
use nix::unistd::geteuid;
use serde::Serialize;

use crate::cli::CaptureArgs;
use crate::live::Signals;

/// `freeway capture --json`.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Captured {
    /// The file.
    pub file: String,
    /// Packets in it.
    pub packets: u64,
    /// Their frames: as they came in, and as they left.
    pub frames: u64,
    /// Packets that are not: over the rate, or there was no room.
    pub lost: u64,
    /// Ports at which nothing could be captured, and why.
    pub kept: Vec<String>,
}

/// Until a signal, enough packets, or the daemon's end.
pub fn run(args: &CaptureArgs) -> Result<(), Stop> {
    let usage = |words| Stop::new(Exit::Usage, words);
    let filter = filter::parse(&args.filter).map_err(|e| usage(format!("filter: {e}")))?;
    if filter.state.is_some() {
        return Err(usage("filter: a packet has no state".into()));
    }
    let stdout = args.write == Path::new("-");
    if stdout && (io::stdout().is_terminal() || args.show.json) {
        return Err(usage(
            "standard output is a terminal, or to be JSON: name a file".into(),
        ));
    }
    let query = CaptureQuery {
        filter,
        ports: args.interfaces.clone(),
        bytes: args.bytes,
    };
    if !geteuid().is_root() {
        let words = "only root may capture packets; become root";
        return Err(Stop::new(Exit::Privilege, words));
    }
    // from here on a signal ends the capture, not the program
    let mut signals = Signals::block()?;
    let mut stream = Client::new(args.show.socket.socket.as_deref())?.capture(&query)?;
    let mut out: Box<dyn Write> = match stdout {
        true => Box::new(io::stdout()),
        false => Box::new(create(&args.write).map_err(|error| failed(&args.write, &error))?),
    };
    let mut blocks = Blocks::new(args.count);
    let mut captured = Captured {
        file: args.write.display().to_string(),
        ..Captured::default()
    };
    while let Some(part) = stream.next_part()? {
        let whole = blocks.take(&part, &mut captured).map_err(Stop::failure)?;
        match out.write_all(&whole).and_then(|()| out.flush()) {
            Err(error) if stdout && error.kind() == io::ErrorKind::BrokenPipe => break,
            result => result.map_err(|error| failed(&args.write, &error))?,
        }
        if blocks.left == Some(0) || signals.came()? {
            break;
        }
    }
    drop(stream);
    if stdout {
        eprint!("{}", words(&captured));
        return Ok(());
    }
    freeway_console::show(args.show.json, &captured, |_| words(&captured))
}

/// A new file that only its owner may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn failed(path: &Path, error: &io::Error) -> Stop {
    Stop::failure(format!("cannot write {}: {error}", path.display()))
}

fn words(captured: &Captured) -> String {
    let mut text = format!(
        "Captured {} ({}), lost {}\n",
        plural(captured.packets, "packet"),
        plural(captured.frames, "frame"),
        captured.lost
    );
    for kept in &captured.kept {
        text.push_str(&format!("  without {kept}\n"));
    }
    text
}

/// The blocks of a file that arrives in parts.
struct Blocks {
    rest: Vec<u8>,
    /// Packets that are still wanted; `None`: all.
    left: Option<u64>,
    /// The packet whose other frame may follow.
    last: Option<u64>,
}

const SECTION: u32 = 0x0a0d_0d0a;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Head and tail of a block.
const AROUND: usize = 12;

impl Blocks {
    fn new(left: Option<u64>) -> Self {
        Self {
            rest: Vec::new(),
            left,
            last: None,
        }
    }

    /// What can be written now.
    fn take(&mut self, part: &[u8], captured: &mut Captured) -> Result<Vec<u8>, String> {
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
                    let lost = option(body.get(12..).unwrap_or_default(), 7);
                    let lost = lost.and_then(|lost| lost.try_into().ok());
                    captured.lost = lost.map_or(captured.lost, u64::from_ne_bytes);
                }
                PACKET => {
                    let taken = word(body, 12).unwrap_or(0) as usize;
                    let options = body.get(20 + taken.next_multiple_of(4)..);
                    let number = option(options.unwrap_or_default(), 5);
                    let number = number
                        .and_then(|n| n.try_into().ok())
                        .map(u64::from_ne_bytes);
                    if number.is_none() || number != self.last {
                        if self.left == Some(0) {
                            return Ok(whole);
                        }
                        self.left = self.left.map(|left| left - 1);
                        self.last = number;
                        captured.packets += 1;
                    }
                    captured.frames += 1;
                }
                _ => {}
            }
            whole.extend(block);
        }
        Ok(whole)
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
        let mut body = vec![0; 20];
        body[12..16].copy_from_slice(&3u32.to_ne_bytes());
        body.extend(b"abc\0");
        body.extend([5u16.to_ne_bytes(), 8u16.to_ne_bytes()].concat());
        body.extend(number.to_ne_bytes());
        block(PACKET, &body)
    }

    #[test]
    fn blocks_are_counted_whatever_the_parts() {
        let all = [packet(7), packet(7), packet(8), packet(9), packet(9)].concat();
        for size in [1, 7, 64, all.len()] {
            let (mut blocks, mut captured) = (Blocks::new(None), Captured::default());
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
        let (mut blocks, mut captured) = (Blocks::new(Some(1)), Captured::default());
        let all = [packet(7), packet(7), packet(8)].concat();
        let whole = blocks.take(&all, &mut captured).unwrap();
        assert_eq!(whole, [packet(7), packet(7)].concat());
        assert_eq!(
            (blocks.left, captured.packets, captured.frames),
            (Some(0), 1, 2)
        );
    }

    #[test]
    fn what_is_no_block_is_an_error() {
        let mut captured = Captured::default();
        assert!(
            Blocks::new(None)
                .take(&block(6, b"")[..8], &mut captured)
                .is_ok()
        );
        assert!(Blocks::new(None).take(b"HTTP/1.1", &mut captured).is_err());
    }
}
