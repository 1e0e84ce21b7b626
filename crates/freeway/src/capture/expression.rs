// SPDX-License-Identifier: MIT OR Apache-2.0
//! An expression of libpcap's (pcap-filter(7)), which tcpdump compiles to classic BPF and Freeway runs.

use std::io;
use std::process::Command;

use freeway_console::{Exit, Stop};
use freeway_kernel::cbpf::{self, Ancillary, Instruction};

/// Which frames are wanted.
#[derive(Debug)]
pub struct Expression(Vec<Instruction>);

impl Expression {
    /// What tcpdump makes of it for Ethernet; or its words of what is wrong.
    pub fn compile(text: &str) -> Result<Self, Stop> {
        let mut tcpdump = Command::new("tcpdump");
        let output = tcpdump.args(["-y", "EN10MB", "-ddd", "--", text]).output();
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Stop::new(
                Exit::Unavailable,
                "--pcap: tcpdump compiles expressions, and is not there; install it, or use the filter's words",
            ),
            _ => Stop::failure(format!("--pcap: cannot run tcpdump: {error}")),
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().last().unwrap_or("it cannot be compiled");
            let why = line.strip_prefix("tcpdump: ").unwrap_or(line);
            return Err(Stop::new(Exit::Usage, format!("--pcap: {why}")));
        }
        let program = String::from_utf8_lossy(&output.stdout);
        let nonsense = || Stop::failure("--pcap: what tcpdump has made of it is no program");
        let program = program_of(&program).ok_or_else(nonsense)?;
        if !cbpf::is_whole(&program) {
            let words = "--pcap: it asks what no frame says, or loops: leave out `ifindex`, `protochain` and the like";
            return Err(Stop::new(Exit::Usage, words));
        }
        Ok(Self(program))
    }

    /// Of a program as tcpdump writes it.
    #[cfg(test)]
    pub fn of(program: &str) -> Option<Self> {
        program_of(program).map(Self)
    }

    /// Whether a frame is wanted that leaves, or came in, and of whose `length` bytes there are `taken`.
    pub fn takes(&self, taken: &[u8], length: u32, leaves: bool) -> bool {
        let ancillary = Ancillary {
            // PACKET_OUTGOING, by which `outbound` asks
            packet_type: if leaves { 4 } else { 0 },
            cut: length.saturating_sub(taken.len() as u32),
            ..Ancillary::default()
        };
        cbpf::run(&self.0, taken, ancillary).is_some_and(|accepted| accepted != 0)
    }
}

/// The number of instructions, and each in a line.
fn program_of(text: &str) -> Option<Vec<Instruction>> {
    let mut lines = text.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let instruction = |line: &str| {
        let mut numbers = line.split_ascii_whitespace();
        Some(Instruction {
            code: numbers.next()?.parse().ok()?,
            jt: numbers.next()?.parse().ok()?,
            jf: numbers.next()?.parse().ok()?,
            k: numbers.next()?.parse().ok()?,
        })
    };
    let program: Vec<_> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == count && count > 0).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_whole_or_not_at_all() {
        // ip, with the length of the frame for a result
        let text = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
        let expression = Expression::of(text).unwrap();
        let mut frame = [0; 64];
        assert!(!expression.takes(&frame, 64, false));
        frame[12] = 8;
        assert!(expression.takes(&frame, 64, false));
        assert!(!expression.takes(&frame[..12], 64, false));
        for bad in [
            "",
            "x",
            "0\n",
            "2\n6 0 0 0\n",
            "1\n6 0 0\n",
            "1\n6 0 0 -1\n",
        ] {
            assert_eq!(program_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_leaves_is_outbound() {
        // outbound
        let text = "4\n40 0 0 4294963204\n21 0 1 4\n6 0 0 1\n6 0 0 0\n";
        let expression = Expression::of(text).unwrap();
        assert!(cbpf::is_whole(&expression.0));
        assert!(expression.takes(&[0; 64], 64, true));
        assert!(!expression.takes(&[0; 64], 64, false));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for (what, text) in [
            (
                "ifindex",
                "4\n32 0 0 4294963208\n21 0 1 3\n6 0 0 1\n6 0 0 0\n",
            ),
            ("a jump back", "3\n5 0 0 4294967295\n6 0 0 1\n6 0 0 0\n"),
            ("a jump out", "2\n21 0 1 0\n6 0 0 1\n"),
            ("no end", "2\n6 0 0 1\n0 0 0 0\n"),
            ("no such memory", "2\n96 0 0 16\n6 0 0 1\n"),
            ("no such operation", "2\n180 0 0 1\n6 0 0 1\n"),
        ] {
            assert!(!cbpf::is_whole(&program_of(text).unwrap()), "{what}");
        }
    }

    #[test]
    fn a_frame_that_was_cut_has_its_length() {
        // greater 1000
        let text = "4\n128 0 0 0\n37 0 1 999\n6 0 0 1\n6 0 0 0\n";
        let expression = Expression::of(text).unwrap();
        assert!(expression.takes(&[0; 256], 1000, false));
        assert!(!expression.takes(&[0; 256], 999, false));
    }
}
