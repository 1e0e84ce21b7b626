// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who uses the router: connections one after the other, each of which is answered rightly, and one that stays.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};

use super::PATIENCE;

/// Who opens connections at the same time, and the servers of each.
const MEMBERS: u16 = 4;
const SERVERS: u16 = 8;
const FIRST: u16 = 7000;
/// Questions of a connection, and their octets.
const ROUNDS: usize = 4;
const QUESTION: usize = 600;

/// What all threads share.
#[derive(Default)]
struct Shared {
    begun: AtomicU64,
    /// So many may begin.
    allowed: AtomicU64,
    done: AtomicU64,
    over: AtomicBool,
    /// What went by an address that is gone may fail.
    forgiven: AtomicBool,
    failures: Mutex<Vec<String>>,
}

pub struct Household {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A thread in a namespace.
fn within(netns: &Netns, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let file = std::fs::File::open(netns.path()).unwrap();
    thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        work();
    })
}

/// Each answer is the question, turned over.
fn turn(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

fn serve(listener: &TcpListener, over: &Shared) {
    let tick = nix::sys::time::TimeVal::new(0, 200_000);
    setsockopt(listener, sockopt::ReceiveTimeout, &tick).unwrap();
    while !over.over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let mut bytes = [0; QUESTION];
        while stream.read_exact(&mut bytes).is_ok() {
            turn(&mut bytes);
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
    }
}

fn ask(to: SocketAddr, number: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for round in 0..ROUNDS {
        let mut question = [0; QUESTION];
        for (at, byte) in question.iter_mut().enumerate() {
            *byte = (number as usize * 31 + round * 7 + at) as u8;
        }
        stream.write_all(&question)?;
        let mut answer = [0; QUESTION];
        stream.read_exact(&mut answer)?;
        turn(&mut answer);
        if answer != question {
            return Err(std::io::Error::other("another answer"));
        }
    }
    Ok(())
}

impl Household {
    /// None begins yet.
    pub fn begin(lab: &Lab) -> Self {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for port in FIRST..FIRST + MEMBERS * SERVERS {
            let listener = listen(
                lab.server(),
                SocketAddr::new("198.51.100.2".parse().unwrap(), port),
            );
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || serve(&listener, &shared)));
        }
        for member in 0..MEMBERS {
            let shared = Arc::clone(&shared);
            threads.push(within(lab.client(), move || {
                loop {
                    let number = shared.begun.fetch_add(1, Ordering::Relaxed);
                    while number >= shared.allowed.load(Ordering::Relaxed) {
                        if shared.over.load(Ordering::Relaxed) {
                            return;
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                    // an own server: it answers one after the other
                    let port =
                        FIRST + member * SERVERS + (number / u64::from(MEMBERS)) as u16 % SERVERS;
                    let to = SocketAddr::new("198.51.100.2".parse().unwrap(), port);
                    let begun = Moment::now();
                    if let Err(error) = ask(to, number)
                        && !shared.forgiven.load(Ordering::Relaxed)
                    {
                        let mut failures = shared.failures.lock().unwrap();
                        let time = begun.elapsed();
                        failures.push(format!(
                            "connection {number} to {to}: {error} after {time:?}"
                        ));
                    }
                    shared.done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self { shared, threads }
    }

    /// So many may begin from the first one on.
    pub fn allow(&self, connections: u64) {
        self.shared.allowed.store(connections, Ordering::Relaxed);
    }

    /// Waits until so many have ended.
    #[track_caller]
    pub fn wait(&self, wanted: u64) {
        let mut before = 0;
        let mut since = Moment::now();
        loop {
            let done = self.shared.done.load(Ordering::Relaxed);
            if done >= wanted {
                return;
            }
            if done != before {
                (before, since) = (done, Moment::now());
            }
            // one whose address went gives up after that
            assert!(
                since.elapsed() < 2 * PATIENCE,
                "{done} connections, and no more"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Those of this hour may fail, or none.
    pub fn forgive(&self, forgiven: bool) {
        self.shared.forgiven.store(forgiven, Ordering::Relaxed);
    }

    /// What has failed that should not.
    pub fn failures(&self) -> Option<Vec<String>> {
        let failures = self.shared.failures.lock().unwrap();
        (!failures.is_empty()).then(|| failures.clone())
    }

    /// Ends all; how many there were.
    pub fn end(self) -> u64 {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.shared.done.load(Ordering::Relaxed)
    }
}

/// A connection that stays, and into which something is written all the time.
pub struct Stream {
    sport: u16,
    arrived: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stream {
    pub fn open(lab: &Lab, port: u16) -> Self {
        let to = SocketAddr::new("198.51.100.2".parse().unwrap(), port);
        let listener = listen(lab.server(), to);
        let from = address("192.0.2.2:0");
        let (mut near, mut far) = pair((lab.client(), from), to, &listener);
        let sport = near.local_addr().unwrap().port();
        let arrived = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (ends, counts) = (Arc::clone(&over), Arc::clone(&arrived));
        let tick = Duration::from_millis(100);
        near.set_write_timeout(Some(tick)).unwrap();
        far.set_read_timeout(Some(tick)).unwrap();
        let ended = Arc::clone(&over);
        let write = move || {
            while !ends.load(Ordering::Relaxed) {
                // a full buffer: what was written does not arrive
                let _ = near.write(&[7; QUESTION]);
                thread::sleep(Duration::from_millis(2));
            }
        };
        let read = move || {
            let mut bytes = [0; 1 << 16];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(len) = far.read(&mut bytes) {
                    counts.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
        };
        Self {
            sport,
            arrived,
            over,
            threads: vec![thread::spawn(write), thread::spawn(read)],
        }
    }

    /// Freeway forwards it.
    #[track_caller]
    pub fn is_fast(&self, router: &Router) {
        router.wait_fast(&format!("sport {}", self.sport), 1, 20);
    }

    /// Something arrives, or from some moment on nothing does.
    #[track_caller]
    pub fn passes(&self, wanted: bool) {
        let arrived = || self.arrived.load(Ordering::Relaxed);
        if wanted {
            let before = arrived();
            until("something arrives", PATIENCE, || {
                (arrived() > before + 10 * QUESTION as u64).then_some(())
            });
            return;
        }
        // what misses the event waits for the look at each second
        thread::sleep(late_max().1);
        let before = arrived();
        thread::sleep(Duration::from_secs(1));
        assert_eq!(arrived(), before, "octets arrive that the firewall forbids");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
