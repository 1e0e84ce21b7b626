// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sparklines: the last values of a rate in a few characters.

use std::collections::{HashMap, VecDeque};

/// How many values are shown.
pub const WIDTH: usize = 12;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Where the locale has no blocks.
const ASCII: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];

/// The last values by name.
#[derive(Debug)]
pub struct History {
    values: HashMap<String, VecDeque<f64>>,
    characters: [char; 8],
}

impl Default for History {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            characters: if has_blocks() { BLOCKS } else { ASCII },
        }
    }
}

impl History {
    /// Whatever the locale.
    #[cfg(test)]
    pub fn ascii() -> Self {
        Self {
            values: HashMap::new(),
            characters: ASCII,
        }
    }

    /// A new frame: who is not named in it was at 0.
    pub fn begin(&mut self) {
        for values in self.values.values_mut() {
            values.push_back(0.0);
            if values.len() > WIDTH {
                values.pop_front();
            }
        }
        self.values
            .retain(|_, values| values.iter().any(|value| *value > 0.0));
    }

    /// The frame's value.
    pub fn set(&mut self, name: &str, value: f64) {
        match self.values.get_mut(name) {
            Some(values) => {
                values.pop_back();
                values.push_back(value);
            }
            None => {
                self.values.insert(name.to_owned(), VecDeque::from([value]));
            }
        }
    }

    /// The values as a line, the highest of them at full height; the newest is at the right.
    pub fn line(&self, name: &str) -> String {
        let none = VecDeque::new();
        let values = self.values.get(name).unwrap_or(&none);
        let highest = values.iter().copied().fold(0.0, f64::max);
        let character = |value: &f64| {
            if *value <= 0.0 {
                return ' ';
            }
            let step = (value / highest * 8.0).ceil() as usize;
            self.characters[step.clamp(1, 8) - 1]
        };
        let line: String = values.iter().map(character).collect();
        format!("{line:>WIDTH$}")
    }
}

fn has_blocks() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL")
        .or_else(|| set("LC_CTYPE"))
        .or_else(|| set("LANG"));
    let locale = locale.unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_at_the_right() {
        let mut history = History::default();
        for value in [1.0, 8.0, 4.0] {
            history.begin();
            history.set("a", value);
        }
        history.begin();
        let line = history.line("a");
        assert_eq!(line.chars().count(), WIDTH);
        let shape: Vec<usize> = line
            .trim_start()
            .chars()
            .filter_map(|c| {
                let at = |all: [char; 8]| all.iter().position(|x| *x == c);
                at(BLOCKS).or(at(ASCII))
            })
            .collect();
        assert_eq!(shape, [0, 7, 3]);
        assert!(line.ends_with(' '), "not named in the last frame");
        for _ in 0..WIDTH {
            history.begin();
        }
        assert!(history.values.is_empty(), "forgotten");
    }
}
