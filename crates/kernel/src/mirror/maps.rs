// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between two tables.

use std::collections::BTreeMap;

use crate::model::*;

/// The events that lead from one map to another.
pub fn maps<K: Ord, V: Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
    changed: impl Fn(V) -> Event,
    gone: impl Fn(V) -> Event,
    events: &mut Vec<Event>,
) {
    let lost = old.iter().filter(|(key, _)| !new.contains_key(key));
    events.extend(lost.map(|(_, value)| gone(value.clone())));
    let news = new
        .iter()
        .filter(|(key, value)| !old.get(key).is_some_and(|old| same(old, value)));
    events.extend(news.map(|(_, value)| changed(value.clone())));
}
