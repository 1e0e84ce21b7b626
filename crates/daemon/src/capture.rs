// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to `capture`: a file of pcapng that grows until its reader leaves. A thread of its own reads what the data
//! plane tells, so that it takes no time of the engine's.

mod words;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use freeway_abi::{FW_R_ENGINE, FW_R_FAST, FW_TAP_HANDED, FW_TAP_LEFT, Reason};
use freeway_api::{CaptureQuery, Failure};
use freeway_datapath::{TapCounts, TapReader};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use super::ask::{Engine, ask};
use super::parts::Parts;
use super::request::Request;
use crate::engine::capture::Captured;
use crate::pcapng::{Block, Way};

/// Parts that are made before the reader takes them.
const AHEAD: usize = 16;
/// Frames are sent together for so long.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is said what was lost, whereby the reader knows that the daemon is there.
const REPORT: Duration = Duration::from_millis(250);

/// Blocks, each part some of them.
pub struct Capture;

impl Capture {
    /// Begins one.
    pub async fn open(
        engine: Engine,
        patience: Duration,
        query: CaptureQuery,
    ) -> Result<Parts, Failure> {
        let captured = ask(&engine, patience, |reply| Request::Capture(query, reply)).await?;
        let (sender, receiver) = mpsc::channel(AHEAD);
        let ended = engine.clone();
        let work = move || {
            if let Err(failure) = send(captured, &sender) {
                // the answer breaks off, which its reader notices
                let _ = sender.blocking_send(Err(failure));
            }
            // the engine may have gone, and the program with it
            let _ = engine.blocking_send(Request::CaptureEnded);
        };
        let spawned = thread::Builder::new()
            .name("freeway-capture".into())
            .spawn(work);
        if let Err(error) = spawned {
            let _ = ended.send(Request::CaptureEnded).await;
            return Err(internal(error));
        }
        Ok(Parts(receiver))
    }
}

/// Until the reader leaves.
fn send(captured: Captured, reader: &mpsc::Sender<Result<Bytes, Failure>>) -> Result<(), Failure> {
    let Captured {
        ring,
        ports,
        slots,
        kept,
        taken,
    } = captured;
    let kept = kept.iter().map(|(port, why)| format!("{port}: {why}"));
    let mut head = Block::section(&kept.collect::<Vec<_>>().join("\n"));
    // pcapng numbers interfaces as they are described
    let mut numbers = BTreeMap::new();
    for (number, (ifindex, name)) in (0u32..).zip(&ports) {
        numbers.insert(*ifindex, number);
        head.extend(Block::interface(name, taken));
    }
    let since_boot = realtime_over_monotonic();
    let made = RefCell::new(head);
    // what left belongs to the flow of what came in, on its CPU
    let came: RefCell<BTreeMap<u32, (u32, String)>> = RefCell::default();
    let tap = ring.read(|frame, octets| {
        let left = frame.way == FW_TAP_LEFT;
        let mut came = came.borrow_mut();
        let (number, comment) = came.entry(frame.cpu).or_default();
        if !left {
            let reason = match frame.way {
                FW_TAP_HANDED => FW_R_ENGINE,
                _ => FW_R_FAST,
            };
            let (reason, flow) = (Reason::get(reason).name, words::flow(octets));
            *number = frame.number;
            *comment = flow.map_or_else(|| reason.into(), |flow| format!("{reason}: {flow}"));
        } else if *number != frame.number {
            comment.clear();
        }
        let ifindex = if left {
            slots.get(&frame.port)
        } else {
            Some(&frame.port)
        };
        // a port that came later
        let Some(interface) = ifindex.and_then(|ifindex| numbers.get(ifindex)) else {
            return;
        };
        made.borrow_mut().extend(Block::packet(
            *interface,
            since_boot + frame.time_ns,
            if left { Way::Out } else { Way::In },
            u64::from(frame.cpu) << 32 | u64::from(frame.number),
            frame.length,
            octets,
            comment,
        ));
    });
    let tap = tap.map_err(internal)?;
    let mut reported = Instant::now();
    let now = || u64::try_from(clock(ClockId::CLOCK_REALTIME).as_nanos()).unwrap_or(0);
    loop {
        let part = std::mem::take(&mut *made.borrow_mut());
        if reader.is_closed() || !part.is_empty() && reader.blocking_send(Ok(part.into())).is_err()
        {
            return Ok(());
        }
        tap.wait(PAUSE).map_err(internal)?;
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            made.borrow_mut().extend(report(&tap, now()));
        }
    }
}

fn report(tap: &TapReader<'_>, now_ns: u64) -> Vec<u8> {
    let TapCounts { told, lost } = tap.counts();
    Block::statistics(now_ns, told, lost)
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal(error.to_string())
}

fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, Into::into)
}

/// What is added to the data plane's time to be that of the day.
fn realtime_over_monotonic() -> u64 {
    let over = clock(ClockId::CLOCK_REALTIME).saturating_sub(clock(ClockId::CLOCK_MONOTONIC));
    u64::try_from(over.as_nanos()).unwrap_or(0)
}
