// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command line says beside the configuration, and ahead of it.

use std::net::SocketAddr;
use std::path::PathBuf;

use freeway_console::Fault;

use crate::config::{Config, LogLevel};

/// Arguments of the daemon.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration's file; `None`: the default one, if it exists.
    pub config: Option<PathBuf>,
    /// Ports to accelerate; empty: as configured.
    pub interfaces: Vec<String>,
    /// Control socket.
    pub socket: Option<PathBuf>,
    /// Address that serves Prometheus metrics.
    pub metrics: Option<SocketAddr>,
    /// How much is logged.
    pub log: Option<LogLevel>,
    /// The daemon that started this one hands over to it, by the socket at standard input.
    pub take_over: bool,
}

impl Options {
    /// The configuration with these in place of its own.
    pub fn read(&self) -> Result<Config, Fault> {
        Ok(self.ahead_of(Config::read(self.config.as_deref())?))
    }

    /// The same of a file that was read before.
    pub fn read_again(&self) -> Result<Config, Fault> {
        Ok(self.ahead_of(Config::read_again(self.config.as_deref())?))
    }

    fn ahead_of(&self, mut config: Config) -> Config {
        let daemon = &mut config.daemon;
        if !self.interfaces.is_empty() {
            daemon.interfaces.clone_from(&self.interfaces);
        }
        daemon.socket = self.socket.clone().or(daemon.socket.take());
        daemon.metrics = self.metrics.or(daemon.metrics);
        daemon.log = self.log.unwrap_or(daemon.log);
        config
    }
}
