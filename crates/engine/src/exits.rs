// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exception path: a thread between the workers and the TAPs.

use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::ffi::{
    fwe_exits, fwe_exits_counts, fwe_exits_free, fwe_exits_new, fwe_exits_set_leaves,
    fwe_exits_sum, fwe_exits_turn, fwe_face, fwe_thread_register, fwe_thread_unregister,
};
use crate::lanes::sourcing;
use crate::pool::Pool;
use crate::port::Port;
use crate::tap::Tap;
use crate::wakers::Wakers;

/// How often the thread looks whether it is to end.
const TURN_MS: c_int = 100;

/// The exception paths of all ports, in their order.
#[derive(Debug)]
pub struct Exits {
    exits: NonNull<fwe_exits>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), usize>>>,
}

#[derive(Clone, Copy)]
struct Pointer(NonNull<fwe_exits>);
// SAFETY: one thread makes turns, workers use the other ends of its rings.
unsafe impl Send for Pointer {}

impl Exits {
    /// Starts the thread.
    pub(crate) fn start(
        ports: &[Port],
        workers: usize,
        wakers: &Wakers,
        pool: &Pool,
    ) -> Result<Self, String> {
        let faces: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(number, port)| {
                let queues = port.tap().map_or(&[][..], Tap::queues);
                fwe_face {
                    queues: queues.as_ptr(),
                    queues_count: queues.len() as u32,
                    ifindex: port.ifindex,
                    waker: wakers.of_worker(sourcing(number, workers)),
                }
            })
            .collect();
        let count = faces.len() as c_uint;
        // SAFETY: as many of them; the pool outlives the exits.
        let exits =
            unsafe { fwe_exits_new(faces.as_ptr(), count, workers as c_uint, pool.as_ptr()) };
        let exits = NonNull::new(exits).ok_or_else(|| {
            format!(
                "cannot make the way to the kernel: {}",
                io::Error::last_os_error()
            )
        })?;
        let mut all = Self {
            exits,
            stop: Arc::default(),
            thread: None,
        };
        let (pointer, stop) = (Pointer(exits), Arc::clone(&all.stop));
        let thread = thread::Builder::new().name("freeway-exits".into());
        let spawned = thread.spawn(move || turn(pointer, &stop));
        all.thread = Some(spawned.map_err(|error| error.to_string())?);
        Ok(all)
    }

    pub(crate) fn as_ptr(&self) -> *mut fwe_exits {
        self.exits.as_ptr()
    }

    /// What comes down by the queues of a port is of these leaves of its scheduler.
    pub fn set_leaves(&self, port: usize, leaves: &[u16]) {
        let count = leaves.len() as u32;
        // SAFETY: there is such a port, and so many leaves.
        unsafe { fwe_exits_set_leaves(self.as_ptr(), port as u32, leaves.as_ptr(), count) };
    }

    /// What they have moved.
    #[must_use]
    pub fn counts(&self) -> fwe_exits_counts {
        // SAFETY: they live.
        unsafe { fwe_exits_sum(self.as_ptr()) }
    }

    /// The number of a TAP that is gone.
    #[must_use]
    pub fn lost(&mut self) -> Option<usize> {
        let ended = self.thread.take_if(|thread| thread.is_finished())?;
        ended.join().ok()?.err()
    }
}

fn turn(exits: Pointer, stop: &AtomicBool) -> Result<(), usize> {
    // SAFETY: this thread is none of DPDK's. Without it frames take longer, not another way.
    let registered = unsafe { fwe_thread_register() } == 0;
    let mut result = Ok(());
    while result.is_ok() && !stop.load(Ordering::Acquire) {
        // SAFETY: they live until the thread has ended.
        let gone = unsafe { fwe_exits_turn(exits.0.as_ptr(), TURN_MS) };
        if let Some(port) = usize::try_from(gone)
            .ok()
            .and_then(|gone| gone.checked_sub(1))
        {
            result = Err(port);
        }
    }
    if registered {
        // SAFETY: registered above.
        unsafe { fwe_thread_unregister() };
    }
    result
}

impl Drop for Exits {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // SAFETY: its thread has ended, and no worker uses them any more.
        unsafe { fwe_exits_free(self.as_ptr()) };
    }
}
