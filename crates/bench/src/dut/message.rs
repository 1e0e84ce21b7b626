// SPDX-License-Identifier: MIT OR Apache-2.0
//! What generator and sink say to each other, one JSON value a line: the sink greets, the generator greets back, and then asks
//! and is answered.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Of these messages.
pub const VERSION: u32 = 1;

/// What a generator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// It comes first.
    Hello(Hello),
    /// To count frames of one kind.
    Meter(Target),
    /// To count from zero.
    Clear,
    /// What has come, when nothing more does.
    Read(Sent),
}

/// What a sink says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Answer {
    /// It comes first, unasked.
    Hello(Hello),
    /// What was asked for is done.
    Ready,
    /// What has come.
    Counted(Counted),
    /// It is not done, and the connection ends.
    Error(Failure),
}

impl Answer {
    /// As the line has it.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Hello(_) => "hello",
            Answer::Ready => "ready",
            Answer::Counted(_) => "counted",
            Answer::Error(_) => "error",
        }
    }
}

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// A sink's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// Frames to count: UDP to this address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The address.
    pub address: IpAddr,
    /// The port, host byte order.
    pub port: u16,
    /// The longest of them, FCS counted.
    pub frame_bytes: u32,
}

/// How many frames are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
}

/// What a meter has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Frames that were to be counted.
    pub frames: u64,
    /// Frames that came between the count before and the last `clear`.
    pub late: u64,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What failed, on what, and what to do.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines() {
        let target = Target {
            address: "2001:db8::2".parse().unwrap(),
            port: 9000,
            frame_bytes: 1518,
        };
        let hello = Hello {
            version: VERSION,
            port: None,
        };
        for (request, line) in [
            (Request::Hello(hello), r#"{"hello":{"version":1}}"#),
            (
                Request::Meter(target),
                r#"{"meter":{"address":"2001:db8::2","port":9000,"frame_bytes":1518}}"#,
            ),
            (Request::Clear, r#""clear""#),
            (
                Request::Read(Sent { frames: 7 }),
                r#"{"read":{"frames":7}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in [
            "",
            "GET / HTTP/1.1",
            "null",
            r#""run""#,
            r#"{"clear":{}}"#,
            r#"{"read":{}}"#,
            r#"{"read":{"frames":-1}}"#,
            r#"{"read":{"frames":1,"more":2}}"#,
            r#"{"read":{"frames":1},"clear":null}"#,
            r#"{"meter":{"address":"eth0","port":9000,"frame_bytes":64}}"#,
            r#"{"meter":{"address":"192.0.2.1","port":65536,"frame_bytes":64}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
        let deep = "[".repeat(4000);
        assert!(serde_json::from_str::<Request>(&deep).is_err());
    }
}
