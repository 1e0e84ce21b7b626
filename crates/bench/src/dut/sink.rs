// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench sink`: counts at this host what a generator on another sends, for one generator at a time.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use freeway_console::{Stop, plural, progress};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::control::{Lines, is_nothing_yet, printable};
use super::message::{Answer, Counted, Failure, Hello, Request, VERSION};
use super::port::HostPort;
use super::receiver::{Arrived, Local, Receiver};
use super::require_root;
use crate::cli::SinkArgs;

/// A line has to be whole so soon after it began, and the greeting so soon after the connection.
const LINE_PATIENCE: Duration = Duration::from_secs(5);
/// A generator that says nothing for longer than its longest trial takes is gone.
const IDLE_PATIENCE: Duration = Duration::from_secs(180);

/// Counts until it is told to end.
pub fn sink(args: &SinkArgs) -> Result<(), Stop> {
    require_root()?;
    let signals = ending_signals()?;
    let port = HostPort::find(&args.port)?;
    port.check(args.force)?;
    port.check_free()?;
    let cannot = |error: io::Error| {
        let at = args.listen;
        Stop::failure(format!(
            "cannot listen at {at}: {error}: name another --listen"
        ))
    };
    let listener = TcpListener::bind(args.listen).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let at = listener.local_addr().map_err(cannot)?;
    progress(&format!(
        "counting frames at {}, for a generator that connects to {at}",
        port.name()
    ));
    let sink = Sink {
        name: args.port.clone(),
        force: args.force,
        once: args.once,
        signals,
        listener,
        session: None,
    };
    sink.run()
}

/// Signals come as data, so that no call is cut short.
fn ending_signals() -> Result<SignalFd, Stop> {
    let failed = |error: Errno| Stop::failure(format!("cannot wait for signals: {error}"));
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().map_err(failed)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

struct Sink {
    name: String,
    force: bool,
    once: bool,
    signals: SignalFd,
    listener: TcpListener,
    session: Option<Session>,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    end: bool,
    caller: bool,
    line: bool,
}

impl Sink {
    fn run(mut self) -> Result<(), Stop> {
        loop {
            let woken = self.wait()?;
            if woken.end {
                return Ok(());
            }
            if woken.caller {
                self.accept();
            }
            let Some(session) = &mut self.session else {
                continue;
            };
            let Err(end) = session.serve(woken.line, &self.name, self.force) else {
                continue;
            };
            let (peer, greeted) = (session.peer, session.greeted);
            let frames = session.frames;
            // its meter goes with it
            self.session = None;
            match end {
                End::Closed => progress(&format!(
                    "{peer} has left after {}",
                    plural(frames, "frame")
                )),
                End::Fault(why) => progress(&format!("{peer} was sent away: {why}")),
            }
            if self.once && greeted {
                return Ok(());
            }
        }
    }

    fn wait(&self) -> Result<Woken, Stop> {
        let session = self.session.as_ref();
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(session.map(|session| PollFd::new(session.lines.as_fd(), PollFlags::POLLIN)));
        let timeout = session.map_or(PollTimeout::NONE, |session| {
            let left = session.left() + Duration::from_millis(1);
            let left = if session.lines.is_ready() {
                Duration::ZERO
            } else {
                left
            };
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Woken::default()),
            Err(error) => return Err(Stop::failure(format!("cannot wait: {error}"))),
        }
        let is = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        Ok(Woken {
            end: is(0),
            caller: is(1),
            line: is(2),
        })
    }

    fn accept(&mut self) {
        // who has gone again meanwhile is no concern
        let Ok((stream, peer)) = self.listener.accept() else {
            return;
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let _ = stream.set_nodelay(true);
        if let Some(session) = &self.session {
            let busy = format!("it serves {}: wait until that has ended", session.peer);
            let _ = Lines::new(stream).send(&refusal(busy));
            return;
        }
        self.session = Session::begin(stream, peer, &self.name);
    }
}

fn refusal(message: String) -> Answer {
    Answer::Error(Failure { message })
}

/// Why a session is over.
#[derive(Debug)]
enum End {
    Closed,
    Fault(String),
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        End::Fault(stop.to_string())
    }
}

/// A generator's connection.
struct Session {
    peer: SocketAddr,
    lines: Lines,
    greeted: bool,
    receiver: Option<Local>,
    frames: u64,
    /// When the next line has to be there.
    until: Instant,
}

impl Session {
    fn begin(stream: TcpStream, peer: SocketAddr, name: &str) -> Option<Self> {
        let mut lines = Lines::new(stream);
        let hello = Hello {
            version: VERSION,
            port: Some(name.into()),
        };
        lines.send(&Answer::Hello(hello)).ok()?;
        Some(Self {
            peer,
            lines,
            greeted: false,
            receiver: None,
            frames: 0,
            until: Instant::now() + LINE_PATIENCE,
        })
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Reads, and answers at most one line; an error is the session's end.
    fn serve(&mut self, readable: bool, name: &str, force: bool) -> Result<(), End> {
        let done = self.step(readable, name, force);
        if let Err(End::Fault(why)) = &done {
            // who does not listen is not told
            let _ = self.lines.send(&refusal(why.clone()));
        }
        done
    }

    fn step(&mut self, readable: bool, name: &str, force: bool) -> Result<(), End> {
        if readable && !self.lines.is_ready() {
            let had_begun = self.lines.has_begun();
            match self.lines.fill() {
                Ok(0) => return Err(End::Closed),
                Ok(_) if self.greeted && !had_begun => self.until = Instant::now() + LINE_PATIENCE,
                Ok(_) => {}
                Err(error) if is_nothing_yet(&error) => {}
                Err(_) => return Err(End::Closed),
            }
        }
        if let Some(line) = self.lines.take().map_err(End::Fault)? {
            let request = serde_json::from_str(&line).map_err(|error| {
                let why = printable(&error.to_string());
                End::Fault(format!("no request of `freeway bench generator`: {why}"))
            })?;
            let answer = self.answer(request, name, force)?;
            let lost = |error: io::Error| End::Fault(format!("it takes no answer: {error}"));
            self.lines.send(&answer).map_err(lost)?;
            let patience = if self.lines.has_begun() {
                LINE_PATIENCE
            } else {
                IDLE_PATIENCE
            };
            self.until = Instant::now() + patience;
        }
        if self.left().is_zero() {
            return Err(End::Fault("it said nothing for too long".into()));
        }
        Ok(())
    }

    fn answer(&mut self, request: Request, name: &str, force: bool) -> Result<Answer, End> {
        match request {
            Request::Hello(hello) if hello.version == VERSION => {
                self.greeted = true;
                return Ok(Answer::Ready);
            }
            Request::Hello(hello) => {
                return Err(End::Fault(format!(
                    "the generator speaks version {} of the control protocol, this sink version {VERSION}: run the same Freeway on both hosts",
                    hello.version
                )));
            }
            _ if !self.greeted => return Err(End::Fault("no greeting came first".into())),
            Request::Meter(_) if self.receiver.is_some() => {
                // a driver may take its link down for each program
                return Err(End::Fault(
                    "frames are being counted already: connect anew for others".into(),
                ));
            }
            Request::Meter(target) => {
                // addresses may have changed since the start
                let port = HostPort::find(name)?;
                port.check_answers(target.address, force)?;
                port.check_frame(target.frame_bytes)?;
                let to = SocketAddr::new(target.address, target.port);
                self.receiver = Some(Local::attach(&port, to)?);
                progress(&format!("{} sends to {to}", self.peer));
                return Ok(Answer::Ready);
            }
            Request::Clear | Request::Read(_) => {}
        }
        let none = || End::Fault("nothing is being counted: `meter` comes first".into());
        let receiver = self.receiver.as_mut().ok_or_else(none)?;
        let Request::Read(sent) = request else {
            receiver.clear()?;
            return Ok(Answer::Ready);
        };
        let Arrived { metered, late } = receiver.counted(sent.frames)?;
        self.frames = self.frames.saturating_add(metered.frames);
        Ok(Answer::Counted(Counted {
            frames: metered.frames,
            late,
        }))
    }
}
