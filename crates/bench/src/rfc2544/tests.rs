// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results, without a router.

use freeway_console::Terminal;

use super::search::Found;
use super::*;

fn found(lower: u64, upper: Option<u64>, limited: bool) -> Found {
    Found {
        lower: Some(lower),
        upper,
        conditional_throughput: Some(lower as f64),
        regular: upper.is_some(),
        limited,
    }
}

fn latency(percent_of_pdr: u32, times: f64) -> Latency {
    Latency {
        percent_of_pdr,
        samples: 1000,
        p50_us: Some(11.5 * times),
        p90_us: Some(20.0 * times),
        p99_us: Some(30.0 * times),
        p99_9_us: Some(40.0 * times),
        max_us: 52.1 * times,
        curve: [
            [0.0, 9.0],
            [50.0, 11.5],
            [90.0, 20.0],
            [99.0, 30.0],
            [99.9, 40.0],
        ]
        .map(|[percentile, us]| [percentile, us * times])
        .to_vec(),
        ..Latency::default()
    }
}

/// A result that is invented.
pub fn example() -> Rfc2544 {
    let throughput = |found: &Found| Throughput::of(found, 5e6, 64.0);
    let kernel = Figures {
        ndr: throughput(&found(700_000, Some(705_000), false)),
        pdr: throughput(&found(720_000, Some(725_000), false)),
        frmol: Some(Rate::new(690_000.0, 5e6, false, 64.0)),
        loss: vec![Loss {
            load_pps: 770_000.0,
            offered_pps: 769_000.0,
            forwarded_pps: 690_000.0,
            loss_ratio: 0.1027,
            router_cpu: 1.0,
        }],
        back_to_back: BackToBack::of(&[290, 310], 5e6, 700_000.0),
        latency: vec![latency(0, 1.0), latency(50, 2.5)],
        cpu: vec![CpuShare {
            percent_of_pdr: Some(90),
            offered_pps: 648_000.0,
            loss_ratio: 0.0012,
            router_cpu: 0.871,
            cpu_share: 0.913,
        }],
        ..Figures::default()
    };
    let freeway = Figures {
        ndr: throughput(&found(4_700_000, Some(4_720_000), false)),
        pdr: throughput(&found(4_800_000, None, true)),
        latency: vec![latency(0, 0.8), latency(50, 0.9)],
        cpu: vec![CpuShare {
            offered_pps: 1_488_095.0,
            router_cpu: 0.302,
            cpu_share: 0.337,
            ..CpuShare::default()
        }],
        fast_share: Some(0.999),
        ..Figures::default()
    };
    Rfc2544 {
        scenario: "nat".into(),
        flows: 1000,
        destinations: Some(500),
        directions: 1,
        quick: false,
        search: Method::default(),
        sizes: vec![Measured {
            name: "64".into(),
            label: "64 bytes".into(),
            frame_bytes: 64.0,
            path: Some(PortPath::Xdp),
            ceiling_pps: 5e6,
            tester_latency: Some(latency(0, 0.1)),
            kernel,
            freeway,
        }],
        remarks: vec!["something to be said".into()],
        machine: Machine::this(),
    }
}

#[test]
fn what_the_generator_limited_is_no_result() {
    let result = example();
    let [kernel, freeway] = [&result.sizes[0].kernel, &result.sizes[0].freeway];
    assert_eq!(kernel.ndr.rate.pps, Some(700_000.0));
    assert_eq!(kernel.ndr.rate.at_least_pps, None);
    assert_eq!(kernel.ndr.rate.mbit_s.map(f64::round), Some(358.0));
    // 94 % of the generator's
    assert_eq!(freeway.ndr.rate.pps, Some(4_700_000.0));
    assert_eq!(freeway.pdr.rate.pps, None);
    assert_eq!(freeway.pdr.rate.at_least_pps, Some(4_800_000.0));
    assert_eq!(Rate::new(4_750_000.0, 5e6, false, 64.0).pps, None);
    let starved = found(1_000_000, Some(1_010_000), true);
    let rate = Throughput::of(&starved, 5e6, 64.0).rate;
    assert_eq!((rate.pps, rate.at_least_pps), (None, Some(1e6)));
    let nothing = Throughput::of(&Found::default(), 5e6, 64.0).rate;
    assert_eq!(nothing, Rate::default());
}

#[test]
fn json_has_the_promised_fields() {
    let json = serde_json::to_value(example()).unwrap();
    let ndr = &json["sizes"][0]["kernel"]["ndr"];
    for field in [
        "pps",
        "at_least_pps",
        "mbit_s",
        "lower_pps",
        "upper_pps",
        "conditional_pps",
        "regular",
    ] {
        assert!(ndr.get(field).is_some(), "{field}");
    }
    assert!(json["sizes"][0]["freeway"]["pdr"]["pps"].is_null());
    let line = &json["sizes"][0]["freeway"]["cpu"][0];
    assert!(line["percent_of_pdr"].is_null());
    assert_eq!(line["cpu_share"], 0.337);
    let again: Rfc2544 = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(again, example());
    let mut without = json;
    let kernel = without["sizes"][0]["kernel"].as_object_mut().unwrap();
    kernel.remove("cpu").unwrap();
    let again: Rfc2544 = serde_json::from_value(without).unwrap();
    assert_eq!(again.sizes[0].kernel.cpu, []);
    assert_eq!(again.sizes[0].freeway, example().sizes[0].freeway);
}

#[test]
fn shares_are_of_the_time_in_which_frames_left() {
    let passed = site::Passed {
        time: Duration::from_millis(200),
        cpu: Duration::from_millis(50),
        taken: Some(Duration::from_millis(60)),
        ..site::Passed::default()
    };
    assert_eq!((passed.router_cpu(), passed.cpu_share()), (0.25, Some(0.3)));
    let full = site::Passed {
        taken: Some(Duration::from_millis(201)),
        ..passed.clone()
    };
    assert_eq!(full.cpu_share(), Some(1.0));
    let none = site::Passed {
        taken: None,
        ..passed
    };
    assert_eq!(none.cpu_share(), None);
}

#[test]
fn the_page_has_the_figures() {
    let terminal = Terminal {
        width: 80,
        color: false,
    };
    let text = table::table(&example(), terminal);
    for words in [
        "generator 5.00",
        "0.70",
        "at least 4.80",
        "300",
        "500 hosts beyond the WAN",
        "10.27 %",
        "110 %",
        "no router",
        "50 % of PDR",
        "50 % of gen.",
        "a share of what the generator can do",
        "52.1",
        "90 % of PDR           0.65  0.12 %  87.1 %     91.3 %",
        "1 Gb/s                1.49  0.00 %  30.2 %     33.7 %",
        "something to be said",
        "not the router's own",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn loads_reach_from_the_ndr_towards_the_generators() {
    assert_eq!(loss_loads(Some(1e6), 1.25e6, 11), [1_000_000, 1_100_000]);
    let many = loss_loads(Some(1e5), 5e6, 11);
    assert_eq!((many.len(), many[0]), (11, 100_000));
    assert!(many[10] < 5_000_000);
    assert!(many.is_sorted());
    assert_eq!(loss_loads(Some(5e6), 5e6, 4), [0; 0]);
    let none = loss_loads(None, 1e6, 11);
    assert_eq!(none[0], 100_000);
    assert!(none.iter().all(|load| *load < 1_000_000), "{none:?}");
}

#[test]
fn what_was_offered_limits_what_arrives() {
    let of = |offered_pps, forwarded_pps| {
        let loss = Loss {
            offered_pps,
            forwarded_pps,
            ..Loss::default()
        };
        loss.frmol(5e6, 64.0)
    };
    assert_eq!(of(3e6, 2e6).pps, Some(2e6));
    assert_eq!(of(3e6, 2.9e6).at_least_pps, Some(2.9e6));
    assert_eq!(of(6e6, 4.9e6).at_least_pps, Some(4.9e6));
}

#[test]
fn sizes_without_time_are_told() {
    let words = left_out(&[Size::Imix, Size::Bytes(64)]);
    assert_eq!(words, "there was no time left for IMIX, 64 bytes");
}
