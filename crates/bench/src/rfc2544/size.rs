// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame sizes by their names.

use std::fmt;
use std::str::FromStr;

use freeway_lab::Mix;
use freeway_lab::frame::{FRAME_BYTES_JUMBO, FRAME_BYTES_MAX};

const IMIX: &str = "imix";
/// RFC 2544, 9.1, and FD.io CSIT's longest.
const FIXED: [u32; 8] = [64, 128, 256, 512, 1024, 1280, 1518, FRAME_BYTES_JUMBO];
const MTU: u32 = 1500;
const MTU_JUMBO: u32 = 9000;

/// The size of frames, FCS counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All alike.
    Bytes(u32),
    /// 28 of 64 bytes, 16 of 570, 4 of 1518.
    Imix,
}

impl Size {
    /// What the lab sends.
    pub fn mix(self) -> Mix {
        match self {
            Size::Bytes(bytes) => Mix::of(bytes),
            Size::Imix => Mix::imix(),
        }
    }

    /// MTU of the links that such frames take.
    pub fn mtu(self) -> u32 {
        match self {
            Size::Bytes(bytes) if bytes > FRAME_BYTES_MAX => MTU_JUMBO,
            _ => MTU,
        }
    }

    /// Sizes in a row whose links have the same MTU.
    pub fn alike(sizes: &[Self]) -> impl Iterator<Item = &[Self]> {
        sizes.chunk_by(|a, b| a.mtu() == b.mtu())
    }

    /// `64 bytes`, `IMIX`.
    pub fn label(self) -> String {
        match self {
            Size::Bytes(bytes) => format!("{bytes} bytes"),
            Size::Imix => "IMIX".into(),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => bytes.fmt(f),
            Size::Imix => f.write_str(IMIX),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name.eq_ignore_ascii_case(IMIX) {
            return Ok(Size::Imix);
        }
        match name.parse() {
            Ok(bytes) if FIXED.contains(&bytes) => Ok(Size::Bytes(bytes)),
            _ => Err(format!(
                "there are {} and {IMIX}",
                FIXED.map(|size| size.to_string()).join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_names() {
        for name in ["64", "1518", "9000", "imix"] {
            assert_eq!(
                name.parse::<Size>().map(|size| size.to_string()),
                Ok(name.into())
            );
        }
        assert_eq!("IMIX".parse::<Size>().map(Size::label), Ok("IMIX".into()));
        assert_eq!(
            "512".parse::<Size>().map(Size::label),
            Ok("512 bytes".into())
        );
        for name in ["65", "1519", "8999", "9001", "9018", "big"] {
            let error = name.parse::<Size>().unwrap_err();
            assert!(error.contains("1518, 9000 and imix"), "{error}");
        }
    }

    #[test]
    fn sizes_of_one_mtu_share_routers() {
        let [short, full, jumbo] = [64, 1518, 9000].map(Size::Bytes);
        assert_eq!([short, full, Size::Imix].map(Size::mtu), [1500; 3]);
        assert_eq!(jumbo.mtu(), 9000);
        let sizes = [jumbo, short, Size::Imix, full, jumbo];
        let rows: Vec<usize> = Size::alike(&sizes).map(<[_]>::len).collect();
        assert_eq!(rows, [1, 3, 1]);
    }
}
