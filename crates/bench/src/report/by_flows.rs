// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a frame costs by number of flows, both logarithmic.

use freeway_console::count;

use super::curve::{Curves, Panel};
use super::document::Report;
use super::outcome::Outcome;
use super::plots::tone;

/// Of one scenario.
pub fn by_flows(report: &Report) -> Option<Curves> {
    let Some(Outcome::Flows(result)) = report.result("flows") else {
        return None;
    };
    let lines = result.lines();
    let panel = Panel {
        label: String::new(),
        lines: lines
            .iter()
            .map(|(router, line)| {
                let points = line.iter().filter(|(_, ns)| *ns > 0.0);
                let points = points.map(|(flows, ns)| [f64::from(*flows).log10(), *ns]);
                (tone(*router), points.collect::<Vec<_>>())
            })
            .filter(|(_, line)| line.len() > 1)
            .collect(),
    };
    (!panel.lines.is_empty()).then(|| Curves {
        name: "flows",
        title: "Cost by number of flows",
        subtitle: format!(
            "{}, {}-byte frames, ns of CPU net of the generator; less is better",
            result.scenario, result.wire_bytes
        ),
        legend: lines
            .map(|(router, _)| (tone(router), router.name()))
            .to_vec(),
        at: |place| count(10f64.powf(place).round() as u64),
        panels: vec![panel],
    })
}

#[cfg(test)]
mod tests {
    use super::super::document::Scenario;
    use super::super::document::tests::example;
    use super::super::figure::figures;
    use super::super::page::page;
    use super::*;
    use crate::flows;

    #[test]
    fn each_router_has_a_line() {
        let mut report = example();
        assert!(by_flows(&report).is_none());
        report.scenarios.push(Scenario {
            name: "flows".into(),
            title: "By number of flows".into(),
            command: "freeway bench flows".into(),
            elapsed_s: 1.0,
            missing: None,
            failed: false,
            bench: Some("flows".into()),
            result: Some(Outcome::Flows(flows::tests::example())),
        });
        let curves = by_flows(&report).unwrap();
        assert_eq!(curves.panels[0].lines.len(), 3);
        let drawing = curves.draw(true).unwrap();
        let tree = roxmltree::Document::parse(&drawing.themed).unwrap();
        let texts: String = tree.descendants().filter_map(|node| node.text()).collect();
        for words in [
            "1,000",
            "1,000,000",
            "Freeway",
            "bare redirect",
            curves.title,
        ] {
            assert!(texts.contains(words), "{words}: {texts}");
        }
        let page = page(&report, &figures(&report).unwrap());
        assert!(page.contains("1,000,000 flows: kernel / Freeway"));
    }
}
