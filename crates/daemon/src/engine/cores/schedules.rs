// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers of the engine's outputs: it is told of them, and flows go by one once it has said that it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use freeway_api::engine::{Scheduled, Schedules};
use freeway_api::schedule::Schedule;
use freeway_cmm::Classes;

use super::numbers::Numbers;

/// What an output is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What its figures are from.
    pub kind: String,
    /// As the engine is told.
    pub schedule: Schedule,
    /// Which class a packet is of.
    pub classes: Arc<Classes>,
}

/// What an engine was told. One message at a time is under way.
#[derive(Debug, Default)]
pub struct Told {
    numbers: Numbers,
    told: BTreeMap<u32, Wanted>,
    /// By these it surely goes.
    held: BTreeMap<u32, Wanted>,
    wanted: BTreeMap<u32, Wanted>,
    /// Of those that it was told.
    refused: BTreeMap<u32, String>,
}

impl Told {
    /// Others are wanted from now on.
    pub fn want(&mut self, wanted: BTreeMap<u32, Wanted>) {
        self.held
            .retain(|port, held| wanted.get(port) == Some(held));
        self.wanted = wanted;
    }

    /// What is to be said now. What flows still go by is not what is taken from the engine: those of `held` are in it, or
    /// have left the table.
    pub fn next(&mut self) -> Option<Schedules> {
        if self.numbers.is_under_way() || self.told == self.wanted {
            return None;
        }
        self.told.clone_from(&self.wanted);
        let schedules = self.told.values().map(|wanted| wanted.schedule.clone());
        Some(Schedules {
            number: self.numbers.next(),
            schedules: schedules.collect(),
        })
    }

    /// By which it surely goes at a port.
    pub fn held(&self, port: u32) -> Option<&Wanted> {
        self.held.get(&port)
    }

    /// Why there is none at a port, though one is wanted.
    pub fn refused(&self, port: u32) -> Option<&str> {
        self.refused.get(&port).map(String::as_str)
    }

    /// What it made of those of that number.
    pub fn taken(&mut self, scheduled: Scheduled) {
        if !self.numbers.taken(scheduled.number) {
            return;
        }
        self.refused.clear();
        self.refused.extend(scheduled.refused);
        let goes_by = self.told.iter().filter(|(port, told)| {
            !self.refused.contains_key(port) && self.wanted.get(port) == Some(told)
        });
        self.held.clear();
        self.held
            .extend(goes_by.map(|(port, told)| (*port, told.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(ports: &[(u32, &str)]) -> BTreeMap<u32, Wanted> {
        let of = |(port, kind): &(u32, &str)| {
            let wanted = Wanted {
                kind: (*kind).into(),
                schedule: Schedule {
                    port: *port,
                    ..Schedule::default()
                },
                classes: Arc::default(),
            };
            (*port, wanted)
        };
        ports.iter().map(of).collect()
    }

    fn taken(number: u64, refused: &[u32]) -> Scheduled {
        let refused = refused.iter().map(|port| (*port, "why".to_owned()));
        Scheduled {
            number,
            refused: refused.collect(),
        }
    }

    #[test]
    fn what_is_new_holds_once_it_is_taken() {
        let mut told = Told::default();
        told.want(wanted(&[(1, "htb"), (2, "tbf")]));
        assert_eq!(told.next().unwrap().number, 1);
        assert!(told.held(1).is_none());
        // one message at a time; a change holds only once it is taken itself
        told.want(wanted(&[(1, "prio"), (2, "tbf")]));
        assert_eq!(told.next(), None);
        told.taken(taken(1, &[]));
        assert!(told.held(1).is_none());
        assert_eq!(told.held(2).unwrap().kind, "tbf");
        assert_eq!(told.next().unwrap().schedules.len(), 2);
        told.taken(taken(2, &[1]));
        assert!(told.held(1).is_none());
        assert_eq!(told.refused(1), Some("why"));
        // gone at once
        told.want(wanted(&[(1, "prio")]));
        assert!(told.held(2).is_none());
        told.next().unwrap();
        told.taken(taken(2, &[]));
        assert!(told.held(1).is_none(), "that was an older one");
        told.taken(taken(3, &[]));
        assert_eq!(told.held(1).unwrap().kind, "prio");
        assert_eq!(told.next(), None);
    }
}
