// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that show something: ask, then print words or JSON.

use std::thread;
use std::time::Duration;

use freeway_api::engine::{DispatchMode, DispatchQuery};
use freeway_api::{
    Client, ExplainQuery, FlowFilter, RoutesQuery, SteerChange, SteerRule, Stream, TopQuery,
    Upgrade,
};
use freeway_console::{Exit, Stop, Terminal, plural, print, show, write};
use serde::Serialize;

use crate::cli::{
    DoctorArgs, ExplainArgs, FlowsArgs, HostsArgs, RoutesArgs, ShowArgs, StatsArgs, StatusArgs,
    SteerAddArgs, SteerMirrorArgs, TopArgs, UpgradeArgs,
};
use crate::doctor;
use crate::doctor::report::Severity;
use crate::live::{self, Room};
use crate::render::{self, History};

/// Flows that `top` asks for: more than fit on most screens.
const TOP_FLOWS: u32 = 100;

/// `freeway status`.
pub fn status(args: &StatusArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let page = |status: &_, room: Room| render::status(status, room.terminal);
    watch(args.watch.watch, args.show.json, || client.status(), page)
}

/// `freeway stats`.
pub fn stats(args: &StatsArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let page = |stats: &_, room: Room| render::stats(stats, args.all, room.terminal);
    watch(args.watch.watch, args.show.json, || client.stats(), page)
}

/// `freeway routes`.
pub fn routes(args: &RoutesArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let query = RoutesQuery {
        address: args.address,
    };
    let page = |routes: &_, room: Room| render::routes(routes, room.terminal);
    let ask = || client.routes(&query);
    watch(args.watch.watch, args.show.json, ask, page)
}

/// `freeway drops`.
pub fn drops(args: &StatusArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let page = |drops: &_, room: Room| render::drops(drops, room.terminal);
    watch(args.watch.watch, args.show.json, || client.drops(), page)
}

/// `freeway hosts`.
pub fn hosts(args: &HostsArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let page = |hosts: &_, room: Room| render::hosts(hosts, args.limit, room.terminal);
    watch(args.watch.watch, args.show.json, || client.hosts(), page)
}

/// `freeway top`.
pub fn top(args: &TopArgs) -> Result<(), Stop> {
    let client = client(&args.show)?;
    let interval = Duration::from_secs_f64(args.interval);
    let ask = || client.top(TopQuery { flows: TOP_FLOWS });
    if args.once || args.show.json || !live::in_place() {
        let mut top = ask()?;
        if top.interval_s == 0.0 {
            // nobody asked before: the daemon begins to count
            thread::sleep(interval);
            top = ask()?;
        }
        return show(args.show.json, &top, |terminal| {
            let mut history = History::default();
            render::remember(&mut history, &top);
            render::top(&top, &history, terminal)
        });
    }
    crate::top::run(interval, ask)
}

/// `freeway flows`.
pub fn flows(args: &FlowsArgs) -> Result<(), Stop> {
    let mut words = args.filter.clone();
    let mut seconds = args.watch;
    if seconds.is_some() {
        seconds = take_seconds(&mut words).or(seconds);
    }
    let filter = freeway_api::filter::parse(&words)
        .map_err(|words| Stop::new(Exit::Usage, format!("filter: {words}")))?;
    let mut filter = FlowFilter {
        limit: args.limit,
        ..filter
    };
    let client = client(&args.show)?;
    let Some(seconds) = seconds else {
        return list(client.flow_stream(&filter)?, args.show.json);
    };
    if args.show.json {
        loop {
            let mut answer = Vec::new();
            let mut stream = client.flow_stream(&filter)?;
            while let Some(part) = stream.next_part()? {
                answer.extend(part.iter().filter(|byte| **byte != b'\n'));
            }
            answer.push(b'\n');
            if !write(&answer)? {
                return Ok(());
            }
            thread::sleep(Duration::from_secs_f64(seconds));
        }
    }
    live::show(Duration::from_secs_f64(seconds), |room| {
        if let Some(lines) = room.lines {
            // three lines each, and what ends the list
            let fit = (lines.saturating_sub(2) / 3) as u64;
            filter.limit = Some(args.limit.map_or(fit, |limit| limit.min(fit)));
        }
        let mut text = String::new();
        let mut shown = 0;
        let total = client.flow_stream(&filter)?.each(|flow| {
            shown += 1;
            text.push_str(&render::flow(&flow, room.terminal));
            true
        })?;
        text.push_str(&render::tail(shown, total.unwrap_or(shown)));
        Ok(text)
    })
}

/// `--watch 5` is read as `--watch` and a word before or behind the filter's pairs.
fn take_seconds(words: &mut Vec<String>) -> Option<f64> {
    let pairs = words.iter().filter(|word| *word != "and").count();
    let number = |word: &String| word.parse::<f64>().ok().map(|s| s.clamp(0.1, 3600.0));
    if pairs % 2 == 0 {
        return None;
    }
    if let Some(seconds) = words.first().and_then(number) {
        words.remove(0);
        return Some(seconds);
    }
    let seconds = words.last().and_then(number)?;
    words.pop();
    Some(seconds)
}

/// The table as it arrives.
fn list(mut stream: Stream, json: bool) -> Result<(), Stop> {
    if json {
        // as the daemon writes it: one flow on a line
        while let Some(part) = stream.next_part()? {
            if !write(&part)? {
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
        match write(render::flow(&flow, terminal).as_bytes()) {
            Ok(goes_on) => goes_on,
            Err(stop) => {
                failed = Err(stop);
                false
            }
        }
    })?;
    failed?;
    match total {
        Some(total) => print(&render::tail(shown, total)),
        None => Ok(()),
    }
}

/// `freeway explain`.
pub fn explain(args: &ExplainArgs) -> Result<(), Stop> {
    let watch_ms = (args.watch * 1000.0) as u32;
    let query = ExplainQuery::of(args.proto, args.src, args.dst, args.id, watch_ms)
        .map_err(|words| Stop::new(Exit::Usage, words))?;
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

/// `freeway steer`.
pub fn steer(args: &ShowArgs, change: Option<&SteerChange>) -> Result<(), Stop> {
    let steering = client(args)?.steer(change)?;
    show(args.json, &steering, |_| render::steering(&steering))
}

/// `freeway steer add`.
pub fn steer_add(args: SteerAddArgs) -> Result<(), Stop> {
    let rule = |filter| SteerRule::of(args.path, filter);
    add_rule(&args.show, &args.filter, args.at, rule)
}

/// `freeway steer mirror`.
pub fn steer_mirror(args: SteerMirrorArgs) -> Result<(), Stop> {
    let rule = |filter| SteerRule::to_mirror(args.mirror, filter);
    add_rule(&args.show, &args.filter, args.at, rule)
}

fn add_rule(
    args: &ShowArgs,
    filter: &[String],
    at: Option<usize>,
    rule: impl FnOnce(FlowFilter) -> Result<SteerRule, String>,
) -> Result<(), Stop> {
    let rule = freeway_api::filter::parse(filter).and_then(rule);
    let rule = rule.map_err(|what| Stop::new(Exit::Usage, what))?;
    steer(args, Some(&SteerChange::Add { rule, at }))
}

/// `freeway engine dispatch`.
pub fn dispatch(args: &ShowArgs, change: Option<(String, DispatchMode)>) -> Result<(), Stop> {
    let query = change.map(|(port, mode)| DispatchQuery { port, mode });
    let dispatching = client(args)?.dispatch(query.as_ref())?;
    show(args.json, &dispatching, |_| {
        render::dispatching(&dispatching)
    })
}

/// `freeway flush`.
pub fn flush(args: &ShowArgs) -> Result<(), Stop> {
    let flushed = client(args)?.flush()?;
    show(args.json, &flushed, |_| {
        format!("Removed {}\n", plural(flushed.flows, "flow"))
    })
}

/// `freeway reload`.
pub fn reload(args: &ShowArgs) -> Result<(), Stop> {
    let reloaded = client(args)?.reload()?;
    show(args.json, &reloaded, |_| render::reloaded(&reloaded))
}

/// `freeway upgrade`.
pub fn upgrade(args: &UpgradeArgs) -> Result<(), Stop> {
    let upgraded = client(&args.show)?.upgrade(Upgrade {
        timeout_s: args.timeout,
    })?;
    show(args.show.json, &upgraded, |_| render::upgraded(&upgraded))
}

/// `freeway resync`.
pub fn resync(args: &ShowArgs) -> Result<(), Stop> {
    let resynced = client(args)?.resync()?;
    show(args.json, &resynced, |_| match resynced.changes {
        0 => "The daemon was in step with the kernel\n".into(),
        changes => format!("Put right: {}\n", plural(changes, "change")),
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

/// Asks and shows, once or every so many seconds; JSON is then one object on each line.
fn watch<T: Serialize>(
    seconds: Option<f64>,
    json: bool,
    ask: impl Fn() -> Result<T, Stop>,
    page: impl Fn(&T, Room) -> String,
) -> Result<(), Stop> {
    let Some(seconds) = seconds else {
        let value = ask()?;
        let lines = None;
        return show(json, &value, |terminal| {
            page(&value, Room { terminal, lines })
        });
    };
    let interval = Duration::from_secs_f64(seconds);
    if !json {
        return live::show(interval, |room| Ok(page(&ask()?, room)));
    }
    loop {
        let text =
            serde_json::to_string(&ask()?).map_err(|error| Stop::failure(error.to_string()))?;
        if !write((text + "\n").as_bytes())? {
            return Ok(());
        }
        thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_stand_before_or_behind_the_filter() {
        let take = |line: &str| {
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            (take_seconds(&mut words), words.join(" "))
        };
        assert_eq!(take("5"), (Some(5.0), String::new()));
        assert_eq!(take("dport 443 2"), (Some(2.0), "dport 443".into()));
        assert_eq!(take("0.01 dport 443"), (Some(0.1), "dport 443".into()));
        assert_eq!(take("dport 443"), (None, "dport 443".into()));
        assert_eq!(
            take("proto tcp and dport 443 3"),
            (Some(3.0), "proto tcp and dport 443".into())
        );
        assert_eq!(take(""), (None, String::new()));
        assert_eq!(take("proto"), (None, "proto".into()));
    }
}
