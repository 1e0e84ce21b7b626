// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench diff`: two results compared with significance.
//!
//! Only ratios are compared, each to the kernel or the bare program of the same run: what the machine did meanwhile is in
//! both of their sides.

use std::collections::BTreeMap;
use std::path::Path;

use freeway_console::{Page, Stop, Terminal, Tone, plural, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::report::{Better, Document, Outcome, Ratio};
use super::statistics::{INTERVAL_METHOD, Summary, TEST_METHOD, difference, summary};
use crate::cli::DiffArgs;

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// The first.
    pub a: Side,
    /// The second, which is called same, faster or slower.
    pub b: Side,
    /// What intervals are.
    pub intervals: String,
    /// What decides.
    pub test: String,
    /// Ratios that both have.
    pub ratios: Vec<Compared>,
    /// How many differ.
    pub counts: Counts,
    /// Ratios that only the first has, `scenario, case: name`.
    pub only_a: Vec<String>,
    /// Ratios that only the second has.
    pub only_b: Vec<String>,
    /// What should make one careful.
    pub remarks: Vec<String>,
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The file.
    pub file: String,
    /// When it was measured; none of a single result.
    pub date: Option<String>,
    /// What on.
    pub machine: Option<Machine>,
}

/// How many ratios are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Of no significant difference.
    pub same: usize,
    /// Better.
    pub faster: usize,
    /// Worse.
    pub slower: usize,
    /// With a single run, or with one that was disturbed.
    pub unknown: usize,
}

/// A ratio in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// `nat`.
    pub scenario: String,
    /// `IPv4 TCP LAN>WAN`; empty if the scenario has nothing else.
    pub case: String,
    /// `kernel / Freeway`.
    pub name: String,
    /// Which way is better.
    pub better: Better,
    /// In the first.
    pub a: Summary,
    /// In the second.
    pub b: Summary,
    /// The second over the first, geometric means; none if the verdict is unknown, as the next three.
    pub change: Option<f64>,
    /// Its interval's lower end,
    pub change_low: Option<f64>,
    /// and upper end.
    pub change_high: Option<f64>,
    /// How likely as large a difference is by chance.
    pub p: Option<f64>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// What a difference comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Chance explains it.
    Same,
    /// The second is better.
    Faster,
    /// The second is worse.
    Slower,
    /// There is a single run, or one was disturbed: it has no positive time.
    Unknown,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Same => "not told apart",
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Compares and prints.
pub fn diff(args: &DiffArgs) -> Result<(), Stop> {
    let (a, b) = (Document::read(&args.a)?, Document::read(&args.b)?);
    let diff = compare((&args.a, &a), (&args.b, &b));
    show(args.json, &diff, |terminal| table(&diff, terminal))
}

/// By scenario, case and name, in the order of the file.
type Key = (String, String, &'static str);

/// What each scenario was asked for.
fn settings(document: &Document) -> BTreeMap<String, String> {
    match document {
        Document::Single(outcome) => [(outcome.scenario().to_owned(), outcome.settings())].into(),
        Document::Report(report) => report
            .measured()
            .map(|(scenario, outcome)| (scenario.name.clone(), outcome.settings()))
            .collect(),
    }
}

/// Scenarios that were asked for something else, and what.
fn unlike(a: &Document, b: &Document) -> BTreeMap<String, String> {
    let second = settings(b);
    let unlike = settings(a).into_iter().filter_map(|(scenario, first)| {
        let second = second.get(&scenario).filter(|second| **second != first)?;
        let words = format!(
            "{scenario} is not compared, for it was not the same: {}.",
            differing(&first, second)
        );
        Some((scenario, words))
    });
    unlike.collect()
}

/// What of one is not in the other, and the other way round.
fn differing(a: &str, b: &str) -> String {
    let only = |of: &str, other: &str| {
        let parts = of.split(", ");
        let parts = parts.filter(|part| !other.split(", ").any(|there| there == *part));
        parts.collect::<Vec<_>>().join(", ")
    };
    format!("A {}; B {}", only(a, b), only(b, a))
}

fn ratios(document: &Document) -> Vec<(Key, Ratio)> {
    let of = |scenario: &str, outcome: &Outcome| -> Vec<(Key, Ratio)> {
        let named = outcome.ratios().into_iter().map(|ratio| {
            let key = (scenario.to_owned(), ratio.case.clone(), ratio.name);
            (key, ratio)
        });
        named.collect()
    };
    match document {
        Document::Single(outcome) => of(outcome.scenario(), outcome),
        Document::Report(report) => report
            .measured()
            .flat_map(|(scenario, outcome)| of(&scenario.name, outcome))
            .collect(),
    }
}

fn side(file: &Path, document: &Document) -> Side {
    let (date, machine) = match document {
        Document::Report(report) => (Some(report.date.clone()), &report.machine.machine),
        Document::Single(outcome) => (None, outcome.machine()),
    };
    Side {
        file: file.display().to_string(),
        date,
        machine: Some(machine.clone()),
    }
}

fn compare(a: (&Path, &Document), b: (&Path, &Document)) -> Diff {
    let unlike = unlike(a.1, b.1);
    let alike = |document: &Document| -> Vec<(Key, Ratio)> {
        let mut ratios = ratios(document);
        ratios.retain(|((scenario, ..), _)| !unlike.contains_key(scenario));
        ratios
    };
    let (first, second) = (alike(a.1), alike(b.1));
    let (a, b) = (side(a.0, a.1), side(b.0, b.1));
    let of_second: BTreeMap<&Key, &Ratio> =
        second.iter().map(|(key, ratio)| (key, ratio)).collect();
    let of_first: BTreeMap<&Key, &Ratio> = first.iter().map(|(key, ratio)| (key, ratio)).collect();
    let both = first
        .iter()
        .filter_map(|(key, ratio)| compared(key, ratio, of_second.get(key)?));
    let both: Vec<Compared> = both.collect();
    let mut counts = Counts::default();
    for ratio in &both {
        match ratio.verdict {
            Verdict::Same => counts.same += 1,
            Verdict::Faster => counts.faster += 1,
            Verdict::Slower => counts.slower += 1,
            Verdict::Unknown => counts.unknown += 1,
        }
    }
    Diff {
        remarks: remarks(&a, &b)
            .into_iter()
            .chain(unlike.into_values())
            .collect(),
        a,
        b,
        intervals: INTERVAL_METHOD.into(),
        test: TEST_METHOD.into(),
        counts,
        only_a: others(&first, &of_second),
        only_b: others(&second, &of_first),
        ratios: both,
    }
}

fn compared(key: &Key, a: &Ratio, b: &Ratio) -> Option<Compared> {
    let (scenario, case, name) = key.clone();
    let difference = difference(&a.samples, &b.samples);
    let verdict = match difference {
        None => Verdict::Unknown,
        Some(of) if !of.is_significant() => Verdict::Same,
        Some(of) if (of.change > 1.0) == (a.better == Better::More) => Verdict::Faster,
        Some(_) => Verdict::Slower,
    };
    Some(Compared {
        scenario,
        case,
        name: name.into(),
        better: a.better,
        a: summary(&a.samples)?,
        b: summary(&b.samples)?,
        change: difference.map(|of| of.change),
        change_low: difference.map(|of| of.low),
        change_high: difference.map(|of| of.high),
        p: difference.map(|of| of.p),
        verdict,
    })
}

fn others(ratios: &[(Key, Ratio)], there: &BTreeMap<&Key, &Ratio>) -> Vec<String> {
    let missing = ratios.iter().filter(|(key, _)| !there.contains_key(key));
    missing
        .map(|((scenario, case, name), _)| format!("{}: {name}", place(scenario, case)))
        .collect()
}

fn place(scenario: &str, case: &str) -> String {
    match case {
        "" => scenario.to_owned(),
        case => format!("{scenario}, {case}"),
    }
}

fn remarks(a: &Side, b: &Side) -> Vec<String> {
    let (Some(a), Some(b)) = (&a.machine, &b.machine) else {
        return Vec::new();
    };
    let mut remarks = Vec::new();
    if (&a.cpu, a.cpus) != (&b.cpu, b.cpus) {
        remarks.push(format!(
            "The machines differ ({}, {} CPUs; {}, {} CPUs): what differs may be theirs.",
            a.cpu, a.cpus, b.cpu, b.cpus
        ));
    }
    if a.kernel != b.kernel {
        remarks.push(format!(
            "The kernels differ ({}, {}): what differs may be theirs.",
            a.kernel, b.kernel
        ));
    }
    remarks
}

fn table(diff: &Diff, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words("A: ", &described(&diff.a));
    page.words("B: ", &described(&diff.b));
    let mut scenario = None;
    let mut rows = Vec::new();
    for ratio in &diff.ratios {
        if scenario != Some(&ratio.scenario) {
            flush(&mut page, &mut rows);
            page.head(&ratio.scenario);
            scenario = Some(&ratio.scenario);
        }
        rows.push(cells(&page, ratio));
    }
    flush(&mut page, &mut rows);
    page.gap();
    let Counts {
        same,
        faster,
        slower,
        unknown,
    } = diff.counts;
    let compared = same + faster + slower;
    page.words(
        "",
        &format!(
            "Of {} B is faster in {faster}, slower in {slower}, not told apart in {same}.",
            plural(compared as u64, "ratio")
        ),
    );
    if compared > 0 {
        let by_chance = compared as f64 / 20.0;
        page.words(
            "",
            &format!("Chance alone makes about {by_chance:.1} of them differ."),
        );
    }
    if unknown > 0 {
        let words = format!(
            "{} of a single run, or with one that was disturbed (its net time is not positive): measure again, with more runs.",
            plural(unknown as u64, "ratio")
        );
        page.words("", &page.tone(Tone::Warn, &words));
    }
    for (which, only) in [("A", &diff.only_a), ("B", &diff.only_b)] {
        if !only.is_empty() {
            page.words("", &format!("Only {which} has: {}.", only.join("; ")));
        }
    }
    for remark in &diff.remarks {
        page.words("", &page.tone(Tone::Warn, remark));
    }
    page.words(
        "",
        &format!(
            "Median (low to high: {}). Decided by {}.",
            diff.intervals, diff.test
        ),
    );
    page.finish()
}

fn described(side: &Side) -> String {
    let mut words = side.file.clone();
    for more in [
        side.date.clone(),
        side.machine.as_ref().map(ToString::to_string),
    ]
    .into_iter()
    .flatten()
    {
        words.push_str(", ");
        words.push_str(&more);
    }
    words
}

/// Writes the rows of a scenario.
fn flush(page: &mut Page, rows: &mut Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let heads = ["", "A", "B", "B / A", ""]
        .map(|head| page.tone(Tone::Head, head))
        .to_vec();
    rows.insert(0, heads);
    page.table(2, &[1, 2, 3], rows);
    rows.clear();
}

fn cells(page: &Page, ratio: &Compared) -> Vec<String> {
    let tone = match ratio.verdict {
        Verdict::Faster => Some(Tone::Good),
        Verdict::Slower => Some(Tone::Bad),
        Verdict::Unknown => Some(Tone::Warn),
        Verdict::Same => None,
    };
    let verdict = match tone {
        Some(tone) => page.tone(tone, ratio.verdict.name()),
        None => ratio.verdict.name().to_owned(),
    };
    let what = match ratio.case.as_str() {
        "" => ratio.name.clone(),
        case => format!("{case}: {}", ratio.name),
    };
    vec![
        what,
        figure(&ratio.a),
        figure(&ratio.b),
        ratio
            .change
            .map_or_else(|| "-".into(), |change| changed(ratio, change)),
        verdict,
    ]
}

/// With the interval, by which one sees how large a difference would not have been noticed.
fn changed(ratio: &Compared, change: f64) -> String {
    match (ratio.change_low, ratio.change_high) {
        (Some(low), Some(high)) => format!("{change:.3} ({low:.3} to {high:.3})"),
        _ => format!("{change:.3}"),
    }
}

fn figure(of: &Summary) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2})", of.median),
        _ => format!("{:.2}", of.median),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::super::report::{Outcome, Report};
    use super::*;

    const PIPE: Terminal = Terminal {
        width: 100,
        color: false,
    };

    fn between(a: Report, b: Report) -> Diff {
        let document = |report| Document::Report(Box::new(report));
        compare(
            (Path::new("a.json"), &document(a)),
            (Path::new("b.json"), &document(b)),
        )
    }

    fn find<'a>(diff: &'a Diff, scenario: &str, name: &str) -> &'a Compared {
        let mut ratios = diff.ratios.iter();
        let found = ratios.find(|ratio| ratio.scenario == scenario && ratio.name == name);
        found.unwrap_or_else(|| panic!("{scenario}: {name}"))
    }

    /// Samples of `compare` as a program that takes so much longer for each frame would have them.
    fn slowed(mut report: Report, ns: f64) -> Report {
        for scenario in &mut report.scenarios {
            match &mut scenario.result {
                Some(Outcome::Compare(result)) => {
                    for sample in &mut result.samples.freeway_net_ns {
                        *sample += ns;
                    }
                }
                Some(Outcome::Imx8(result)) => {
                    for row in &mut result.rows {
                        if let super::super::imx8::Column::Cost(cost) = &mut row.freeway {
                            cost.samples.iter_mut().for_each(|sample| *sample += ns);
                        }
                    }
                }
                _ => {}
            }
        }
        report
    }

    #[test]
    fn a_report_is_the_same_as_itself() {
        let diff = between(example(), example());
        assert!(diff.ratios.len() > 10);
        assert_eq!((diff.counts.faster, diff.counts.slower), (0, 0));
        assert!(diff.only_a.is_empty() && diff.only_b.is_empty() && diff.remarks.is_empty());
    }

    #[test]
    fn twenty_nanoseconds_are_seen() {
        let diff = between(example(), slowed(example(), 20.0));
        for scenario in ["routed", "routed6", "nat"] {
            for name in ["kernel / Freeway", "Freeway / bare redirect"] {
                let ratio = find(&diff, scenario, name);
                assert_eq!(ratio.verdict, Verdict::Slower, "{ratio:?}");
            }
        }
        let untouched = find(&diff, "multicast", "kernel / Freeway");
        assert_eq!(untouched.verdict, Verdict::Same);
        let back = between(slowed(example(), 20.0), example());
        let ratio = find(&back, "nat", "Freeway / bare redirect");
        assert_eq!(ratio.verdict, Verdict::Faster, "{ratio:?}");
        let text = table(&diff, PIPE);
        assert!(text.contains("slower\n"), "{text}");
        assert!(text.contains("Welch"), "{text}");
    }

    #[test]
    fn what_only_one_has_is_named() {
        let mut few = example();
        few.scenarios.retain(|scenario| scenario.name != "nat");
        few.machine.machine.kernel = "6.1.0".into();
        let diff = between(example(), few);
        assert_eq!(
            diff.only_a,
            ["nat: kernel / Freeway", "nat: Freeway / bare redirect"]
        );
        assert_eq!(diff.remarks.len(), 1);
        let text = table(&diff, PIPE);
        assert!(text.contains("Only A has: nat: kernel"), "{text}");
        assert!(text.contains("The kernels differ"), "{text}");
    }

    #[test]
    fn unlike_measurements_are_not_compared() {
        let mut many = example();
        for scenario in &mut many.scenarios {
            if let Some(Outcome::Compare(result)) = &mut scenario.result
                && scenario.name == "nat"
            {
                result.flows = 1_000_000;
            }
        }
        let diff = between(example(), many);
        assert!(diff.ratios.iter().all(|ratio| ratio.scenario != "nat"));
        assert!(diff.only_a.is_empty() && diff.only_b.is_empty());
        let remark = &diff.remarks[0];
        assert!(
            remark.starts_with("nat is not compared") && remark.contains("B flows 1000000."),
            "{remark}"
        );
    }

    #[test]
    fn throughputs_of_other_scenarios_and_pace_are_unlike() {
        let result = crate::rfc2544::tests::example();
        let mut other = result.clone();
        other.scenario = "routed".into();
        other.quick = true;
        let single = |result| Document::Single(Box::new(Outcome::Rfc2544(result)));
        let words = unlike(&single(result.clone()), &single(other));
        let words = words.values().next().unwrap();
        assert!(
            words.contains("scenario routed") && words.contains("quick true"),
            "{words}"
        );
        assert!(unlike(&single(result.clone()), &single(result)).is_empty());
    }

    #[test]
    fn rates_of_connections_are_compared() {
        let mut result = crate::rfc9693::tests::example();
        let single = |result| Document::Single(Box::new(Outcome::Rfc9693(Box::new(result))));
        let path = Path::new("a.json");
        let between = |a, b| compare((path, &single(a)), (path, &single(b)));
        let diff = between(result.clone(), result.clone());
        let cases: Vec<&str> = diff.ratios.iter().map(|ratio| &*ratio.case).collect();
        assert_eq!(cases, ["new connections", "deleted connections"]);
        assert_eq!(diff.counts.same, 2);
        // what the generator limited is no result
        result.kernel.establishment.per_s = None;
        assert_eq!(between(result.clone(), result.clone()).ratios.len(), 1);
        let mut other = result.clone();
        other.connections += 1;
        let words = unlike(&single(result), &single(other));
        assert!(
            words.values().next().unwrap().contains("connections 50001"),
            "{words:?}"
        );
    }

    #[test]
    fn replays_of_other_captures_are_unlike() {
        let result = crate::replay::example();
        let single = |result| Document::Single(Box::new(Outcome::Replay(result)));
        let same = compare(
            (Path::new("a"), &single(result.clone())),
            (Path::new("b"), &single(result.clone())),
        );
        assert_eq!((same.counts.same, same.ratios.len()), (1, 1));
        let mut other = result.clone();
        other.digest = "ff".into();
        other.loops = 7;
        let words = unlike(&single(result), &single(other));
        let words = words.values().next().unwrap();
        assert!(
            words.contains("digest ff") && words.contains("loops 7"),
            "{words}"
        );
    }

    #[test]
    fn single_runs_say_nothing() {
        let mut once = example();
        for scenario in &mut once.scenarios {
            if let Some(Outcome::Compare(result)) = &mut scenario.result {
                let samples = &mut result.samples;
                samples.kernel_net_ns.truncate(1);
                samples.freeway_net_ns.truncate(1);
                samples.redirect_net_ns.truncate(1);
            }
        }
        let diff = between(once, example());
        assert_eq!(diff.counts.unknown, 11);
        let text = table(&diff, PIPE);
        assert!(text.contains("11 ratios of a single run"), "{text}");
        assert!(text.contains("unknown\n"), "{text}");
        let json = serde_json::to_value(&diff).unwrap();
        assert_eq!(json["ratios"][0]["verdict"], "unknown");
        assert!(json["ratios"][0]["p"].is_null());
    }
}
