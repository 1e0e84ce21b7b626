// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that show something: ask, then print words or JSON.

use serde::Serialize;

use crate::api::{ExplainQuery, FlowFilter};
use crate::cli::{DoctorArgs, ExplainArgs, FlowsArgs, ShowArgs, StatsArgs};
use crate::client::Client;
use crate::doctor::Severity;
use crate::exit::{Exit, Stop};
use crate::render::{self, Terminal, plural};
use crate::{doctor, filter};

/// `freeway status`.
pub fn status(args: &ShowArgs) -> Result<(), Stop> {
    let status = client(args)?.status()?;
    show(args.json, &status, |terminal| {
        render::status(&status, terminal)
    })
}

/// `freeway stats`.
pub fn stats(args: &StatsArgs) -> Result<(), Stop> {
    let stats = client(&args.show)?.stats()?;
    show(args.show.json, &stats, |terminal| {
        render::stats(&stats, args.all, terminal)
    })
}

/// `freeway flows`.
pub fn flows(args: &FlowsArgs) -> Result<(), Stop> {
    let filter = filter::parse(&args.filter)
        .map_err(|words| Stop::new(Exit::Usage, format!("filter: {words}")))?;
    let filter = FlowFilter {
        limit: args.limit,
        ..filter
    };
    let mut stream = client(&args.show)?.flow_stream(&filter)?;
    if args.show.json {
        // as the daemon writes it: one flow on a line
        while let Some(part) = stream.next_part()? {
            if !render::write(&part)? {
                break;
            }
        }
        return Ok(());
    }
    let terminal = Terminal::stdout();
    let mut shown = 0;
    let mut failed = Ok(());
    let total = stream.each(|flow| {
        shown += 1;
        match render::write(render::flow(&flow, terminal).as_bytes()) {
            Ok(goes_on) => goes_on,
            Err(stop) => {
                failed = Err(stop);
                false
            }
        }
    })?;
    failed?;
    match total {
        Some(total) => render::print(&render::tail(shown, total)),
        None => Ok(()),
    }
}

/// `freeway explain`.
pub fn explain(args: &ExplainArgs) -> Result<(), Stop> {
    if args.src.is_ipv4() != args.dst.is_ipv4() {
        return Err(Stop::new(
            Exit::Usage,
            "source and destination are of different families",
        ));
    }
    let query = ExplainQuery {
        proto: args.proto,
        src: args.src,
        dst: args.dst,
        watch_ms: (args.watch * 1000.0) as u32,
    };
    let explain = client(&args.show)?.explain(&query)?;
    show(args.show.json, &explain, |terminal| {
        render::explain(&explain, terminal)
    })
}

/// `freeway on` and `off`.
pub fn switch(args: &ShowArgs, on: bool) -> Result<(), Stop> {
    let switched = client(args)?.switch(on)?;
    let already = if switched.was_on == switched.on {
        "already "
    } else {
        ""
    };
    let word = if switched.on {
        "on"
    } else {
        "off: the kernel forwards everything"
    };
    show(args.json, &switched, |_| {
        format!("The fast path is {already}{word}\n")
    })
}

/// `freeway flush`.
pub fn flush(args: &ShowArgs) -> Result<(), Stop> {
    let flushed = client(args)?.flush()?;
    show(args.json, &flushed, |_| {
        format!("Removed {}\n", plural(flushed.flows, "flow"))
    })
}

/// `freeway doctor`.
pub fn doctor(args: &DoctorArgs) -> Result<(), Stop> {
    let report = doctor::examine(args.config.as_deref(), &args.interfaces)?;
    show(args.json, &report, |terminal| {
        render::doctor(&report, terminal)
    })?;
    if report.worst == Severity::Problem {
        return Err(Stop::failure(
            "something keeps Freeway from running here, see above",
        ));
    }
    Ok(())
}

fn client(args: &ShowArgs) -> Result<Client, Stop> {
    Client::new(args.socket.socket.as_deref())
}

fn show(
    json: bool,
    value: &impl Serialize,
    text: impl FnOnce(Terminal) -> String,
) -> Result<(), Stop> {
    if json {
        render::print_json(value)
    } else {
        render::print(&text(Terminal::stdout()))
    }
}
