// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of blocks, each of which is checked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

/// The block number `number` of a stream; each differs from all others.
pub fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; BLOCK];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i as u64 * 31 + (i as u64 >> 8) * 7) as u8;
    }
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Bytes of a block.
pub const BLOCK: usize = 1 << 18;

/// Sends so many blocks.
pub fn send_blocks(stream: &mut TcpStream, blocks: u64) -> std::io::Result<()> {
    let mut bytes = block(0);
    for number in 0..blocks {
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Receives so many blocks, each of which has to be right.
#[track_caller]
pub fn receive_blocks(stream: &mut TcpStream, blocks: u64) {
    let mut want = block(0);
    let mut bytes = vec![0u8; BLOCK];
    for number in 0..blocks {
        want[..8].copy_from_slice(&number.to_be_bytes());
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes == want, "block {number} differs");
    }
}

/// Sends blocks both ways at once and checks them.
pub fn exchange_blocks(ends: &mut (TcpStream, TcpStream), blocks: u64) {
    let mut senders = (ends.0.try_clone().unwrap(), ends.1.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| send_blocks(&mut senders.0, blocks).unwrap());
        scope.spawn(|| send_blocks(&mut senders.1, blocks).unwrap());
        scope.spawn(|| receive_blocks(&mut ends.0, blocks));
        receive_blocks(&mut ends.1, blocks);
    });
}

/// True if the other end has closed and everything was read.
#[track_caller]
pub fn at_end(stream: &mut TcpStream) {
    let mut rest = [0u8; 1];
    assert_eq!(
        stream.read(&mut rest).unwrap(),
        0,
        "the FIN of the other end"
    );
}
