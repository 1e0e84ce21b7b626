// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of a configuration that have limits.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A number between two limits.
pub fn within<'de, D: Deserializer<'de>, const MIN: u32, const MAX: u32>(
    from: D,
) -> Result<u32, D::Error> {
    let value = u32::deserialize(from)?;
    match value {
        _ if (MIN..=MAX).contains(&value) => Ok(value),
        _ if MAX == u32::MAX => Err(D::Error::custom(format!(
            "{value} is too low; it must be at least {MIN}"
        ))),
        _ => Err(D::Error::custom(format!(
            "{value} is out of range; it may be {MIN} to {MAX}"
        ))),
    }
}
