// SPDX-License-Identifier: MIT OR Apache-2.0
//! What nobody may guess.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};

/// So many random octets as hexadecimal digits.
pub fn random(octets: usize) -> io::Result<String> {
    let mut bytes = vec![0; octets];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether both are the same. How long it takes says nothing of what differs, but whether lengths do.
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    let differs = one
        .iter()
        .zip(other)
        .fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found() {
        assert!(equal(b"", b"") && equal(b"abc", b"abc"));
        for (one, other) in [("abc", "abd"), ("abc", "ab"), ("", "a"), ("xbc", "abc")] {
            assert!(!equal(one.as_bytes(), other.as_bytes()), "{one} {other}");
        }
    }

    #[test]
    fn each_is_another() {
        let (one, other) = (random(16).unwrap(), random(16).unwrap());
        assert!(one.len() == 32 && one != other);
    }
}
