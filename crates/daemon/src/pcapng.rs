// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of pcapng (draft-ietf-opsawg-pcapng), in this machine's byte order.

/// Makes blocks.
pub struct Block(Vec<u8>);

/// As a frame passes its interface.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// It came in.
    In = 1,
    /// It left.
    Out = 2,
}

const ETHERNET: u16 = 1;
/// Options of any block.
const END: u16 = 0;
const COMMENT: u16 = 1;

impl Block {
    /// Begins a file. What is not captured is its comment.
    pub fn section(comment: &str) -> Vec<u8> {
        let mut block = Self::begin(0x0a0d_0d0a);
        block.put(&0x1a2b_3c4du32.to_ne_bytes());
        block.halves(1, 0);
        // of unknown length
        block.put(&u64::MAX.to_ne_bytes());
        block.comment(comment);
        let program = concat!("freeway ", env!("CARGO_PKG_VERSION"));
        block.option(4, program.as_bytes());
        block.end()
    }

    /// Describes the next interface.
    pub fn interface(name: &str, most: u32) -> Vec<u8> {
        let mut block = Self::begin(1);
        block.halves(ETHERNET, 0);
        block.put(&most.to_ne_bytes());
        block.option(2, name.as_bytes());
        // times are nanoseconds
        block.option(9, &[9]);
        block.end()
    }

    /// A frame at an interface. `packet`: the same for what is the same packet. An empty comment is none.
    pub fn packet(
        interface: u32,
        time_ns: u64,
        way: Way,
        packet: u64,
        length: u32,
        octets: &[u8],
        comment: &str,
    ) -> Vec<u8> {
        let mut block = Self::begin(6);
        block.put(&interface.to_ne_bytes());
        block.time(time_ns);
        block.put(&(octets.len() as u32).to_ne_bytes());
        block.put(&length.to_ne_bytes());
        block.put(octets);
        block.comment(comment);
        block.option(2, &(way as u32).to_ne_bytes());
        block.option(5, &packet.to_ne_bytes());
        block.end()
    }

    /// What was told of, and what was not, since the capture began.
    pub fn statistics(time_ns: u64, told: u64, lost: u64) -> Vec<u8> {
        let mut block = Self::begin(5);
        block.put(&0u32.to_ne_bytes());
        block.time(time_ns);
        block.option(7, &lost.to_ne_bytes());
        block.option(8, &told.to_ne_bytes());
        block.end()
    }

    fn begin(kind: u32) -> Self {
        let mut block = Self(Vec::new());
        block.put(&kind.to_ne_bytes());
        // its length, when that is known
        block.put(&[0; 4]);
        block
    }

    fn halves(&mut self, first: u16, second: u16) {
        self.put(&[first.to_ne_bytes(), second.to_ne_bytes()].concat());
    }

    /// The upper half first, whatever the byte order.
    fn time(&mut self, ns: u64) {
        self.put(&((ns >> 32) as u32).to_ne_bytes());
        self.put(&(ns as u32).to_ne_bytes());
    }

    fn comment(&mut self, words: &str) {
        if !words.is_empty() {
            self.option(COMMENT, words.as_bytes());
        }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.halves(code, value.len() as u16);
        self.put(value);
    }

    /// Padded to words.
    fn put(&mut self, octets: &[u8]) {
        self.0.extend(octets);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.option(END, &[]);
        let length = (self.0.len() as u32 + 4).to_ne_bytes();
        self.0[4..8].copy_from_slice(&length);
        self.0.extend(length);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_words_that_begin_and_end_with_their_length() {
        for block in [
            Block::section(""),
            Block::section("br0: a bridge"),
            Block::interface("lan0", 256),
            Block::packet(1, 2, Way::Out, 3, 100, b"12345", "a flow"),
            Block::packet(1, 2, Way::In, 3, 100, b"12345", ""),
            Block::statistics(1, 2, 3),
        ] {
            assert_eq!(block.len() % 4, 0);
            let length = (block.len() as u32).to_ne_bytes();
            assert_eq!(block[4..8], length);
            assert_eq!(block[block.len() - 4..], length);
        }
    }
}
