// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway engine dispatch`.

use std::fmt::Write;

use freeway_api::engine::{DispatchMode, Dispatching};

/// A line for each port.
pub fn dispatching(dispatching: &Dispatching) -> String {
    let mut text = String::new();
    for port in &dispatching.ports {
        let others = port.modes.iter().filter(|mode| **mode != port.mode);
        let others: Vec<_> = others.copied().map(DispatchMode::name).collect();
        let others = match others.is_empty() {
            true => "nothing else".to_owned(),
            false => others.join(" or "),
        };
        let mode = port.mode.name();
        let _ = writeln!(text, "{:<15}  {mode:<8}  (could be {others})", port.port);
    }
    if text.is_empty() {
        text.push_str("the engine has told of no ports yet\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use freeway_api::engine::PortDispatch;

    #[test]
    fn each_port_has_a_line() {
        let port = |name: &str, modes: &[DispatchMode]| PortDispatch {
            port: name.into(),
            ifindex: 1,
            mode: modes[0],
            modes: modes.to_vec(),
        };
        let all = Dispatching {
            ports: vec![
                port("lan0", &[DispatchMode::Balanced, DispatchMode::Dispatch]),
                port("wan0", &[DispatchMode::Rss]),
            ],
        };
        let text = dispatching(&all);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("balanced  (could be dispatch)"), "{text}");
        assert!(text.contains("rss       (could be nothing else)"), "{text}");
        assert!(super::dispatching(&Dispatching::default()).contains("no ports yet"));
    }
}
