// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compressed tar archive, written as it grows: ustar (POSIX.1-1988) is one block of 512 octets ahead of each file.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

const BLOCK: usize = 512;
/// Longest name that its field takes.
const NAME_MAX: usize = 100;

/// An archive to which files are added.
pub struct Archive<W: Write> {
    out: GzEncoder<W>,
    mtime_s: u64,
}

impl<W: Write> Archive<W> {
    /// An empty one, all of whose files are of that time.
    pub fn new(out: W, mtime_s: u64) -> Self {
        let out = GzEncoder::new(out, Compression::default());
        Self { out, mtime_s }
    }

    /// Adds a file that only its owner may read.
    pub fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.out
            .write_all(&header(name, content.len(), self.mtime_s)?)?;
        self.out.write_all(content)?;
        let padding = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..padding])
    }

    /// Ends it.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}

fn header(name: &str, length: usize, mtime_s: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_MAX {
        return Err(io::Error::other(format!("the name {name} is too long")));
    }
    let mut block = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, &format!("{mtime_s:011o}\0"));
    // of the sum its own field counts as blanks
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = block.iter().map(|octet| u32::from(*octet)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        let mut archive = Archive::new(std::fs::File::create(&path).unwrap(), 1_000_000_000);
        let large = vec![b'x'; 100_000];
        archive.add("a/empty", b"").unwrap();
        archive.add("a/one", b"1\n").unwrap();
        archive.add("a/large", &large).unwrap();
        assert!(archive.add(&"x".repeat(101), b"").is_err());
        archive.finish().unwrap();
        let status = Command::new("tar")
            .arg("-xzf")
            .arg(&path)
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success());
        let read = |name| std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(read("a/empty"), b"");
        assert_eq!(read("a/one"), b"1\n");
        assert!(read("a/large") == large);
    }
}
