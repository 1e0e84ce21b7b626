// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway capture`: writes what the daemon sends, and counts what it is.

mod blocks;
mod captured;
mod expression;

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use freeway_api::{CaptureQuery, Client, filter};
use freeway_console::{Exit, Stop};
use nix::unistd::geteuid;

use self::blocks::Blocks;
use self::captured::Captured;
use self::expression::Expression;
use crate::cli::CaptureArgs;
use crate::live::Signals;

/// Until a signal, enough packets, or the daemon's end.
pub fn run(args: &CaptureArgs) -> Result<(), Stop> {
    let usage = |words| Stop::new(Exit::Usage, words);
    let filter = filter::parse(&args.filter).map_err(|e| usage(format!("filter: {e}")))?;
    if filter.state.is_some() {
        return Err(usage("filter: a packet has no state".into()));
    }
    let stdout = args.write == Path::new("-");
    if stdout && (io::stdout().is_terminal() || args.show.json) {
        return Err(usage(
            "standard output is a terminal, or to be JSON: name a file".into(),
        ));
    }
    let query = CaptureQuery {
        filter,
        ports: args.interfaces.clone(),
        bytes: args.bytes,
    };
    if !geteuid().is_root() {
        let words = "only root may capture packets; become root";
        return Err(Stop::new(Exit::Privilege, words));
    }
    let expression = match &args.pcap {
        Some(text) => Some(Expression::compile(text)?),
        None => None,
    };
    // from here on a signal ends the capture, not the program
    let mut signals = Signals::block()?;
    let mut stream = Client::new(args.show.socket.socket.as_deref())?.capture(&query)?;
    let mut out: Box<dyn Write> = match stdout {
        true => Box::new(io::stdout()),
        false => Box::new(create(&args.write).map_err(|error| failed(&args.write, &error))?),
    };
    let mut blocks = Blocks::new(args.count, expression);
    let mut captured = Captured {
        file: args.write.display().to_string(),
        ..Captured::default()
    };
    while let Some(part) = stream.next_part()? {
        let whole = blocks.take(&part, &mut captured).map_err(Stop::failure)?;
        match out.write_all(&whole).and_then(|()| out.flush()) {
            Err(error) if stdout && error.kind() == io::ErrorKind::BrokenPipe => break,
            result => result.map_err(|error| failed(&args.write, &error))?,
        }
        if blocks.are_enough() || signals.came()? {
            break;
        }
    }
    drop(stream);
    if stdout {
        eprint!("{}", captured.words());
        return Ok(());
    }
    freeway_console::show(args.show.json, &captured, |_| captured.words())
}

/// A new file that only its owner may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn failed(path: &Path, error: &io::Error) -> Stop {
    Stop::failure(format!("cannot write {}: {error}", path.display()))
}
