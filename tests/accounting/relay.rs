// SPDX-License-Identifier: MIT OR Apache-2.0
//! A collector over TCP that hands each message on over UDP.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};

use freeway_lab::Netns;
use freeway_testkit::*;

use crate::PATIENCE;
use crate::collectors::waiting;

const HOST: &str = "192.0.2.2";
/// A socket has more by default.
const ROOM: u64 = 64 << 10;

/// It ends with the connection that was made to it; dropping it waits for that.
pub struct Relay(Option<JoinHandle<()>>);

impl Relay {
    pub fn start(netns: &Netns, port: u16, to: u16) -> Relay {
        let at = |port| -> SocketAddr { address(&format!("{HOST}:{port}")) };
        let listener = listen(netns, at(port));
        let out = udp(netns, at(0));
        out.connect(at(to)).unwrap();
        let netns = netns.clone();
        let work = move || {
            let (mut stream, _) = listener.accept().unwrap();
            while let Some(message) = message(&mut stream) {
                until("the collector has room", PATIENCE, || {
                    // a list of sockets that is read while others come and go may lack some
                    waiting(&netns, to).filter(|waiting| *waiting < ROOM)
                });
                out.send(&message).unwrap();
            }
        };
        Relay(Some(thread::spawn(work)))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // whoever sends to it may still be there
        if !thread::panicking() {
            let ended = self.0.take().map(JoinHandle::join);
            assert!(matches!(ended, Some(Ok(()))));
        }
    }
}

/// A message says how long it is; `None`: the sender has ended.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 4];
    stream.read_exact(&mut message).ok()?;
    assert_eq!(message[..2], [0, 10], "the version");
    let length = usize::from(u16::from_be_bytes([message[2], message[3]]));
    message.resize(length, 0);
    stream.read_exact(&mut message[4..]).unwrap();
    Some(message)
}
