// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifications of a ruleset commit (`nf_tables_commit`): the changed objects, then NFT_MSG_NEWGEN.

use std::collections::BTreeMap;

use super::{SetChanges, decode};
use crate::message::Message;
use crate::model::Event;

const SUBSYS: u16 = 10;
const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;
const NEWGEN: u16 = 15;
const TRACE: u16 = 17;

/// What a commit has told of so far.
#[derive(Debug, Default)]
pub struct Transaction {
    elements: BTreeMap<(u8, String, String), SetChanges>,
    more: bool,
}

impl Transaction {
    /// Takes in one notification. At the end of the commit appends the events and returns the generation.
    pub fn apply(&mut self, message: &Message<'_>, events: &mut Vec<Event>) -> Option<u32> {
        if message.kind >> 8 != SUBSYS {
            return None;
        }
        match message.kind & 0xff {
            NEWSETELEM | DELSETELEM => match decode::elements_subject(message.payload) {
                Some(subject) => {
                    let added = message.kind & 0xff == NEWSETELEM;
                    let changes = self.elements.entry(subject.clone()).or_default();
                    // what left goes before what came: another order is another event
                    if !added && !changes.added.is_empty() {
                        let before = changes.take();
                        events.push(event(subject.clone(), before));
                    }
                    let changes = self.elements.entry(subject.clone()).or_default();
                    changes.extend(added, message.payload);
                    if changes.is_full() {
                        // what it tells of is done, and telling of all may take long
                        changes.truncated = true;
                        let many = changes.take();
                        events.push(event(subject, many));
                    }
                }
                None => self.more = true,
            },
            NEWGEN => {
                let done = std::mem::take(self);
                let generation = decode::generation(message.payload)?;
                if done.more || done.elements.is_empty() {
                    events.push(Event::RulesetChanged { generation });
                }
                let rest = done
                    .elements
                    .into_iter()
                    .filter(|(_, rest)| !rest.is_empty());
                events.extend(rest.map(|(subject, rest)| event(subject, rest)));
                return Some(generation);
            }
            TRACE => {}
            _ => self.more = true,
        }
        None
    }
}

fn event((family, table, set): (u8, String, String), changes: SetChanges) -> Event {
    Event::SetElementsChanged {
        family,
        table,
        set,
        changes,
    }
}
