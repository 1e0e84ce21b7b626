// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows in a file of memory, whole or not at all.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use freeway_abi::{DIGEST, Pod, fw_candidate};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// More are learned anew: they would keep everything in the kernel for long.
pub const FLOWS_MAX: usize = 1 << 16;
const MAGIC: &[u8; 8] = b"fw-flows";
const HEADER: usize = 24;
const EACH: usize = size_of::<fw_candidate>();

/// Writes them.
pub fn write(flows: &[fw_candidate]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("freeway-flows", MFdFlags::MFD_CLOEXEC)?);
    let mut bytes = Vec::with_capacity(HEADER + flows.len() * EACH);
    bytes.extend(MAGIC);
    bytes.extend(DIGEST.to_ne_bytes());
    bytes.extend((flows.len() as u64).to_ne_bytes());
    for flow in flows {
        bytes.extend(flow.as_bytes());
    }
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads them; `None`: it is not a whole list of this binary interface.
pub fn read(file: OwnedFd) -> io::Result<Option<Vec<fw_candidate>>> {
    let mut file = File::from(file);
    file.rewind()?;
    let mut bytes = Vec::new();
    let most = (HEADER + FLOWS_MAX * EACH) as u64;
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Option<Vec<fw_candidate>> {
    let (header, flows) = bytes.split_at_checked(HEADER)?;
    let number = |at: usize| Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?));
    let count = usize::try_from(number(16)?).ok()?;
    let whole = count <= FLOWS_MAX && flows.len() == count * EACH;
    if !header.starts_with(MAGIC) || number(8)? != DIGEST || !whole {
        return None;
    }
    flows.chunks_exact(EACH).map(Pod::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_or_not_at_all() {
        let flow = |port_out| fw_candidate {
            port_out,
            ..Default::default()
        };
        let flows = read(write(&[flow(7), flow(8)]).unwrap()).unwrap().unwrap();
        let ports: Vec<u32> = flows.iter().map(|flow| flow.port_out).collect();
        assert_eq!(ports, [7, 8]);
        assert_eq!(read(write(&[]).unwrap()).unwrap().unwrap(), []);
        let mut bytes = Vec::new();
        let mut file = File::from(write(&[flow(7), flow(8)]).unwrap());
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(parse(&bytes).map(|flows| flows.len()), Some(2));
        for len in [0, HEADER - 1, HEADER, HEADER + EACH, bytes.len() - 1] {
            assert!(parse(&bytes[..len]).is_none(), "{len}");
        }
        // another kind, another interface, another number
        for at in [0, 8, 16] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(parse(&other).is_none(), "{at}");
        }
        let more = [bytes.as_slice(), &[0]].concat();
        assert!(parse(&more).is_none());
    }
}
