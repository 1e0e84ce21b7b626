// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the elements of sets, which may take long, on a thread of its own.

use std::collections::BTreeMap;
use std::sync::mpsc as ask;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use freeway_kernel::nft::{Element, read_elements};
use freeway_kernel::reachability::SetName;
use tokio::sync::mpsc;

use crate::DaemonError;
use crate::error::failure;

/// Pieces that may wait; more make the thread wait.
const PIECES_MAX: usize = 4;
/// A reading that was disturbed is made again so often: what it may miss stays the kernel's.
const ATTEMPTS: u32 = 3;

/// What is to be read.
#[derive(Clone, Debug)]
struct Job {
    set: SetName,
    load: u64,
}

/// A piece of a set.
#[derive(Debug)]
pub struct Loaded {
    pub set: SetName,
    /// Which reading it is of.
    pub load: u64,
    /// It is not older.
    pub since: Instant,
    pub elements: Vec<Element>,
    /// It was the last; whether all were one state of the set, or an error that says why there are no more.
    pub end: Option<Result<bool, String>>,
}

/// The thread that reads. It was made by the daemon's main thread, and so is in the same network namespace.
#[derive(Debug)]
pub struct Loader {
    jobs: ask::Sender<Job>,
    pieces: mpsc::Receiver<Loaded>,
    last: u64,
    /// The number of each set's last reading: others are for nothing.
    wanted: Wanted,
}

type Wanted = Arc<Mutex<BTreeMap<SetName, u64>>>;

fn is_wanted(wanted: &Wanted, job: &Job) -> bool {
    let wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
    wanted.get(&job.set) == Some(&job.load)
}

impl Loader {
    pub fn start() -> Result<Self, DaemonError> {
        let (jobs, asked) = ask::channel::<Job>();
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let wanted = Wanted::default();
        let of_thread = Arc::clone(&wanted);
        let work = move || {
            while let Ok(job) = asked.recv() {
                if is_wanted(&of_thread, &job) && !read(&job, &sender, &of_thread) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("freeway-sets".into());
        thread.spawn(work).map_err(failure)?;
        Ok(Self {
            jobs,
            pieces,
            last: 0,
            wanted,
        })
    }

    /// Has a set be read; returns the number of the reading.
    pub fn load(&mut self, set: &SetName) -> u64 {
        self.last += 1;
        let job = Job {
            set: set.clone(),
            load: self.last,
        };
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.insert(set.clone(), self.last);
        drop(wanted);
        if self.jobs.send(job).is_err() {
            tracing::warn!("the thread that reads sets has ended");
        }
        self.last
    }

    pub async fn next(&mut self) -> Loaded {
        match self.pieces.recv().await {
            Some(piece) => piece,
            None => std::future::pending().await,
        }
    }
}

/// False: nobody waits for it.
fn read(job: &Job, sender: &mpsc::Sender<Loaded>, wanted: &Wanted) -> bool {
    let (family, table, set) = &job.set;
    let piece = |since, elements, end| Loaded {
        set: job.set.clone(),
        load: job.load,
        since,
        elements,
        end,
    };
    let mut heard = true;
    let mut whole = Ok(false);
    for _ in 0..ATTEMPTS {
        whole = read_elements((*family, table, set), |since, elements| {
            if is_wanted(wanted, job) {
                heard &= sender.blocking_send(piece(since, elements, None)).is_ok();
            }
        });
        if !matches!(whole, Ok(false)) || !is_wanted(wanted, job) {
            break;
        }
    }
    let end = whole.map_err(|error| error.to_string());
    let last = piece(Instant::now(), Vec::new(), Some(end));
    heard && sender.blocking_send(last).is_ok()
}
