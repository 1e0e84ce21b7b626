// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of text: headings, aligned columns, wrapped words.

use super::terminal::Terminal;

/// What a word means, as a colour where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Someone should look at it.
    Warn,
    /// Something is wrong.
    Bad,
    /// A heading.
    Head,
}

/// A page of text that grows.
#[derive(Debug)]
pub struct Page {
    terminal: Terminal,
    text: String,
}

impl Page {
    /// An empty page.
    pub fn new(terminal: Terminal) -> Page {
        Page {
            terminal,
            text: String::new(),
        }
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.text
    }

    /// `text` in the colour of its tone; nothing else changes, so measure before.
    pub fn tone(&self, tone: Tone, text: &str) -> String {
        if !self.terminal.color {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Head => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// An empty line, unless the page is empty.
    pub fn gap(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    /// A heading after a gap.
    pub fn head(&mut self, text: &str) {
        self.gap();
        let text = self.tone(Tone::Head, text);
        self.line(&text);
    }

    /// A line as it is.
    pub fn line(&mut self, text: &str) {
        self.text.push_str(&text.trim_end().replace(TIE, " "));
        self.text.push('\n');
    }

    /// A paragraph, wrapped; lines after the first are indented by `indent` more than the first.
    pub fn words(&mut self, first: &str, text: &str) {
        let indent = visible(first);
        let room = self.terminal.width.saturating_sub(indent).max(20);
        for (number, line) in wrap(text, room).iter().enumerate() {
            let start = if number == 0 {
                first.to_owned()
            } else {
                " ".repeat(indent)
            };
            self.line(&format!("{start}{line}"));
        }
    }

    /// Rows of columns, each as wide as its widest cell; the last column wraps. Cells may carry colours. `right` says
    /// which columns are flush right.
    pub fn table(&mut self, indent: usize, right: &[usize], rows: &[Vec<String>]) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                rows.iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| visible(cell))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in rows {
            let mut start = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let last = column + 1 == row.len();
                if last && column + 1 == columns && !right.contains(&column) {
                    break;
                }
                let pad = " ".repeat(widths[column].saturating_sub(visible(cell)));
                if right.contains(&column) {
                    start.push_str(&pad);
                    start.push_str(cell);
                } else {
                    start.push_str(cell);
                    start.push_str(&pad);
                }
                if column + 1 < columns {
                    start.push_str("  ");
                }
            }
            match row.last() {
                Some(cell) if row.len() == columns && !right.contains(&(columns - 1)) => {
                    self.words(&start, cell)
                }
                _ => self.line(&start),
            }
        }
    }
}

/// Characters that take room: all but escape sequences.
fn visible(text: &str) -> usize {
    let mut count = 0;
    let mut escape = false;
    for character in text.chars() {
        match character {
            '\x1b' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            _ => count += 1,
        }
    }
    count
}

/// Holds two words together on a line.
pub const TIE: &str = "\u{a0}";

/// Breaks at spaces but not at ties; a word that is too long has a line of its own. There is at least one line.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if visible(line) + 1 + visible(word) <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_wrap() {
        let mut page = Page::new(Terminal {
            width: 40,
            color: false,
        });
        page.table(
            2,
            &[1],
            &[
                vec![
                    "a".into(),
                    "1".into(),
                    "one two three four five six seven eight".into(),
                ],
                vec!["long".into(), "1,000".into(), "x".into()],
            ],
        );
        let expected = "  a         1  one two three four five\n                 six seven eight\n  long  1,000  x\n";
        let expected = expected.replace("                 six", "               six");
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn colours_take_no_room() {
        let page = Page::new(Terminal {
            width: 40,
            color: true,
        });
        assert_eq!(visible(&page.tone(Tone::Good, "fast")), 4);
        assert_eq!(Page::new(Terminal::PIPE).tone(Tone::Bad, "x"), "x");
    }
}
