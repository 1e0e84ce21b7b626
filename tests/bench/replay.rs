// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench replay`: a capture through both routers, and files that are none.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Output;

use freeway_lab::frame::sum16;
use freeway_testkit::{freeway, machine};
use serde_json::Value;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A frame as a host at another router had sent it.
fn frame(proto: u8, source: &str, destination: &str, l4: &[u8]) -> Vec<u8> {
    let [source, destination] =
        [source, destination].map(|text| text.parse::<SocketAddr>().unwrap());
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let addresses = [octets(source), octets(destination)].concat();
    let ports = [source, destination]
        .map(|end| end.port().to_be_bytes())
        .concat();
    let mut l4 = [&ports[..], l4].concat();
    let at = if proto == UDP { 6 } else { 16 };
    let length = (l4.len() as u16).to_be_bytes();
    let pseudo = [&addresses[..], &[0, proto], &length, &l4].concat();
    let sum = !sum16(&pseudo);
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0x11, 0, 0, 0, 1, 2, 0x22, 0, 0, 0, 2];
    if source.is_ipv4() {
        let total = (20 + l4.len() as u16).to_be_bytes();
        let mut header = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, proto, 0, 0];
        header.extend(&addresses);
        let sum = !sum16(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([8, 0]);
        frame.extend(header);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], proto, 64]);
        frame.extend(addresses);
    }
    frame.extend(l4);
    frame
}

fn udp(source: &str, destination: &str) -> Vec<u8> {
    let datagram = [&(8u16 + 100).to_be_bytes()[..], &[0, 0], &[0x55; 100]].concat();
    frame(UDP, source, destination, &datagram)
}

fn tcp(source: &str, destination: &str, [seq, ack]: [u32; 2], flags: u8, data: usize) -> Vec<u8> {
    let mut segment = [seq, ack].map(u32::to_be_bytes).concat();
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(vec![0x33; data]);
    frame(TCP, source, destination, &segment)
}

/// The capture: so many frames from the LAN, and from the WAN.
fn capture() -> (Vec<Vec<u8>>, u64, u64) {
    let mut frames = Vec::new();
    let (mut near, mut far) = (0, 0);
    // addresses of the lab's router and hosts among them
    for (client, server) in [
        ("192.0.2.1:4000", "198.51.100.1:53"),
        ("[2001:db8:1::1]:4000", "[2001:db8:77::9]:53"),
    ] {
        for _ in 0..6 {
            frames.extend([udp(client, server), udp(server, client)]);
            (near, far) = (near + 1, far + 1);
        }
    }
    let (client, server) = ("10.9.8.7:40000", "203.0.113.9:443");
    frames.push(tcp(client, server, [1000, 0], SYN, 0));
    frames.push(tcp(server, client, [5000, 1001], SYN | ACK, 0));
    frames.push(tcp(client, server, [1001, 5001], ACK, 0));
    (near, far) = (near + 2, far + 1);
    for round in 0..8 {
        let seq = 5001 + round * 1000;
        frames.push(tcp(server, client, [seq, 1001], ACK, 1000));
        frames.push(tcp(client, server, [1001, seq + 1000], ACK, 0));
        (near, far) = (near + 1, far + 1);
    }
    // with a tag
    let mut tagged = udp(client, server);
    tagged.splice(12..12, [0x81, 0, 0, 42]);
    frames.push(tagged);
    near += 1;
    // what is not sent
    frames.push([&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[8, 6], &[0; 46]].concat());
    frames.push(udp("192.0.2.1:5353", "224.0.0.251:5353"));
    frames.push(udp("169.254.7.7:1", "192.0.2.1:2"));
    (frames, near, far)
}

/// A pcap with a frame each millisecond.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1]
        .map(u32::to_le_bytes)
        .concat();
    for (at_ms, frame) in (0..).zip(frames) {
        let length = frame.len() as u32;
        file.extend(
            [7, at_ms * 1000, length, length]
                .map(u32::to_le_bytes)
                .concat(),
        );
        file.extend(frame);
    }
    file
}

/// A file that goes when it is dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("freeway-replay-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn replay(file: &File, more: &[&str]) -> Output {
    freeway()
        .args(["bench", "replay", file.0.to_str().unwrap()])
        .args(more)
        .output()
        .unwrap()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_capture_goes_through_both_routers() {
    let Some(_machine) = machine() else { return };
    let (frames, near, far) = capture();
    let file = File::new("whole.pcap", &pcap(&frames));
    // slow enough for a machine with other work
    let loops = 15;
    let options = ["--pps", "1000", "--loops", "15", "--json"];
    let output = replay(&file, &options);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let capture = &result["capture"];
    assert_eq!(number(&capture["replayed"]), near + far, "{capture:#}");
    assert_eq!(number(&capture["frames"]), near + far + 3, "{capture:#}");
    assert_eq!(number(&capture["untagged"]), 1);
    assert_eq!(number(&capture["conversations"]), 4);
    let sides = [&capture["lan_addresses"], &capture["wan_addresses"]].map(number);
    assert_eq!(sides, [3, 3]);
    let skipped = capture["skipped"].as_array().unwrap();
    let reasons: Vec<_> = skipped
        .iter()
        .map(|of| (of["reason"].as_str().unwrap(), number(&of["frames"])))
        .collect();
    assert_eq!(reasons, [("not_ip", 1), ("group", 1), ("link_local", 1)]);
    for router in ["kernel", "freeway"] {
        let of = &result[router];
        let counts = ["sent_lan", "arrived_wan", "sent_wan", "arrived_lan"];
        let counts = counts.map(|field| number(&of[field]));
        let [near, far] = [near * loops, far * loops];
        assert_eq!(counts, [near, near, far, far], "{router}: {result:#}");
        assert_eq!(number(&of["lost"]), 0);
        assert!(of["cpu_ns"].as_f64().unwrap() > 0.0, "{router}: {result:#}");
    }
    assert!(result["kernel"]["fast_share"].is_null());
    let share = result["freeway"]["fast_share"].as_f64().unwrap();
    assert!(share > 0.2, "{result:#}");
}

#[test]
fn other_files_exit_with_2() {
    let (frames, ..) = capture();
    let whole = pcap(&frames);
    let mut raw = whole.clone();
    raw[20] = 101;
    for (name, bytes, words) in [
        ("empty", &[][..], "it is empty"),
        (
            "text",
            b"a text of some length, but no capture",
            "neither pcap nor pcapng",
        ),
        ("raw", &raw, "link type 101"),
        (
            "cut",
            &whole[..whole.len() - 7],
            "cut short after 46 frames",
        ),
        (
            "arp",
            &pcap(&frames[frames.len() - 3..]),
            "none of its 3 frames",
        ),
    ] {
        let file = File::new(name, bytes);
        let output = replay(&file, &[]);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {line}");
        assert!(line.contains(words), "{name}: {line}");
        assert_eq!(line.lines().count(), 1, "{name}: {line}");
    }
}
