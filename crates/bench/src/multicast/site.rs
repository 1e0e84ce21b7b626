// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router between the source and the receivers, and what it does in a turn.

use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{FlowFilter, FlowState, Prefix};
use freeway_console::Stop;
use freeway_lab::ruleset::policies;
use freeway_lab::{
    Family, Fanout, FlowSpec, Generator, Load, NapiThreads, ReferenceGuard, Sink, SinkSpec, Until,
};
use freeway_rig::{Counters, RouterDaemon, pin};

use crate::cli::MulticastArgs;
use crate::router::Router;

/// Before each turn, until caches hold what it needs.
const TURN_WARMUP: Duration = Duration::from_millis(20);
/// Frames still on their way when the generator has ended.
const SETTLE: Duration = Duration::from_millis(10);
/// Frames in which the flow becomes fast, so long at a time,
const WARMUP: Duration = Duration::from_millis(500);
/// until it has or this has passed.
const WARMUP_MAX: Duration = Duration::from_secs(15);
/// What a receiver may miss or have beside its copies: the router speaks, too.
const STRAY_SHARE: f64 = 0.001;
const STRAY: u64 = 64;

/// A router and its hosts. Fields are dropped in order.
pub struct Site<'a> {
    router: Router,
    args: &'a MulticastArgs,
    daemon: Option<RouterDaemon>,
    _broadcast: Option<ReferenceGuard>,
    threads: NapiThreads,
    /// Of the receivers, and of one at the end that nobody serves.
    sinks: Vec<Sink>,
    fanout: Fanout,
}

/// What was counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    cpu: Duration,
    frames: u64,
    /// By receiver, the one who is not served included.
    copies: Vec<u64>,
    dropped: Vec<u64>,
    fast: u64,
}

/// What a turn says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// The router's CPU time.
    pub cpu: Duration,
    /// How long it took.
    pub elapsed: Duration,
    /// Frames of the source.
    pub sent: u64,
    /// Those that the router took; the others found its input's queue full.
    pub frames: u64,
    /// Copies that reached the receivers.
    pub copies: u64,
    /// Frames that Freeway forwarded.
    pub fast: u64,
}

impl Turn {
    /// Nanoseconds of CPU for a copy.
    pub fn ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.copies.max(1) as f64
    }
}

impl Counted {
    fn since(&self, before: &Counted) -> Self {
        let less = |now: &[u64], then: &[u64]| {
            let pairs = now.iter().zip(then);
            pairs.map(|(now, then)| now.saturating_sub(*then)).collect()
        };
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            frames: self.frames.saturating_sub(before.frames),
            copies: less(&self.copies, &before.copies),
            dropped: less(&self.dropped, &before.dropped),
            fast: self.fast.saturating_sub(before.fast),
        }
    }

    /// Says who has another number of copies than there were frames, the last one none; those that a full queue cost are
    /// not amiss.
    fn amiss(&self) -> Option<String> {
        let stray = STRAY + (self.frames as f64 * STRAY_SHARE) as u64;
        let last = self.copies.len().saturating_sub(1);
        let receivers = self.copies.iter().zip(&self.dropped).enumerate();
        let wrong = receivers.filter_map(|(i, (copies, dropped))| {
            let wanted = if i == last { 0 } else { self.frames };
            let (sent, frames) = (copies + dropped, self.frames);
            (sent.abs_diff(wanted) > stray).then(|| {
                let who = if i == last {
                    "the one not served"
                } else {
                    "served"
                };
                format!(
                    "receiver {i} ({who}): {copies} copies and {dropped} lost of {frames} frames"
                )
            })
        });
        let wrong: Vec<_> = wrong.collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }
}

impl<'a> Site<'a> {
    /// The receivers that are served, and one who is not.
    pub fn fanout(args: &MulticastArgs) -> Result<Fanout, Stop> {
        let receivers = args.ports as usize + 1;
        Ok(match args.switch {
            true => Fanout::switch(receivers)?,
            false => Fanout::build(receivers)?,
        })
    }

    /// Makes a router of it.
    pub fn build(router: Router, fanout: Fanout, args: &'a MulticastArgs) -> Result<Self, Stop> {
        let served: Vec<usize> = (0..args.ports as usize).collect();
        let sinks = fanout.receivers().iter();
        let sinks = sinks.map(|port| Sink::attach(port, SinkSpec::plain()));
        let sinks = sinks.collect::<Result<_, _>>()?;
        let threads = fanout.poll_by_threads(args.cpu, args.host_cpu)?;
        for family in [Family::Ipv4, Family::Ipv6] {
            fanout.serve(&fanout.flow(family, args.frame_bytes), &served)?;
        }
        if let Some(rules) = args.rules {
            let nft = fanout.router();
            nft.tool_with_input("nft -f -", &ruleset(rules))?;
        }
        let daemon = (router == Router::Freeway).then(|| start(&fanout, args));
        let broadcast = (router == Router::Broadcast).then(|| fanout.broadcast(&served));
        Ok(Self {
            router,
            args,
            daemon: daemon.transpose()?,
            _broadcast: broadcast.transpose()?,
            threads,
            sinks,
            fanout,
        })
    }

    /// The source's frames.
    pub fn flow(&self, family: Family) -> FlowSpec {
        self.fanout.flow(family, self.args.frame_bytes)
    }

    /// What sends them.
    pub fn generator(&self, family: Family) -> Result<Generator, Stop> {
        Ok(Generator::new(self.fanout.source(), &self.flow(family))?)
    }

    /// Sends until the flow is fast, if it is to be; fails if it does not become so.
    pub fn warm_up(&self, generator: &Generator) -> Result<(), Stop> {
        let Some(daemon) = self.daemon.as_ref().filter(|_| !self.args.refused) else {
            return Ok(());
        };
        let group = generator.spec().far;
        let active = FlowFilter {
            dst: Some(Prefix {
                addr: group,
                len: if group.is_ipv4() { 32 } else { 128 },
            }),
            state: Some(FlowState::Active),
            ..FlowFilter::default()
        };
        let patience = Instant::now() + WARMUP_MAX;
        loop {
            generator.run(&self.full(WARMUP))?;
            if daemon.count(&active)? > 0 {
                return Ok(());
            }
            if Instant::now() > patience {
                let source = generator.spec().near;
                return Err(Stop::failure(format!(
                    "the flow from {source} to {group} did not become fast in {} s (--refused measures without)",
                    WARMUP_MAX.as_secs()
                )));
            }
        }
    }

    /// Sends for so long, as fast as the CPU can.
    pub fn turn(&self, generator: &Generator, duration: Duration) -> Result<Turn, Stop> {
        generator.run(&self.full(TURN_WARMUP))?;
        thread::sleep(SETTLE);
        let before = self.counted()?;
        let sent = generator.run(&self.full(duration))?;
        thread::sleep(SETTLE);
        let counted = self.counted()?.since(&before);
        if let Some(amiss) = counted.amiss() {
            let who = self.router.name();
            return Err(Stop::failure(format!("{who}: wrong copies: {amiss}")));
        }
        Ok(Turn {
            cpu: counted.cpu,
            elapsed: Duration::from_nanos(sent.elapsed_ns),
            sent: sent.frames,
            frames: counted.frames,
            copies: counted.copies.iter().take(self.args.ports as usize).sum(),
            fast: counted.fast,
        })
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }

    fn full(&self, time: Duration) -> Load {
        Load::full(Until::Elapsed(time)).on_cpu(self.args.host_cpu)
    }

    fn counted(&self) -> Result<Counted, Stop> {
        let dropped = self.fanout.outputs().iter();
        let daemon = self.daemon.as_ref().map(RouterDaemon::stats).transpose()?;
        Ok(Counted {
            cpu: self.threads.cpu_time()?,
            frames: Counters::of(self.fanout.input())?.rx_packets,
            copies: self
                .sinks
                .iter()
                .map(|sink| Ok(sink.counts()?.frames))
                .collect::<Result<_, Stop>>()?,
            dropped: dropped
                .map(|port| Ok(Counters::of(port)?.tx_dropped))
                .collect::<Result<_, Stop>>()?,
            fast: daemon.map_or(0, |stats| stats.fast.packets),
        })
    }
}

/// What accepts the source's frames, behind so many rules of each family that do not.
fn ruleset(rules: u32) -> String {
    let [ahead4, ahead6] = [Family::Ipv4, Family::Ipv6].map(|family| policies(family, rules));
    format!(
        "{ahead4}{ahead6}\
         table inet filter {{\n\tchain forward {{\n\
         \t\ttype filter hook forward priority filter; policy drop;\n\
         \t\tct state established,related accept\n\
         \t\tct state invalid drop\n\
         \t\tiifname \"lan0\" accept\n\
         \t}}\n}}\n"
    )
}

fn start(fanout: &Fanout, args: &MulticastArgs) -> Result<RouterDaemon, Stop> {
    let policy = if args.refused {
        "[policy]\nudp = false\n"
    } else {
        ""
    };
    let config = format!("{}\n{policy}", fanout.config_toml(""));
    let daemon = RouterDaemon::start_in(fanout.router(), &fanout.interfaces(), &config)?;
    daemon.require_fast_ports()?;
    pin(daemon.status()?.pid, args.host_cpu)?;
    Ok(daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(copies: &[u64], dropped: &[u64]) -> Counted {
        Counted {
            frames: 100_000,
            copies: copies.to_vec(),
            dropped: dropped.to_vec(),
            ..Counted::default()
        }
    }

    #[test]
    fn each_has_its_copies_and_the_last_has_none() {
        let all = [100_000, 100_001, 99_990, 3];
        assert_eq!(counted(&all, &[0; 4]).amiss(), None);
        assert_eq!(
            counted(&[60_000, 100_000, 0], &[40_000, 0, 0]).amiss(),
            None
        );
        for (copies, who) in [
            ([60_000, 100_000, 0], "receiver 0 (served)"),
            ([100_000, 200_000, 0], "receiver 1 (served)"),
            ([100_000, 100_000, 1_000], "receiver 2 (the one not served)"),
        ] {
            let amiss = counted(&copies, &[0; 3]).amiss().unwrap();
            assert!(amiss.starts_with(who) && !amiss.contains("; "), "{amiss}");
        }
    }

    #[test]
    fn turns_are_differences() {
        let before = counted(&[1, 2], &[3, 4]);
        let after = Counted {
            frames: 100_007,
            ..counted(&[11, 2], &[3, 5])
        };
        let turn = after.since(&before);
        assert_eq!(
            (turn.frames, turn.copies, turn.dropped),
            (7, vec![10, 0], vec![0, 1])
        );
    }
}
