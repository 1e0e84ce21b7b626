// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process holds in the kernel, by its descriptors.

use std::collections::BTreeSet;
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

impl Objects {
    pub fn of(pid: u32) -> Self {
        let mut objects = Self::default();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
            objects.descriptors += 1;
            // closed meanwhile
            let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else {
                continue;
            };
            let word = |name: &str| {
                let mut lines = text.lines().filter_map(|line| line.split_once(':'));
                lines
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.trim().to_owned())
            };
            let id = |name| word(name).map(|value| value.parse::<u64>().unwrap());
            if let Some(link) = id("link_id") {
                objects
                    .links
                    .insert((link, word("link_type").unwrap_or_default()));
            } else if let Some(program) = id("prog_id") {
                objects.programs.insert(program);
            }
            objects.maps.extend(id("map_id"));
        }
        objects
    }

    /// Once nothing comes and goes: the daemon opens sockets for a moment each second.
    pub fn steady(pid: u32) -> Self {
        let mut looks = vec![Self::of(pid)];
        loop {
            std::thread::sleep(std::time::Duration::from_millis(30));
            looks.push(Self::of(pid));
            match &looks[..] {
                [.., a, b, c] if a == b && b == c => return looks.pop().unwrap(),
                _ => {}
            }
        }
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
