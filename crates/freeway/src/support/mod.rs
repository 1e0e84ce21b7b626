// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway support`: what somebody needs who is to help, in one archive. Needs no daemon.

mod archive;
mod collection;
mod daemon;
mod machine;
mod redact;
mod secrets;
mod tool;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use freeway_console::{Stop, bytes, plural, show};
use serde::Serialize;

use self::collection::{Collection, Gathered, Missing};
use crate::cli::SupportArgs;

/// `freeway support --json`.
#[derive(Debug, Serialize)]
pub struct Support {
    /// The archive.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Addresses are made up.
    pub redacted: bool,
    /// What is in it.
    pub files: Vec<Gathered>,
    /// What is not.
    pub missing: Vec<Missing>,
}

/// Gathers, writes, and says what is there.
pub fn run(args: &SupportArgs) -> Result<(), Stop> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now_s.map_or(0, |since| since.as_secs());
    let default = || format!("freeway-support-{}.tar.gz", stamp(now_s)).into();
    let path: PathBuf = args.output.clone().unwrap_or_else(default);
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "; name another one, or remove it",
            _ => "",
        };
        Stop::failure(format!("cannot write {}: {error}{hint}", path.display()))
    };
    let file = create(&path).map_err(failed)?;
    let written = gather(file, now_s, args);
    let (file, files, missing) = written.map_err(|error| {
        // half an archive is none
        let _ = std::fs::remove_file(&path);
        failed(error)
    })?;
    let support = Support {
        bytes: file.metadata().map_or(0, |about| about.len()),
        file: path.display().to_string(),
        redacted: args.redact,
        files,
        missing,
    };
    show(args.show.json, &support, |_| words(&support))
}

/// A new file that only its owner may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

type Written<W> = io::Result<(W, Vec<Gathered>, Vec<Missing>)>;

fn gather<W: Write>(out: W, now_s: u64, args: &SupportArgs) -> Written<W> {
    let mut into = Collection::new(out, now_s, args.redact);
    into.add("README.txt", Ok((readme(args.redact), false)))?;
    let socket = args.show.socket.socket.as_deref();
    let status = daemon::gather(&mut into, socket)?;
    daemon::gather_config(&mut into, args.config.as_deref(), status.as_ref())?;
    machine::gather(&mut into, status.as_ref())?;
    into.finish()
}

fn readme(redacted: bool) -> String {
    let mut text = String::from(
        "What `freeway support` has gathered; missing.txt says what it could not.\n\
         Passwords and keys were left out. What is in comments and names is not judged: look at it.\n",
    );
    if redacted {
        text.push_str(
            "\nAddresses are made up, the same by the same. IPv4 begins with 240 where the other is public, with 250 where it\n\
             is private, with 251 of a link alone, with 252 behind a carrier; IPv6 with 2001:db8:0:0, with 2001:db8:0:fd00 where\n\
             it is private, with 2001:db8:0:fe80 of a link alone; MAC with f2. Lengths of prefixes are the real ones.\n\
             Loopback, netmasks and groups are as they were. A version of four numbers looks like an address.\n",
        );
    }
    text
}

fn words(support: &Support) -> String {
    let mut text = format!(
        "Wrote {}: {}, {}\n",
        support.file,
        plural(support.files.len() as u64, "file"),
        bytes(support.bytes)
    );
    for missing in &support.missing {
        text.push_str(&format!("  without {}: {}\n", missing.name, missing.why));
    }
    text.push_str(match support.redacted {
        true => "Addresses in it are made up; names and rules are not: look at it before you hand it on\n",
        false => "It tells addresses, names and rules: look at it before you hand it on, or use --redact\n",
    });
    text
}

/// Date and time in UTC, for the name of a file.
fn stamp(now_s: u64) -> String {
    let (days, second) = (now_s / 86_400, now_s % 86_400);
    // years that begin in March, of which each 400 have 146,097 days
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}{month:02}{day:02}-{hour:02}{minute:02}{:02}",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_has_date_and_time() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_795_736_388), "20261126-233948");
    }
}
