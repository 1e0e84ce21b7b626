// SPDX-License-Identifier: MIT OR Apache-2.0
//! What daemon and doctor say, and the configuration.

use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freeway_api::{Client, ExplainQuery, Flow, FlowFilter, Proto, Status, TopQuery};
use freeway_console::{Stop, Terminal};
use freeway_daemon::config::{Config, DEFAULT_PATH};

use super::collection::Collection;
use crate::config::keys_of;
use crate::{doctor, render};

/// A daemon that is busier than that is shown without its answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Flows of the table.
const FLOWS: u64 = 1000;
/// Those that are explained.
const EXPLAINED: usize = 8;
/// Of a file.
const FILE_MAX: u64 = 1 << 20;

/// Asks the daemon; its status, if there is one.
pub fn gather<W: Write>(
    into: &mut Collection<W>,
    socket: Option<&Path>,
) -> io::Result<Option<Status>> {
    let client = Client::new(socket).map(|client| client.patience(PATIENCE));
    let asked = client.and_then(|client| client.status().map(|status| (client, status)));
    let (client, status) = match asked {
        Ok(asked) => asked,
        Err(stop) => {
            into.add("daemon", Err(stop.to_string()))?;
            return Ok(None);
        }
    };
    into.add_value("daemon/status.json", Ok(&status))?;
    let terminal = Terminal::PIPE;
    let text = render::status(&status, terminal);
    into.add("daemon/status.txt", Ok((text, false)))?;
    let stats = said(client.stats());
    let text = stats
        .as_ref()
        .map(|stats| render::stats(stats, false, terminal));
    into.add(
        "daemon/stats.txt",
        text.map(|text| (text, false)).map_err(Clone::clone),
    )?;
    into.add_value("daemon/stats.json", stats)?;
    into.add_value("daemon/drops.json", said(client.drops()))?;
    into.add_value("daemon/top.json", said(client.top(TopQuery { flows: 100 })))?;
    into.add_value("daemon/steer.json", said(client.steer(None)))?;
    let flows = said(sample(&client));
    let explained: Vec<_> = flows
        .iter()
        .flatten()
        .filter_map(query)
        .take(EXPLAINED)
        .collect();
    into.add_value("daemon/flows.json", flows)?;
    let explained: Result<Vec<_>, Stop> = explained.iter().map(|q| client.explain(q)).collect();
    into.add_value("daemon/explain.json", said(explained))?;
    for (name, file) in [
        ("command.txt", "cmdline"),
        ("process.txt", "status"),
        ("limits.txt", "limits"),
    ] {
        let text = read(Path::new(&format!("/proc/{}/{file}", status.pid)));
        let text = text.map(|(text, cut)| (text.replace('\0', " "), cut));
        into.add(&format!("daemon/{name}"), text)?;
    }
    Ok(Some(status))
}

/// Gathers configuration and what the doctor says of it.
pub fn gather_config<W: Write>(
    into: &mut Collection<W>,
    file: Option<&Path>,
    status: Option<&Status>,
) -> io::Result<()> {
    let daemons = status
        .and_then(|status| status.config_file.as_ref())
        .map(PathBuf::from);
    let file = file.map(Path::to_path_buf).or(daemons);
    let path = file.clone().unwrap_or_else(|| DEFAULT_PATH.into());
    let raw = regular(&path).and_then(|()| read(&path));
    let is_there = raw.is_ok();
    into.add("config/freeway.toml", raw)?;
    // a pipe that the daemon has read is empty, or waits
    let file = file.filter(|_| is_there);
    let keys = Config::read(file.as_deref())
        .map_err(Stop::from)
        .and_then(keys_of);
    let keys = said(keys).map(|shown| (render::shown(&shown), false));
    into.add("config/effective.toml", keys)?;
    let report = said(doctor::examine(file.as_deref(), &[]));
    let text = report
        .as_ref()
        .map(|report| render::doctor(report, Terminal::PIPE));
    into.add(
        "doctor.txt",
        text.map(|text| (text, false)).map_err(Clone::clone),
    )?;
    into.add_value("doctor.json", report)
}

fn said<T>(result: Result<T, Stop>) -> Result<T, String> {
    result.map_err(|stop| stop.to_string())
}

fn sample(client: &Client) -> Result<Vec<Flow>, Stop> {
    let filter = FlowFilter {
        limit: Some(FLOWS),
        ..FlowFilter::default()
    };
    let mut flows = Vec::new();
    client.flow_stream(&filter)?.each(|flow| {
        flows.push(flow);
        true
    })?;
    Ok(flows)
}

/// One whose ends have ports.
fn query(flow: &Flow) -> Option<ExplainQuery> {
    let has_ports = [Proto::TCP, Proto::UDP].contains(&flow.proto);
    has_ports.then(|| ExplainQuery {
        proto: flow.proto,
        src: SocketAddr::new(flow.src, flow.sport),
        dst: SocketAddr::new(flow.dst, flow.dport),
        watch_ms: 0,
    })
}

/// No pipe or device, which might never end.
fn regular(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(about) if about.is_file() => Ok(()),
        Ok(_) => Err(format!("{} is no regular file", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The beginning of a file, and whether there is more.
pub fn read(path: &Path) -> Result<(String, bool), String> {
    let mut content = Vec::new();
    let file = fs::File::open(path);
    let length = file.and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut content));
    let length = length.map_err(|error| format!("{}: {error}", path.display()))?;
    content.truncate(FILE_MAX as usize);
    let text = String::from_utf8_lossy(&content).into_owned();
    Ok((text, length as u64 > FILE_MAX))
}
