// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP connections through the pair, each of which echoes numbered blocks all the time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freeway_lab::pair::{CLIENTS, Pair, SERVER};
use freeway_testkit::{connect_from, listen, reset, until};

use crate::site::PATIENCE;

/// Octets of a block: more than a segment has.
const BLOCK: usize = 2000;
/// Over which a rate is looked at.
const SPAN: Duration = Duration::from_millis(200);
const PORT: u16 = 5001;
const FIRST_PORT: u16 = 40000;

/// Connections that exchange blocks until they are told to stop.
pub struct Load {
    clients: Vec<JoinHandle<Result<TcpStream, String>>>,
    servers: Vec<JoinHandle<Result<TcpStream, String>>>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Blocks that came back, of each connection.
    rounds: Vec<AtomicU64>,
    stop: AtomicBool,
    hold: AtomicBool,
    pause: Duration,
}

fn fill(block: &mut [u8], connection: usize, number: u64) {
    let seed = (connection as u64) << 40 ^ number;
    for (i, octets) in block.chunks_mut(8).enumerate() {
        let word = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(i as u64);
        octets.copy_from_slice(&word.to_be_bytes()[..octets.len()]);
    }
}

impl Load {
    /// So many connections, of several client addresses, with a pause between blocks.
    pub fn start(pair: &Pair, connections: usize, pause: Duration) -> Load {
        let shared = Arc::new(Shared {
            rounds: (0..connections).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            hold: AtomicBool::new(false),
            pause,
        });
        let server = SocketAddr::new(SERVER.parse().unwrap(), PORT);
        let listener = listen(pair.server(), server);
        let mut load = Load {
            clients: Vec::new(),
            servers: Vec::new(),
            shared,
        };
        for connection in 0..connections {
            let (host, port) = (host(connection), FIRST_PORT + connection as u16);
            let from = format!("192.0.2.{host}:{port}");
            let near = connect_from(pair.client(), from.parse().unwrap(), server).unwrap();
            let (far, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip().to_string(), "198.51.100.1", "not translated");
            for stream in [&near, &far] {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
            }
            far.set_nodelay(true).unwrap();
            let shared = load.shared.clone();
            load.clients
                .push(small(move || ask(near, connection, &shared)));
            load.servers.push(small(move || echo(far, connection)));
        }
        load
    }

    /// Blocks that came back, of each connection.
    pub fn rounds(&self) -> Vec<u64> {
        let all = self.shared.rounds.iter();
        all.map(|rounds| rounds.load(Ordering::Relaxed)).collect()
    }

    /// Blocks that came back, of all.
    pub fn total(&self) -> u64 {
        self.rounds().iter().sum()
    }

    /// Blocks a second, of all.
    pub fn rate(&self) -> f64 {
        let (start, before) = (Instant::now(), self.total());
        thread::sleep(SPAN);
        (self.total() - before) as f64 / start.elapsed().as_secs_f64()
    }

    /// Waits until all together have this rate, and says how long that was after `start`.
    pub fn wait_rate(&self, wanted: f64, start: Instant) -> Duration {
        until("the rate of before", PATIENCE, || {
            (self.rate() >= wanted).then(|| start.elapsed())
        })
    }

    /// Waits until each connection has exchanged so many blocks more.
    pub fn wait_rounds(&self, more: u64) {
        let before = self.rounds();
        until("blocks of each connection", PATIENCE, || {
            if let Some(end) = self.ended() {
                panic!("{end}");
            }
            let now = self.rounds();
            let on = |(now, before): (&u64, &u64)| now - before >= more;
            now.iter().zip(&before).all(on).then_some(())
        });
    }

    /// Says so if a connection has ended of its own accord.
    fn ended(&self) -> Option<String> {
        let ends = [&self.clients, &self.servers];
        let mut all = ends.into_iter().flatten();
        let found = all.any(|thread| thread.is_finished());
        found.then(|| "a connection has ended".to_owned())
    }

    /// Nothing is sent any more; what was sent has come back.
    pub fn hold(&self) {
        self.shared.hold.store(true, Ordering::Relaxed);
        let mut before = self.total();
        until("quiet connections", PATIENCE, || {
            thread::sleep(self.shared.pause * 2 + Duration::from_millis(100));
            let now = self.total();
            let quiet = now == before;
            before = now;
            quiet.then_some(())
        });
    }

    /// Ends all: one in two is closed, the others are reset, and the other end has to hear of each.
    pub fn end(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.hold.store(false, Ordering::Relaxed);
        let joined = |threads: Vec<JoinHandle<Result<TcpStream, String>>>| {
            let all = threads.into_iter();
            all.map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        };
        let clients = joined(self.clients);
        for (connection, near) in clients.into_iter().enumerate() {
            let near = near.unwrap();
            if connection % 2 == 0 {
                near.shutdown(Shutdown::Write).unwrap();
                let mut rest = [0];
                assert_eq!((&near).read(&mut rest).unwrap(), 0, "{connection}");
            } else {
                reset(near);
            }
        }
        for (connection, far) in joined(self.servers).into_iter().enumerate() {
            match far {
                Ok(_) => assert_eq!(connection % 2, 0, "{connection} was to be reset"),
                Err(error) => {
                    assert!(
                        connection % 2 == 1 && error.contains("reset"),
                        "{connection}: {error}"
                    );
                }
            }
        }
    }
}

fn small<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let builder = thread::Builder::new().stack_size(128 << 10);
    builder.spawn(work).unwrap()
}

/// The client's end.
fn ask(mut stream: TcpStream, connection: usize, shared: &Shared) -> Result<TcpStream, String> {
    let (mut sent, mut back) = ([0; BLOCK], [0; BLOCK]);
    for number in 0.. {
        while shared.hold.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        fill(&mut sent, connection, number);
        let at = |what: &str, error| format!("connection {connection}: {what} {number}: {error}");
        stream
            .write_all(&sent)
            .map_err(|error| at("sending", error))?;
        stream
            .read_exact(&mut back)
            .map_err(|error| at("receiving", error))?;
        if sent != back {
            return Err(format!("connection {connection}: block {number} differs"));
        }
        shared.rounds[connection].fetch_add(1, Ordering::Relaxed);
        thread::sleep(shared.pause);
    }
    Ok(stream)
}

/// The server's end: until there is nothing more.
fn echo(mut stream: TcpStream, connection: usize) -> Result<TcpStream, String> {
    let (mut block, mut wanted) = ([0; BLOCK], [0; BLOCK]);
    for number in 0.. {
        let at = |error| format!("connection {connection}: block {number} of the server: {error}");
        match stream.read(&mut block[..1]).map_err(at)? {
            0 => {
                stream.shutdown(Shutdown::Write).map_err(at)?;
                return Ok(stream);
            }
            _ => stream.read_exact(&mut block[1..]).map_err(at)?,
        }
        fill(&mut wanted, connection, number);
        if block != wanted {
            return Err(format!("connection {connection}: block {number} differs"));
        }
        stream.write_all(&block).map_err(at)?;
    }
    Ok(stream)
}

/// True of the addresses and ports of a segment of the load behind the routers: to the server they are translated, to the
/// client those of the connection that has this port.
pub fn belongs(ends: [([u8; 4], u16); 2], to_server: bool) -> bool {
    let server = (SERVER.parse::<Ipv4Addr>().unwrap().octets(), PORT);
    if to_server {
        let [(from, port), to] = ends;
        return from == [198, 51, 100, 1] && port >= FIRST_PORT && to == server;
    }
    let [from, (to, port)] = ends;
    let connection = usize::from(port.wrapping_sub(FIRST_PORT));
    from == server && to == [192, 0, 2, host(connection)]
}

/// Last octet of a connection's client.
fn host(connection: usize) -> u8 {
    101 + (connection % usize::from(CLIENTS)) as u8
}
