// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame sizes by their names.

use std::fmt;
use std::str::FromStr;

use freeway_lab::Mix;
use freeway_lab::frame::FRAME_BYTES_MAX;

const IMIX: &str = "imix";
/// RFC 2544, 9.1.
const FIXED: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

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
            Ok(bytes) if bytes > FRAME_BYTES_MAX => Err(format!(
                "a frame of the lab's generator is in one page of memory, and a veth takes XDP programs up to such an MTU \
                 only: at most {FRAME_BYTES_MAX}"
            )),
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
        for name in ["64", "1518", "imix"] {
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
        for (name, why) in [("9000", "one page"), ("65", "64, 128"), ("big", "imix")] {
            let error = name.parse::<Size>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
