// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another configuration for a running daemon: whole or not at all.

use std::collections::BTreeSet;

use freeway_api::{Failure, Reloaded};
use freeway_cmm::{Fitness, Served};
use freeway_kernel::model::Link;

use super::Engine;
use super::ports::Within;
use super::ports::judge::managed;
use crate::DaemonError;
use crate::config::{Change, Config, Port, changes, needs_restart};

/// What is to be done about a refusal.
const UNCHANGED: &str = "nothing was changed";

impl Engine {
    /// Goes by another configuration, or says why not.
    pub(super) fn reload(
        &mut self,
        read: Result<Box<Config>, Failure>,
    ) -> Result<Result<Reloaded, Failure>, DaemonError> {
        let checked = read.and_then(|config| {
            let changes = self.applicable(&config)?;
            Ok((config, changes))
        });
        let (config, changes) = match checked {
            Ok(checked) => checked,
            Err(failure) => {
                self.counts.reloads.refused += 1;
                tracing::error!("the configuration is not reloaded: {failure}");
                return Ok(Err(failure));
            }
        };
        let file = config.file.as_ref().map(|file| file.display().to_string());
        self.apply_config(*config, &changes)?;
        self.counts.reloads.applied += 1;
        let changes: Vec<_> = changes.into_iter().map(|change| change.words).collect();
        for change in &changes {
            tracing::info!("configuration: {}", change.words());
        }
        if changes.is_empty() {
            tracing::info!("the configuration was read again: nothing changed");
        }
        Ok(Ok(Reloaded { file, changes }))
    }

    /// What would change, if all of it can change now.
    fn applicable(&self, config: &Config) -> Result<Vec<Change>, Failure> {
        let changes = changes(&self.config, config).map_err(Failure::internal)?;
        let restart: Vec<String> = changes
            .iter()
            .filter(|change| needs_restart(&change.path, &self.config, config))
            .map(|change| match change.line {
                Some(line) => format!("{} (line {line})", change.words.key),
                None => change.words.key.clone(),
            })
            .collect();
        if !restart.is_empty() {
            let file = config.file.as_ref();
            let file = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
            return Err(Failure::unavailable(
                format!("{file}needs a restart: {}", restart.join(", ")),
                UNCHANGED,
            ));
        }
        self.check_names(config)
            .map_err(|fault| Failure::config(fault.to_string(), UNCHANGED))?;
        Ok(changes)
    }

    /// Nothing that is left could be refused any more.
    fn apply_config(&mut self, config: Config, changes: &[Change]) -> Result<(), DaemonError> {
        let changed = |tables: &[&str]| {
            let mut paths = changes.iter().map(|change| &change.path);
            paths.any(|path| path.iter().zip(tables).all(|(one, other)| one == other))
        };
        let concerned = self.concerned(&config, changes);
        if !concerned.is_empty() {
            self.withdraw(&concerned)?;
        }
        self.config = config;
        if changed(&["flows"]) {
            let flows = &self.config.flows;
            self.manager.set_idle(flows.tcp_idle_s, flows.udp_idle_s);
        }
        if changed(&["accounting"]) || changed(&["export"]) {
            self.follow_exports()?;
        }
        if changed(&["policy", "udp_one_way"]) {
            self.set_one_way()?;
        }
        if changed(&["policy"]) {
            self.update_policy()?;
        }
        if changed(&["policy"]) || !concerned.is_empty() {
            // scopes are of ports, and what is dropped or snooped of the policy as well
            self.look_at_sessions();
            self.update_ruleset()?;
            self.update_ports()?;
            self.ask_poller();
        } else if changed(&["port"]) {
            self.update_routes()?;
        }
        if changed(&["scrub"]) {
            self.update_limits()?;
        }
        Ok(())
    }

    /// Links whose programs or paths another configuration may change, and those that lead through them.
    fn concerned(&self, config: &Config, changes: &[Change]) -> BTreeSet<u32> {
        let tables = |link: &Link| {
            // prefix paths come and go beside flows
            let of = |config: &Config| Port {
                routes: true,
                ..config.port.get(&link.name).cloned().unwrap_or_default()
            };
            of(&self.config) != of(config)
        };
        let takes_part = |config: &Config, link: &Link| {
            let chosen = &config.daemon.interfaces;
            (
                chosen.is_empty() || chosen.contains(&link.name),
                chosen.contains(&link.name),
            )
        };
        let bridging = changes
            .iter()
            .any(|change| change.path == ["policy", "bridging"]);
        let bridged = |link: &Link| bridging && Within::of(link) == Within::Bridge;
        let links = self.mirror.links();
        let changed: BTreeSet<u32> = links
            .values()
            .filter(|link| {
                tables(link)
                    || bridged(link)
                    || takes_part(&self.config, link) != takes_part(config, link)
            })
            .map(|link| link.ifindex)
            .collect();
        let through = |link: &&Link| {
            let chain = self.chain(link);
            chain.iter().any(|below| changed.contains(&below.ifindex))
        };
        links
            .values()
            .filter(through)
            .map(|link| link.ifindex)
            .collect()
    }

    /// Flows and paths of these ports leave, before their programs may. They are learned anew.
    pub(super) fn withdraw(&mut self, concerned: &BTreeSet<u32>) -> Result<(), DaemonError> {
        let (now_tick, mut ops) = (self.now_tick()?, Vec::new());
        for ifindex in concerned {
            let link = self.mirror.links().get(ifindex);
            let port = self.ports.by_index.get(ifindex);
            let (Some(link), Some(port)) = (link, port) else {
                continue;
            };
            let unfit = freeway_cmm::Port {
                xdp: Fitness::default(),
                tc: Fitness::default(),
                engine: Served::No,
                ..managed(link, port)
            };
            self.forget_bridged(*ifindex, now_tick, &mut ops);
            self.manager.set_port(unfit, now_tick, &mut ops);
        }
        self.execute(ops)
    }

    /// What a new configuration names must be there, or be named already: of a port that was there at one time the name is
    /// right, and it may come back.
    fn check_names(&self, config: &Config) -> Result<(), freeway_console::Fault> {
        let named = |name: &str| self.config.names_port(name).then_some(false);
        config.check_names(
            |name| self.is_vrf(name).or(named(name)),
            || self.link_names(),
        )
    }

    /// What the command line names must be there.
    pub fn check_ports(&self, interfaces: &[String]) -> Result<(), freeway_console::Fault> {
        let mut config = Config::default();
        config.daemon.interfaces = interfaces.to_vec();
        config.check_names(|name| self.is_vrf(name), || self.link_names())
    }

    /// At the start, ports that the configuration names may be on their way: links of VPNs, sessions and bridges come late.
    pub(super) fn check_kinds(&self) -> Result<(), freeway_console::Fault> {
        self.config.check_kinds(|name| self.is_vrf(name))
    }

    /// Says which are.
    pub(super) fn log_absent(&self) {
        for (path, name) in self.config.absent(|name| self.is_vrf(name).is_some()) {
            let message = format!("{name}: not there now; what is said of it holds when it comes");
            tracing::warn!("{}", self.config.fault(&path, message));
        }
    }

    /// `None`: there is no such link.
    fn is_vrf(&self, name: &str) -> Option<bool> {
        self.mirror.link_by_name(name).map(Link::is_vrf)
    }

    fn link_names(&self) -> Vec<String> {
        let links = self.mirror.links().values();
        links.map(|link| link.name.clone()).collect()
    }
}
