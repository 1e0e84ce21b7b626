// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF objects as they are in the program: deflated, to a third of their size.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// An object that the build has deflated (RFC 1950).
#[derive(Clone, Copy)]
pub(crate) struct Packed(pub &'static [u8]);

/// The object of a file in `dataplane/`, without `.bpf.c`.
macro_rules! packed {
    ($name:literal) => {
        $crate::packed::Packed(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o.z")))
    };
}
pub(crate) use packed;

impl Packed {
    /// As clang has made it.
    pub fn object(self) -> std::io::Result<Vec<u8>> {
        let mut object = Vec::new();
        ZlibDecoder::new(self.0).read_to_end(&mut object)?;
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program of a router goes to devices with small flash.
    #[test]
    fn objects_are_small_and_whole() {
        let files = std::fs::read_dir(env!("OUT_DIR")).unwrap();
        let packed = files.filter_map(|file| {
            let path = file.unwrap().path();
            (path.extension()? == "z").then(|| std::fs::metadata(path).unwrap().len())
        });
        let sizes: Vec<u64> = packed.collect();
        assert!(sizes.len() > 8, "{sizes:?}");
        let all: u64 = sizes.iter().sum();
        println!("{all} octets in {} objects", sizes.len());
        assert!(all < 600_000, "{sizes:?}");
        let route = packed!("route").object().unwrap();
        assert_eq!(route.get(..4), Some(&b"\x7fELF"[..]));
        assert!(Packed(&[0; 8]).object().is_err());
    }
}
