// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of messages.

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// IPFIX; `biflow`: one record for both directions (RFC 5103).
    Ipfix {
        /// One record for both directions.
        biflow: bool,
    },
    /// NetFlow v9: a record for each direction.
    Netflow9,
}
