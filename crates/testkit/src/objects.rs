// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process holds in the kernel, by its descriptors.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::until;

/// Kernel objects by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub descriptors: usize,
    pub maps: BTreeSet<u64>,
    pub programs: BTreeSet<u64>,
    /// Id and kind, as the kernel calls it.
    pub links: BTreeSet<(u64, String)>,
}

/// A number, what it is of (`socket:[1234]`), and the ids in its `fdinfo`.
type Descriptor = (OsString, PathBuf, Ids);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ids {
    link: Option<(u64, String)>,
    program: Option<u64>,
    map: Option<u64>,
}

impl Ids {
    fn of(text: &str) -> Self {
        let word = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim().to_owned())
        };
        let id = |name| word(name).map(|value| value.parse::<u64>().unwrap());
        let link = id("link_id").map(|id| (id, word("link_type").unwrap_or_default()));
        Self {
            // a link names its program, too, but does not stand for it
            program: id("prog_id").filter(|_| link.is_none()),
            map: id("map_id"),
            link,
        }
    }
}

fn descriptors(pid: u32) -> BTreeSet<Descriptor> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let entries = std::fs::read_dir(process.join("fd")).unwrap();
    entries
        .filter_map(|entry| {
            let number = entry.unwrap().file_name();
            // either fails for one that is closed meanwhile
            let target = std::fs::read_link(process.join("fd").join(&number)).ok()?;
            let info = std::fs::read_to_string(process.join("fdinfo").join(&number)).ok()?;
            Some((number, target, Ids::of(&info)))
        })
        .collect()
}

impl Objects {
    pub fn of(pid: u32) -> Self {
        Self::behind(descriptors(pid))
    }

    fn behind(descriptors: BTreeSet<Descriptor>) -> Self {
        let mut objects = Self {
            descriptors: descriptors.len(),
            ..Self::default()
        };
        for (_, _, ids) in descriptors {
            objects.links.extend(ids.link);
            objects.programs.extend(ids.program);
            objects.maps.extend(ids.map);
        }
        objects
    }

    /// What it holds all the time: the daemon opens sockets for a moment each second, and a busy machine may
    /// make such a moment long.
    pub fn steady(pid: u32) -> Self {
        let mut kept = descriptors(pid);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(50));
            let now = descriptors(pid);
            kept.retain(|descriptor| now.contains(descriptor));
        }
        Self::behind(kept)
    }

    /// Those of them that the kernel still has.
    fn left(&self) -> Vec<(&'static str, u64)> {
        let ids = |kind: &str| -> BTreeSet<u64> {
            let output = Command::new("bpftool")
                .args(["-j", kind, "show"])
                .output()
                .unwrap();
            let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let all = all.as_array().into_iter().flatten();
            // one that goes while it is listed is an error without an id
            all.filter_map(|object| object["id"].as_u64()).collect()
        };
        let links: BTreeSet<u64> = self.links.iter().map(|(id, _)| *id).collect();
        let kinds = [
            ("map", &self.maps),
            ("prog", &self.programs),
            ("link", &links),
        ];
        kinds
            .into_iter()
            .flat_map(|(kind, mine)| {
                let there = ids(kind);
                let left: Vec<u64> = mine.intersection(&there).copied().collect();
                left.into_iter().map(move |id| (kind, id))
            })
            .collect()
    }

    /// Waits until the kernel has none of them: it frees them after a grace period.
    #[track_caller]
    pub fn wait_gone(&self) {
        assert!(self.maps.len() > 5 && self.programs.len() > 2, "{self:?}");
        let mut left = Vec::new();
        let patience = Duration::from_secs(10);
        until("nothing is left in the kernel", patience, || {
            left = self.left();
            left.is_empty().then_some(())
        });
    }
}
