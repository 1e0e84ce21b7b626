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
                    let (family, table, set) = subject.clone();
                    let changes = self.elements.entry(subject).or_default();
                    let few = !changes.truncated;
                    changes.extend(message.kind & 0xff == NEWSETELEM, message.payload);
                    if few && changes.truncated {
                        // it takes the kernel long to tell of all, and what it tells of is done
                        events.push(Event::SetElementsChanged {
                            family,
                            table,
                            set,
                            changes: SetChanges::many(),
                        });
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
                let event = |((family, table, set), changes)| Event::SetElementsChanged {
                    family,
                    table,
                    set,
                    changes,
                };
                events.extend(done.elements.into_iter().map(event));
                return Some(generation);
            }
            TRACE => {}
            _ => self.more = true,
        }
        None
    }
}
