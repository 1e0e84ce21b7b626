// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a tape's frames from both hosts, past their qdiscs, through packet sockets.
//!
//! Frames leave in the order of the tape. As a card's receive ring, a router's port has room for 256 of them: what it has no
//! room for is sent and lost.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use crate::capture::{packet_socket, set_option};
use crate::clock::{monotonic_ns, pin};
use crate::error::{Context, LabError};
use crate::frame::Direction;
use crate::lab::Lab;
use crate::napi::{BURST_PRIORITY, real_time};
use crate::port::Port;
use crate::sendmmsg::{BATCH, send_all};
use crate::tape::Tape;

/// With nothing to wait for, so many are sent before the ports' threads have their turn, half of what a port has room for: a
/// thread that is woken for each frame costs more than the frame.
const BURST: usize = 128;
/// The sender sleeps if nothing is due for longer than this,
const SLEEP_NS: u64 = 300_000;
/// and wakes up so much too early.
const EARLY_NS: u64 = 100_000;

/// When frames leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tempo {
    /// At the times of the tape, so many times as fast.
    Times(f64),
    /// Evenly, so many a second.
    Pps(u64),
    /// As fast as the CPU can.
    Full,
}

impl Tempo {
    /// How long so many loops of a tape take, nanoseconds; as fast as the CPU can, none.
    pub fn span_ns(self, tape: &Tape, loops: u32) -> u64 {
        match (tape.len().checked_sub(1), loops.checked_sub(1)) {
            (Some(last), Some(round)) => self.due_ns(tape, round.into(), last),
            _ => 0,
        }
    }

    /// When a frame of a loop leaves, nanoseconds after the first one of all.
    fn due_ns(self, tape: &Tape, round: u64, index: usize) -> u64 {
        let frames = tape.len() as u64;
        let number = round * frames + index as u64;
        match self {
            Tempo::Full => 0,
            Tempo::Pps(pps) => (u128::from(number) * 1_000_000_000 / u128::from(pps.max(1))) as u64,
            Tempo::Times(factor) => {
                // the next loop begins a mean gap after the last frame
                let gap_ns = tape.span_ns() / frames.saturating_sub(1).max(1);
                let (_, at_ns) = tape.mark(index);
                ((round * (tape.span_ns() + gap_ns) + at_ns) as f64 / factor) as u64
            }
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Frames from the client, and from the server; those that found no room are among them.
    pub sent: [u64; 2],
    /// Frames for which the next port had no room.
    pub refused: u64,
    /// From the first frame to the last.
    pub elapsed_ns: u64,
    /// How long after its time a frame left at most.
    pub late_ns: u64,
}

/// Sockets at both hosts.
#[derive(Debug)]
pub struct Player {
    ends: [End; 2],
}

/// One side.
#[derive(Debug)]
struct End {
    socket: OwnedFd,
    port: Port,
}

impl Player {
    /// Opens the sockets.
    pub fn open(lab: &Lab) -> Result<Self, LabError> {
        let end = |direction| {
            let port = lab.sender(direction);
            let socket = packet_socket(port, 0)?;
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
                .context("send past the qdisc")?;
            Ok::<_, LabError>(End {
                socket,
                port: port.clone(),
            })
        };
        Ok(Self {
            ends: [end(Direction::Forward)?, end(Direction::Reply)?],
        })
    }

    /// Plays a tape so often, in a thread of its own on a CPU, and waits for it.
    pub fn play(
        &self,
        tape: &Tape,
        tempo: Tempo,
        loops: u32,
        cpu: usize,
    ) -> Result<Played, LabError> {
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                pin(cpu)?;
                self.send_all(tape, tempo, loops)
            });
            let failed = |_| LabError::Incomplete("the thread that sends ended badly".into());
            sender.join().map_err(failed)?
        })
    }

    fn send_all(&self, tape: &Tape, tempo: Tempo, loops: u32) -> Result<Played, LabError> {
        let mut played = Played::default();
        let start_ns = monotonic_ns();
        let bursts = tempo == Tempo::Full;
        let mut burst = 0;
        for round in 0..u64::from(loops) {
            let mut next = 0;
            while next < tape.len() {
                let due_ns = tempo.due_ns(tape, round, next);
                let now_ns = wait_until(start_ns, due_ns);
                if tempo != Tempo::Full {
                    played.late_ns = played.late_ns.max(now_ns - due_ns);
                }
                let (direction, _) = tape.mark(next);
                let more = (next + 1..tape.len().min(next + BATCH)).take_while(|index| {
                    tape.mark(*index).0 == direction && tempo.due_ns(tape, round, *index) <= now_ns
                });
                let after = next + 1 + more.count();
                if bursts && burst == 0 {
                    real_time(0, BURST_PRIORITY)?;
                }
                let end = &self.ends[direction as usize];
                played.refused += end.send(tape, next..after)?;
                played.sent[direction as usize] += (after - next) as u64;
                burst += after - next;
                next = after;
                if bursts && burst + BATCH > BURST {
                    real_time(0, 0)?;
                    burst = 0;
                }
            }
        }
        if bursts {
            real_time(0, 0)?;
        }
        played.elapsed_ns = monotonic_ns() - start_ns;
        Ok(played)
    }
}

/// Waits for a time after a start, and says what time it is; at once if that is past.
fn wait_until(start_ns: u64, due_ns: u64) -> u64 {
    loop {
        let now_ns = monotonic_ns() - start_ns;
        if now_ns >= due_ns {
            return now_ns;
        }
        let left_ns = due_ns - now_ns;
        if left_ns > SLEEP_NS {
            thread::sleep(Duration::from_nanos(left_ns - EARLY_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

impl End {
    /// Sends frames, and says for how many there was no room.
    fn send(&self, tape: &Tape, range: std::ops::Range<usize>) -> Result<u64, LabError> {
        let frames = range.map(|index| tape.frame(index)).take(BATCH);
        send_all(&self.socket, frames.map(|frame| [frame, &[]])).or_else(|error| {
            let Port { name, netns, .. } = &self.port;
            Err(error).context(format!("send a frame from {name} in {}", netns.name()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tempos_have_times() {
        let mut tape = Tape::default();
        for at_ns in [0, 1000, 4000] {
            tape.push(Direction::Forward, at_ns, 0x0800, &[0; 20]);
        }
        let due = |tempo: Tempo| {
            let of = |round| (0..3).map(move |index| (round, index));
            let all = of(0).chain(of(1));
            all.map(|(round, index)| tempo.due_ns(&tape, round, index))
                .collect::<Vec<u64>>()
        };
        // a loop takes 4000 ns and 2000 ns until the next
        assert_eq!(due(Tempo::Times(1.0)), [0, 1000, 4000, 6000, 7000, 10_000]);
        assert_eq!(due(Tempo::Times(2.0)), [0, 500, 2000, 3000, 3500, 5000]);
        assert_eq!(
            due(Tempo::Pps(1_000_000)),
            [0, 1000, 2000, 3000, 4000, 5000]
        );
        assert_eq!(due(Tempo::Full), [0; 6]);
        assert_eq!(Tempo::Times(2.0).span_ns(&tape, 2), 5000);
        assert_eq!(Tempo::Pps(1000).span_ns(&Tape::default(), 2), 0);
    }
}
