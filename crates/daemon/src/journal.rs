// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines with fields for systemd's journal, by its native protocol.
//!
//! A field of a log line is one of the entry: `port` is `PORT`, by which `journalctl PORT=lan0` finds it.

use std::fmt::{Debug, Write as _};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Longer values are cut, so that an entry fits into a datagram of the smallest buffer.
const VALUE_MAX: usize = 16 << 10;

/// The journal.
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// The journal, if standard error leads there.
    pub fn of_stderr() -> Option<Self> {
        let named = std::env::var("JOURNAL_STREAM").ok()?;
        if !is_stream(&named, io::stderr()) {
            return None;
        }
        Self::at(Path::new(SOCKET)).ok()
    }

    fn at(path: &Path) -> io::Result<Self> {
        // by path each time, for a journal that was started again is another one
        UnixDatagram::unbound()?.connect(path)?;
        let socket = UnixDatagram::unbound()?;
        // a journal that does not read must not hold up the packets
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.into(),
        })
    }
}

/// `named`: device and inode, `DEV:INODE`.
fn is_stream(named: &str, stream: impl AsFd) -> bool {
    fstat(stream.as_fd()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let mut entry = Entry::default();
        event.record(&mut entry);
        let message = entry.message + &entry.words;
        let mut whole = Vec::new();
        put(&mut whole, "MESSAGE", &message);
        put(&mut whole, "PRIORITY", priority(*meta.level()));
        put(&mut whole, "SYSLOG_IDENTIFIER", "freeway");
        put(&mut whole, "CODE_MODULE", meta.target());
        if let (Some(file), Some(line)) = (meta.file(), meta.line()) {
            put(&mut whole, "CODE_FILE", file);
            put(&mut whole, "CODE_LINE", &line.to_string());
        }
        whole.extend(entry.fields);
        if self.socket.send_to(&whole, &self.path).is_err() {
            // standard error leads there, too; that it cannot be written nobody could read
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
}

/// As syslog(3) numbers them.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// What a log line says.
#[derive(Default)]
struct Entry {
    message: String,
    /// The fields behind the message, as on a terminal.
    words: String,
    /// The fields as the journal takes them.
    fields: Vec<u8>,
}

impl Visit for Entry {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.into();
            return;
        }
        // writing to a string cannot fail
        let _ = write!(self.words, " {}={value}", field.name());
        put(&mut self.fields, &name_of(field.name()), value);
    }
}

/// Capitals, digits and underscores, the last not in front.
fn name_of(field: &str) -> String {
    let name = field.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
        _ => '_',
    });
    let name: String = name.collect();
    name.trim_start_matches(['_', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
        .into()
}

fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    let mut end = value.len().min(VALUE_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let value = &value[..end];
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        // its length, little-endian, in place of the equals sign
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    fn logged(say: impl FnOnce()) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), say);
        let mut entry = vec![0; 1 << 18];
        let length = socket.recv(&mut entry).unwrap();
        entry.truncate(length);
        entry
    }

    #[test]
    fn fields_are_fields_of_the_entry() {
        let entry = logged(|| {
            let reason = "a packet socket";
            tracing::warn!(port = "lan0", reason, number = 7, "left to the kernel");
        });
        let text = String::from_utf8(entry).unwrap();
        let lines: Vec<_> = text.lines().filter(|l| !l.starts_with("CODE_")).collect();
        assert_eq!(
            lines,
            [
                "MESSAGE=left to the kernel port=lan0 reason=a packet socket number=7",
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=freeway",
                "PORT=lan0",
                "REASON=a packet socket",
                "NUMBER=7"
            ]
        );
        assert!(
            text.contains("CODE_MODULE=freeway_daemon::journal"),
            "{text}"
        );
    }

    #[test]
    fn lines_within_a_value_begin_no_field() {
        let entry = logged(|| tracing::info!(reason = "a\nPRIORITY=0", "two"));
        let framed = b"REASON\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\n";
        assert!(entry.windows(framed.len()).any(|part| part == framed));
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let entry = logged(|| tracing::info!("{}", "\u{fc}".repeat(VALUE_MAX) + "x"));
        let text = String::from_utf8(entry).unwrap();
        assert_eq!(
            text.lines().next().unwrap().len(),
            "MESSAGE=".len() + VALUE_MAX
        );
    }

    #[test]
    fn names_are_as_the_journal_wants_them() {
        assert_eq!(name_of("log.target"), "LOG_TARGET");
        assert_eq!(name_of("_2nd"), "ND");
    }

    #[test]
    fn another_stream_is_not_the_journal() {
        let (reader, writer) = io::pipe().unwrap();
        let stat = fstat(&writer).unwrap();
        let named = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_stream(&named, &reader), "both ends are of one pipe");
        assert!(!is_stream(&named, io::stdin()));
        assert!(!is_stream("8:x", &writer));
    }
}
