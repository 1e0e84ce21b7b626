// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway config`: a configuration without a daemon.

use freeway_console::{Fault, Stop};
use freeway_daemon::config::Config;
use freeway_kernel::model::Link;
use freeway_kernel::{Mirror, MirrorConfig};
use serde::Serialize;

use crate::cli::ConfigArgs;
use crate::render;

/// `freeway config check --json`.
#[derive(Debug, Default, Serialize)]
pub struct Checked {
    /// The file; `None`: there is none.
    pub file: Option<String>,
    /// The daemon would take it.
    pub ok: bool,
    /// What is wrong, in one line with all that follows.
    pub error: Option<String>,
    /// Where, from 1 on.
    pub line: Option<usize>,
    /// Where in the line.
    pub column: Option<usize>,
    /// With which key.
    pub key: Option<String>,
}

/// `freeway config show --json`.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// The file; `None`: there is none.
    pub file: Option<String>,
    /// All that have a value or could have one.
    pub keys: Vec<Key>,
}

/// A key of a configuration.
#[derive(Debug, Serialize)]
pub struct Key {
    /// With its tables.
    pub key: String,
    /// As TOML writes it; `None`: it is absent.
    pub value: Option<String>,
    /// Its line in the file; `None`: the value is the default.
    pub line: Option<usize>,
}

/// `freeway config check`.
pub fn check(args: &ConfigArgs, elsewhere: bool) -> Result<(), Stop> {
    let read = Config::read(args.file.as_deref());
    let file = match &read {
        Ok(config) => config.file.clone(),
        Err(_) => args.file.clone(),
    };
    let result = read.and_then(|config| match elsewhere {
        true => Ok(()),
        false => check_names(&config),
    });
    let mut checked = Checked {
        file: file.map(|file| file.display().to_string()),
        ok: result.is_ok(),
        ..Checked::default()
    };
    let Err(fault) = result else {
        return freeway_console::show(args.json, &checked, |_| render::checked(&checked));
    };
    if args.json {
        checked.file = checked.file.or(fault.file.clone());
        checked.error = Some(fault.to_string());
        checked.line = fault.place.map(|(line, _)| line);
        checked.column = fault.place.map(|(_, column)| column);
        checked.key.clone_from(&fault.key);
        freeway_console::print_json(&checked)?;
    }
    Err(fault.into())
}

/// The ports that are named must be there. The daemon is not as strict: they may come later.
fn check_names(config: &Config) -> Result<(), Fault> {
    if !config.names_ports() {
        return Ok(());
    }
    let wanted = MirrorConfig {
        conntrack_events: false,
        ..MirrorConfig::default()
    };
    let mirror = Mirror::open_with(wanted).map_err(|error| Fault {
        message: format!(
            "cannot look for the ports here: {error}; become root, or use --elsewhere"
        ),
        ..Fault::default()
    })?;
    let vrf = |name: &str| mirror.link_by_name(name).map(Link::is_vrf);
    let there = || {
        let links = mirror.links().values();
        links.map(|link| link.name.clone()).collect()
    };
    config.check_names(vrf, there)
}

/// `freeway config show`.
pub fn show(args: &ConfigArgs) -> Result<(), Stop> {
    let shown = keys_of(Config::read(args.file.as_deref())?)?;
    freeway_console::show(args.json, &shown, |_| render::shown(&shown))
}

/// Every key with its value.
pub fn keys_of(config: Config) -> Result<Shown, Stop> {
    let entries = config.entries().map_err(Stop::failure)?;
    Ok(Shown {
        file: config.file.map(|file| file.display().to_string()),
        keys: entries
            .into_iter()
            .map(|entry| Key {
                key: entry.key(),
                value: entry.value,
                line: entry.line,
            })
            .collect(),
    })
}
