// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time by what is left of it: a thread that runs when nothing else wants a CPU (SCHED_IDLE) counts turns of a loop.
//!
//! What it does not get, others had: threads, but also interrupts and softirqs, which the scheduler's accounts may leave out or
//! charge to whoever was interrupted, and the host of a virtual machine.

use std::hint::spin_loop;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::pin;
use crate::error::{Context, LabError};
use crate::napi::schedule;
use crate::task_clock::TaskClock;

/// Pauses in a turn, so that counting takes next to nothing.
const PAUSES: u32 = 16;
/// Of calibration, at least so much CPU time,
const CALIBRATION: Duration = Duration::from_millis(20);
/// in so many looks at it,
const LOOK: Duration = Duration::from_millis(5);
/// and no longer than this.
const CALIBRATION_MAX: Duration = Duration::from_secs(10);

/// A loop at work on a CPU. Dropping it ends it.
#[derive(Debug)]
pub struct IdleLoop {
    cpu: usize,
    tid: i32,
    turns: Arc<AtomicU64>,
    clock: TaskClock,
    /// Turns in a nanosecond of CPU time of its own.
    speed: f64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A moment of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    turns: u64,
}

impl IdleLoop {
    /// Starts it on a CPU that has no load, and finds out how fast it is there. What disturbs it meanwhile does not matter: its
    /// speed is that in the CPU time that it has itself. Fails if it has next to none for ten seconds.
    pub fn start(cpu: usize) -> Result<Self, LabError> {
        let mut of_cpu = Self::begin(cpu)?;
        of_cpu.set_policy(libc::SCHED_IDLE)?;
        of_cpu.calibrate()?;
        Ok(of_cpu)
    }

    /// Its speed is not known yet, and nothing goes ahead of it.
    fn begin(cpu: usize) -> Result<Self, LabError> {
        let (turns, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (tell, told) = mpsc::channel();
        let (count, end) = (Arc::clone(&turns), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("lab-idle-loop".into())
            .spawn(move || {
                let tid = nix::unistd::gettid().as_raw();
                let ready = pin(cpu).and_then(|()| Ok((tid, TaskClock::of(tid)?)));
                let fails = ready.is_err();
                if tell.send(ready).is_ok() && !fails {
                    turn(&count, &end);
                }
            })
            .context("start the idle loop's thread")?;
        let (tid, clock) = match first(&told) {
            Ok(ready) => ready,
            Err(error) => {
                join(thread);
                return Err(error);
            }
        };
        Ok(Self {
            cpu,
            tid,
            turns,
            clock,
            speed: 0.0,
            stop,
            thread: Some(thread),
        })
    }

    /// Finds out again how fast it is, without load.
    pub fn calibrate(&mut self) -> Result<(), LabError> {
        let began = Instant::now();
        let (time, turns) = (self.clock.read()?, self.count());
        loop {
            thread::sleep(LOOK);
            let (had, more) = (
                self.clock.read()?.saturating_sub(time),
                self.count() - turns,
            );
            if had >= CALIBRATION && more > 0 {
                self.speed = more as f64 / had.as_nanos() as f64;
                return Ok(());
            }
            if began.elapsed() >= CALIBRATION_MAX {
                let cpu = self.cpu;
                return Err(LabError::Incomplete(format!(
                    "CPU {cpu} is never idle: what runs there must end before its load is measured"
                )));
            }
        }
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        Moment {
            at: Instant::now(),
            turns: self.count(),
        }
    }

    /// CPU time that all others have had since then: the time passed, less what the loop's turns took.
    pub fn taken_since(&self, then: Moment) -> Duration {
        let turns = self.count().saturating_sub(then.turns);
        let had = Duration::from_nanos((turns as f64 / self.speed) as u64);
        then.at.elapsed().saturating_sub(had)
    }

    /// With SCHED_IDLE all others go ahead of it. Where the CPU is never idle, it then may stand still for minutes.
    fn set_policy(&self, policy: i32) -> Result<(), LabError> {
        schedule(self.tid, policy, 0)
    }

    fn count(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Drop for IdleLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // so that it sees that soon; if it fails, it ends later
        let _ = self.set_policy(libc::SCHED_OTHER);
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

fn join(thread: JoinHandle<()>) {
    if let Err(cause) = thread.join()
        && !thread::panicking()
    {
        panic::resume_unwind(cause);
    }
}

fn first<T>(told: &Receiver<Result<T, LabError>>) -> Result<T, LabError> {
    let ended = |_| LabError::Incomplete("the idle loop's thread ended at once".into());
    told.recv().map_err(ended)?
}

/// Pauses leave the core to its other hardware thread, whose work would slow the loop down and so count as this CPU's.
fn turn(count: &AtomicU64, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        for _ in 0..PAUSES {
            spin_loop();
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the loop says that it had, and what it had, once that is some time.
    fn look(of_cpu: &IdleLoop) -> [Duration; 2] {
        let began = Instant::now();
        let (then, time) = (of_cpu.moment(), of_cpu.clock.read().unwrap());
        loop {
            thread::sleep(Duration::from_millis(5));
            let (passed, taken) = (then.at.elapsed(), of_cpu.taken_since(then));
            let had = of_cpu.clock.read().unwrap() - time;
            if had >= Duration::from_millis(50) {
                return [passed.saturating_sub(taken), had];
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{had:?}");
        }
    }

    /// A host that takes the CPU away in the midst of a look spoils that one.
    fn agrees(mut look: impl FnMut() -> [Duration; 2]) {
        let mut looks = Vec::new();
        let agree = (0..20).any(|_| {
            let [told, had] = look();
            looks.push([told, had]);
            told.abs_diff(had) < had.mul_f64(0.3)
        });
        assert!(agree, "{looks:?}");
    }

    /// Those who run this test may have lowered its priority.
    fn be_usual() {
        schedule(0, libc::SCHED_OTHER, 0).unwrap();
        // SAFETY: takes numbers.
        let rc = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
        assert_eq!(rc, 0);
    }

    #[test]
    fn a_busy_thread_takes_nearly_all() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: counters need root");
            return;
        }
        let cpu = 0;
        be_usual();
        let mut of_cpu = IdleLoop::begin(cpu).unwrap();
        // What is not told to be taken is what the loop had itself.
        agrees(|| {
            of_cpu.calibrate().unwrap();
            look(&of_cpu)
        });
        of_cpu.set_policy(libc::SCHED_IDLE).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let end = &stop;
            scope.spawn(move || {
                pin(cpu).unwrap();
                tell.send(()).unwrap();
                while !end.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
            told.recv().unwrap();
            let then = of_cpu.moment();
            thread::sleep(Duration::from_millis(200));
            let (passed, taken) = (then.at.elapsed(), of_cpu.taken_since(then));
            stop.store(true, Ordering::Relaxed);
            assert!(taken > passed.mul_f64(0.8), "{taken:?} of {passed:?}");
        });
        // Afterwards its speed is what it was.
        of_cpu.set_policy(libc::SCHED_OTHER).unwrap();
        agrees(|| look(&of_cpu));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_told() {
        let error = IdleLoop::start(1023).unwrap_err().to_string();
        assert!(error.contains("1023"), "{error}");
    }
}
