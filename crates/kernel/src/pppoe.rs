// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPPoE sessions of the kernel, which tell of no change: `/proc/net/pppoe` of the calling thread's network namespace.

use std::{fs, io};

use crate::model::Mac;

const FILE: &str = "/proc/thread-self/net/pppoe";

/// One session. Which PPP device it is the kernel does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number.
    pub id: u16,
    /// The other end's address.
    pub remote: Mac,
    /// The device through which it goes.
    pub device: String,
}

/// All sessions; none where the kernel has no PPPoE.
///
/// # Errors
///
/// If the list cannot be read.
pub fn sessions() -> io::Result<Vec<Session>> {
    match fs::read_to_string(FILE) {
        Ok(text) => Ok(text.lines().filter_map(session).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A line as `pppoe_seq_show()` in drivers/net/ppp/pppoe.c writes it: the number's two octets as they lie in memory. The
/// heading is none.
fn session(line: &str) -> Option<Session> {
    let mut words = line.split_whitespace();
    let id_be = u32::from_str_radix(words.next()?, 16).ok()?;
    let octets = words.next()?.split(':');
    let octets: Result<Vec<u8>, _> = octets.map(|o| u8::from_str_radix(o, 16)).collect();
    Some(Session {
        id: u16::from_be(id_be.try_into().ok()?),
        remote: Mac(octets.ok()?.try_into().ok()?),
        device: words.next()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sessions() {
        let heading = "Id       Address              Device";
        let id = u32::from(0x0123_u16.to_be());
        let line = format!("{id:08X} 02:00:5e:10:00:fe     wan0");
        let expected = Session {
            id: 0x0123,
            remote: Mac([2, 0, 0x5e, 0x10, 0, 0xfe]),
            device: "wan0".into(),
        };
        assert_eq!(session(heading), None);
        assert_eq!(session(&line), Some(expected));
        for bad in [
            "",
            "0000",
            "00010000 02:00:5e:10:00:fe wan0",
            "00000001 02:00:5e wan0",
        ] {
            assert_eq!(session(bad), None, "{bad}");
        }
    }
}
