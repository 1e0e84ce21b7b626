// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway steer`.

use std::fmt::Write;

use freeway_api::Steering;

/// The rules, and where they hold.
pub fn steering(steering: &Steering) -> String {
    let mut text = String::new();
    for (rule, number) in steering.rules.iter().zip(1..) {
        let _ = writeln!(text, "{number}  {:<6}  {}", rule.aim(), rule.words());
    }
    let ports = match steering.ports.is_empty() {
        true => "no port is shared with an engine now, so no path is chosen".to_owned(),
        false => format!(
            "at ports that are shared with the engine, {}, what no rule names is XDP's",
            steering.ports.join(" and ")
        ),
    };
    let _ = writeln!(text, "({ports})");
    text
}

#[cfg(test)]
mod tests {
    use freeway_api::{SteerChange, SteerPath, SteerRule};

    use super::*;

    #[test]
    fn rules_have_numbers() {
        let mut all = Steering::default();
        assert!(super::steering(&all).contains("no port is shared"));
        let words = ["proto", "udp", "port", "lan0"].map(str::to_owned);
        let filter = freeway_api::filter::parse(&words).unwrap();
        for path in [SteerPath::Engine, SteerPath::Xdp] {
            let rule = SteerRule::of(path, filter.clone()).unwrap();
            all.change(SteerChange::Add { rule, at: None }).unwrap();
        }
        all.ports = vec!["lan0".into(), "wan0".into()];
        let text = super::steering(&all);
        assert!(
            text.contains("1  engine  proto udp port lan0\n2  xdp "),
            "{text}"
        );
        assert!(text.contains("lan0 and wan0"), "{text}");
    }
}
