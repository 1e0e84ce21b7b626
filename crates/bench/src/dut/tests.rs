// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results, without a device.

use freeway_console::Terminal;

use super::table::table;
use super::*;

fn example() -> Dut {
    let rate = |pps| Rate::new(pps, 1e6, false, 64.0);
    let throughput = |pps| Throughput {
        rate: rate(pps),
        lower_pps: Some(pps),
        regular: true,
        ..Throughput::default()
    };
    Dut {
        sender: SenderEnd {
            port: "eth1".into(),
            address: "192.0.2.2".parse().unwrap(),
            gateway: "192.0.2.1".parse().ok(),
            gateway_mac: "02:00:00:00:01:01".into(),
        },
        receiver: ReceiverEnd {
            port: "eth2".into(),
            address: "198.51.100.2".parse().unwrap(),
            sink: "10.0.0.2:12544".parse().ok(),
        },
        flows: 1000,
        quick: false,
        search: Some(Method::default()),
        sizes: vec![Measured {
            name: "64".into(),
            label: "64 bytes".into(),
            frame_bytes: 64.0,
            ceiling_pps: Some(1e6),
            ndr: Some(throughput(700_000.0)),
            pdr: Some(throughput(980_000.0)),
            frmol: Some(rate(690_000.0)),
            loss: vec![Loss {
                load_pps: 770_000.0,
                offered_pps: 769_000.0,
                forwarded_pps: 690_000.0,
                sent: 76_900,
                received: 69_000,
                loss_ratio: 0.1027,
            }],
            latency: Vec::new(),
            trials: 40,
        }],
        remarks: vec!["something to be said".into()],
        machine: Machine::this(),
    }
}

fn text(result: &Dut) -> String {
    let terminal = Terminal {
        width: 80,
        color: false,
    };
    let text = table(result, terminal);
    let fits = text.lines().all(|line| line.chars().count() <= 80);
    assert!(fits, "{text}");
    text
}

#[test]
fn json_has_the_promised_fields() {
    let json = serde_json::to_value(example()).unwrap();
    let size = &json["sizes"][0];
    assert_eq!(size["ndr"]["pps"], 700_000.0);
    assert!(size["pdr"]["pps"].is_null(), "{json:#}");
    assert_eq!(size["pdr"]["at_least_pps"], 980_000.0);
    assert_eq!(json["receiver"]["sink"], "10.0.0.2:12544");
    assert_eq!(serde_json::from_value::<Dut>(json).unwrap(), example());
}

#[test]
fn the_page_has_the_figures() {
    let page = text(&example());
    for words in [
        "192.0.2.1 (02:00:00:00:01:01)",
        "64 bytes        1.00  0.70  at least 0.98   0.69",
        "0.77   110 %  76,900   69,000  10.27 %",
        "clocks of two hosts differ",
        "not the router's own",
        "something to be said",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let mut looped = example();
    looped.receiver.sink = None;
    looped.sizes[0].latency = vec![Latency {
        percent_of_pdr: 50,
        max_us: 52.1,
        ..Latency::default()
    }];
    let page = text(&looped);
    for words in ["50 % of PDR", "52.1"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("clocks"), "{page}");
}

#[test]
fn a_fixed_load_has_no_rates() {
    let mut fixed = example();
    fixed.search = None;
    let [size] = &mut fixed.sizes[..] else {
        panic!("one size")
    };
    (size.ndr, size.pdr, size.frmol, size.ceiling_pps) = (None, None, None, None);
    let page = text(&fixed);
    assert!(page.contains("10.27 %") && !page.contains("NDR:"), "{page}");
    assert!(serde_json::to_value(&fixed).unwrap()["sizes"][0]["ndr"].is_null());
}
