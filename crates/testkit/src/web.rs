// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway web` under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use freeway_lab::Netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{freeway, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A page that is served; dropping it ends it.
pub struct Web {
    pub child: Child,
    pub address: SocketAddr,
    netns: Option<Netns>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// In a network namespace, or in this one; waits until it listens.
    pub fn start(netns: Option<&Netns>, arguments: &[&str]) -> Web {
        let mut command = freeway();
        command
            .arg("web")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = match netns {
            Some(netns) => netns.spawn(&mut command).unwrap(),
            None => command.spawn().unwrap(),
        };
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let address = until("the page's address", PATIENCE, || {
            let log = log.lock().unwrap();
            let lines = log.iter();
            let mut named = lines.filter_map(|line| line.split_once("the page is at http://"));
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{arguments:?}: {log:?}");
            named.next()?.1.strip_suffix('/')?.parse().ok()
        });
        Web {
            child,
            address,
            netns: netns.cloned(),
            log,
        }
    }

    /// Connects to it.
    pub fn connect(&self) -> TcpStream {
        let connect = || TcpStream::connect(self.address);
        let stream = match &self.netns {
            Some(netns) => netns.enter(connect).unwrap(),
            None => connect(),
        };
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks as a program would: the lines of the head without the last, empty one, and a body. The status, and all that is said.
    #[track_caller]
    pub fn ask(&self, lines: &[&str], body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let length = format!("Content-Length: {}", body.len());
        let head = [lines, &[&length, "", ""]].concat().join("\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.unwrap_or_default(), answer)
    }

    /// Waits until the log has a line with these words.
    #[track_caller]
    pub fn wait_said(&self, words: &str) {
        until(words, PATIENCE, || {
            let log = self.log.lock().unwrap();
            log.iter().any(|line| line.contains(words)).then_some(())
        });
    }

    /// All that the log has.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Ends it as an administrator would.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).unwrap();
        until("the page's end", PATIENCE, || {
            self.child.try_wait().unwrap()
        })
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
