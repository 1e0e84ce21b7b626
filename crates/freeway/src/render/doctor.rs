// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `freeway doctor`.

use freeway_console::{Page, Terminal, Tone};

use crate::doctor::report::{Report, Severity};

/// The whole page.
pub fn doctor(report: &Report, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let mut area = None;
    for finding in &report.findings {
        if area != Some(&finding.area) {
            area = Some(&finding.area);
            let mut heading = finding.area.clone();
            if let Some(first) = heading.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            page.head(&heading);
        }
        let (tone, mark) = match finding.severity {
            Severity::Good => (Tone::Good, "ok  "),
            Severity::Note => (Tone::Head, "note"),
            Severity::Warning => (Tone::Warn, "warn"),
            Severity::Problem => (Tone::Bad, "BAD "),
        };
        let mark = page.tone(tone, mark);
        page.words(&format!("  {mark}  "), &finding.words);
        if let Some(advice) = &finding.advice {
            page.words("        > ", advice);
        }
    }
    page.gap();
    let (tone, summary) = match report.worst {
        Severity::Good | Severity::Note => (Tone::Good, "Freeway can run here."),
        Severity::Warning => (
            Tone::Warn,
            "Freeway can run here, but some traffic stays in the kernel.",
        ),
        Severity::Problem => (
            Tone::Bad,
            "Freeway cannot run here until this is solved: see BAD above.",
        ),
    };
    let summary = page.tone(tone, summary);
    page.words("", &summary);
    if !report.complete {
        page.words("", "Not everything could be seen: run it as root.");
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Finding;
    use freeway_testkit::check_fits;

    #[test]
    fn advice_follows_its_finding() {
        let finding = |area: &str, severity, advice: Option<&str>| Finding {
            area: area.into(),
            severity,
            words:
                "something that takes a good many words to say, so many that it does not fit a line"
                    .into(),
            advice: advice.map(str::to_owned),
        };
        let report = Report {
            complete: false,
            worst: Severity::Warning,
            findings: vec![
                finding("kernel", Severity::Good, None),
                finding(
                    "port lan0",
                    Severity::Warning,
                    Some("ethtool -K lan0 lro off"),
                ),
            ],
        };
        let text = doctor(&report, Terminal::PIPE);
        check_fits(&text);
        assert!(text.starts_with("Kernel\n  ok    something"), "{text}");
        assert!(text.contains("\nPort lan0\n  warn  something"), "{text}");
        assert!(
            text.contains("        > ethtool -K lan0 lro off\n"),
            "{text}"
        );
        assert!(
            text.contains("stays in the kernel.\nNot everything"),
            "{text}"
        );
    }
}
