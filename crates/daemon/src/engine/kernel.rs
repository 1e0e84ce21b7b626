// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the kernel, and reading all of it again.

use std::time::{Duration, Instant};

use freeway_kernel::model::{Event, Link, Source};

use super::Engine;
use super::wait::Readable;
use crate::DaemonError;
use crate::error::failure;

/// Rounds of kernel events in one turn: what came while the round before was applied,
pub(super) const ROUNDS: u32 = 8;
/// unless they take long, as those of a flood of connections do: one reads all others' events.
const DRAIN: Duration = Duration::from_millis(10);

impl Engine {
    /// Takes the kernel's events that wait. `since`: they became readable then or later, for nothing but this task
    /// runs on its thread. Returns when it last found none, or at least began to look.
    pub(super) fn drain(
        &mut self,
        kernel: &Readable,
        mut since: Instant,
    ) -> Result<Instant, DaemonError> {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let looking = Instant::now();
            if looking - begun > DRAIN {
                break;
            }
            if !kernel.ready()? {
                return Ok(looking);
            }
            self.kernel_events(since)?;
            since = looking;
        }
        Ok(since)
    }

    /// Takes what the kernel has told until now, in so many rounds at most.
    pub(super) fn hear(&mut self, rounds: u32) -> Result<(), DaemonError> {
        for _ in 0..rounds {
            self.kernel_events(Instant::now())?;
            if !self.mirror.has_more() {
                break;
            }
        }
        Ok(())
    }

    /// `since`: the events became readable then or later; their time begins there.
    pub(super) fn kernel_events(&mut self, since: Instant) -> Result<(), DaemonError> {
        let mut events = Vec::new();
        self.mirror.read(&mut events).map_err(failure)?;
        self.apply(&events, since)?;
        if !events.iter().all(is_of_connection) {
            self.invalidation.record(since.elapsed());
        }
        Ok(())
    }

    /// What changed in the kernel, narrowest first; the order among them does not matter.
    /// `since`: none of them is older.
    pub(super) fn apply(&mut self, events: &[Event], since: Instant) -> Result<(), DaemonError> {
        self.counts.netlink_events += events.len() as u64;
        let mut overrun = false;
        let mut ports = false;
        let mut rules = false;
        let mut leaks = false;
        let mut routed = false;
        let mut elsewhere = false;
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        for event in events {
            tracing::trace!(?event, "kernel");
            leaks |= self.may_change_leaks(event);
            routed |= self.may_change_routed(event);
            elsewhere |= self.standings.heard(event) || self.goes_by_neighbours(event);
            self.routes.heard(event);
            self.hear_of_translations(event);
            match event {
                // all packets of its ports pass it
                Event::LinkChanged(link) if link.is_vrf() => {
                    ports = true;
                    rules = true;
                    self.manager.new_epoch(&mut ops);
                }
                Event::LinkChanged(_)
                | Event::LinkGone { .. }
                | Event::QdiscChanged { .. }
                | Event::FilterChanged { .. }
                | Event::NetconfChanged { .. } => ports = true,
                Event::XfrmChanged => {
                    ports = true;
                    rules = true;
                }
                Event::RulesetChanged { .. } => rules = true,
                // PPP may have closed the family alone (npmode), of which nothing tells
                Event::AddrGone(address) if self.is_ppp(address.ifindex) => {
                    self.manager.new_epoch(&mut ops);
                }
                Event::SetElementsChanged {
                    family,
                    table,
                    set,
                    changes,
                } => {
                    let name = (*family, table.clone(), set.clone());
                    self.scrub_set_changed(&name, changes, since, now_tick);
                    rules |= self.set_changed(&name, changes, now_tick, &mut ops);
                    continue;
                }
                Event::ConnectionDestroyed(connection) => self.accounting.destroyed(connection),
                Event::Overrun {
                    source: Source::Conntrack,
                } => {
                    self.counts.overruns += 1;
                    self.lost.note();
                    continue;
                }
                Event::Overrun { source } => {
                    tracing::warn!(?source, "netlink overrun, reading everything again");
                    self.doubt_scrub()?;
                    overrun = true;
                }
                _ => {}
            }
            if self.bridge_event(event, now_tick, &mut ops) {
                self.manager.new_epoch(&mut ops);
            }
            self.manager.kernel_event(event, now_tick, &mut ops);
        }
        if elsewhere {
            let unknown = Event::RoutesUnknown;
            self.manager.kernel_event(&unknown, now_tick, &mut ops);
        }
        // ahead of a new epoch, in which next hops are confirmed by what was judged before
        if rules || routed {
            self.routes.invalidate();
        }
        if rules {
            self.scrub.doubt_rules();
            // nothing is confirmed or learned under rules that were not looked at
            self.datapath.control.set_learn(0);
        }
        self.execute(ops)?;
        if leaks {
            self.update_leaks()?;
        }
        self.follow_stations()?;
        if ports {
            self.look_at_sessions();
            self.update_policy()?;
            self.update_ruleset()?;
            self.update_ports()?;
            // offloads and names may have changed with the link
            self.ask_poller();
        }
        if rules {
            self.read_ruleset()?;
            self.datapath.control.set_learn(self.on.into());
        }
        // unless ports or rules had it done
        if self.routes.is_held() {
            self.update_routes()?;
        }
        self.follow_routes();
        if overrun {
            self.counts.overruns += 1;
            self.resync()?;
        }
        Ok(())
    }

    /// Multipath routes leave out gateways that are not reachable (`fib_good_nh()`).
    fn goes_by_neighbours(&self, event: &Event) -> bool {
        let by_neighbours = self.polled.sysctls.ipv4_multipath_use_neigh == Some(1);
        by_neighbours && matches!(event, Event::NeighChanged(_) | Event::NeighGone(_))
    }

    fn is_ppp(&self, ifindex: u32) -> bool {
        let link = self.mirror.links().get(&ifindex);
        link.is_some_and(Link::is_ppp)
    }

    /// Start-up again: dumps everything and applies the difference; returns how much that was.
    pub(super) fn resync(&mut self) -> Result<u64, DaemonError> {
        self.counts.resyncs += 1;
        let flows = self.manager.flow_count() as u64;
        let unconfirmed = self.manager.stats().unconfirmed;
        let mut changes = self.ports.lost_programs();
        self.doubt_scrub()?;
        // what the mirror's own reading skips is in what is read next
        self.routes.heard(&Event::Overrun {
            source: Source::Route,
        });
        let begun = Instant::now();
        let events = self.mirror.resync().map_err(failure)?;
        let events: Vec<Event> = events
            .into_iter()
            .filter(|e| !matches!(e, Event::Overrun { .. }))
            .collect();
        changes += events.iter().filter(|e| !is_of_connection(e)).count() as u64;
        self.apply(&events, begun)?;
        let mut ops = Vec::new();
        self.manager.new_epoch(&mut ops);
        self.execute(ops)?;
        self.read_ruleset()?;
        self.update_leaks()?;
        self.update_ports()?;
        self.look_at_routes()?;
        let left = flows.saturating_sub(self.manager.flow_count() as u64);
        Ok(changes + left + self.manager.stats().unconfirmed - unconfirmed)
    }
}

fn is_of_connection(event: &Event) -> bool {
    matches!(
        event,
        Event::ConnectionUpdated(_) | Event::ConnectionDestroyed(_)
    )
}
