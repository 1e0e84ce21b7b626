// SPDX-License-Identifier: MIT OR Apache-2.0
//! What libbpf warns of while an object is loaded: the verifier's last words say more than the error's number.

use std::cell::RefCell;

/// The verifier's words end with what it stumbled on, and sums of its work.
const LINES_MAX: usize = 4;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Forgets what was said before.
pub fn begin() {
    LINES.with_borrow_mut(Vec::clear);
}

/// Notes a warning, which may have many lines: of the verifier's log the last ones.
pub fn note(message: &str) {
    const SUMS: [&str; 3] = ["processed ", "verification time", "stack depth"];
    let idle = |line: &str| {
        let frame =
            line.contains("-- BEGIN PROG LOAD LOG") || line.contains("-- END PROG LOAD LOG");
        frame || line.is_empty() || SUMS.iter().any(|sum| line.starts_with(sum))
    };
    let lines: Vec<_> = message
        .lines()
        .map(str::trim)
        .filter(|line| !idle(line))
        .collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LINES_MAX));
    LINES.with_borrow_mut(|all| {
        all.extend(last.map(|line| (*line).to_owned()));
        let surplus = all.len().saturating_sub(LINES_MAX);
        all.drain(..surplus);
    });
}

/// What was said since the beginning, in one line.
pub fn taken() -> Option<String> {
    let lines = LINES.with_borrow_mut(std::mem::take);
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_words_are_kept() {
        begin();
        assert_eq!(taken(), None);
        let log = (0..40)
            .map(|n| format!("{n}: (85) call x\n"))
            .collect::<String>();
        note(&format!(
            "libbpf: prog 'freeway_xdp': -- BEGIN PROG LOAD LOG --\n{log}invalid func unknown#2002\nprocessed 9 insns\n-- END PROG LOAD LOG --\n"
        ));
        note("libbpf: prog 'freeway_xdp': failed to load: -22\n");
        let words = taken().unwrap();
        assert!(
            words.contains("invalid func unknown#2002; libbpf: prog"),
            "{words}"
        );
        assert!(
            !words.contains("processed") && !words.contains("BEGIN"),
            "{words}"
        );
        assert_eq!(words.split("; ").count(), LINES_MAX, "{words}");
        assert_eq!(taken(), None);
    }
}
