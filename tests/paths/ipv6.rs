// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of IPv6 alone: what is plain is fast, the rest is the kernel's, and all of it arrives right.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |       eth0 |---------| lan0           wan0 |---------| eth0       |
//!  +------------+         +---------------------+         +------------+
//!   2001:db8:1::2/64  2001:db8:1::1/64  2001:db8:2::1/64  2001:db8:2::2/64
//!   (to ::21)
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::*;

const CLIENT: &str = "[2001:db8:1::2]";
const SERVER: &str = "[2001:db8:2::2]";

fn address(host: &str, port: u16) -> SocketAddr {
    format!("{host}:{port}").parse().unwrap()
}

fn set(socket: &UdpSocket, name: libc::c_int, value: libc::c_int) {
    // SAFETY: the value is an int of the given length and outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

/// One datagram there and one back.
#[track_caller]
fn echo(near: &UdpSocket, far: &UdpSocket, payload: &[u8]) {
    let mut bytes = [0u8; 9000];
    near.send(payload).unwrap();
    let (len, from) = far.recv_from(&mut bytes).unwrap();
    assert!(&bytes[..len] == payload, "there");
    far.send_to(payload, from).unwrap();
    let len = near.recv(&mut bytes).unwrap();
    assert!(&bytes[..len] == payload, "and back");
}

/// Connected sockets, and their flows fast both ways.
fn fast_pair(lab: &Lab, router: &Router, port: u16) -> (UdpSocket, UdpSocket) {
    let near = udp(lab.client(), address(CLIENT, port));
    let far = udp(lab.server(), address(SERVER, port));
    near.connect(address(SERVER, port)).unwrap();
    until("fast flows", Duration::from_secs(5), || {
        echo(&near, &far, &[7; 700]);
        let flows = router.flows(&format!("family 6 proto udp sport {port}"));
        let fast = flows
            .iter()
            .filter(|f| f["packets"].as_u64().unwrap() > 3)
            .count();
        (fast == 2).then_some(())
    });
    (near, far)
}

#[test]
fn plain_tcp_and_udp_are_fast() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    let router = Router::start(&lab);
    // TCP's flow labels are set by the kernel (auto_flowlabels).
    let listener = listen(lab.server(), address(SERVER, 7000));
    let from = (lab.client(), address(CLIENT, 30_000));
    let mut ends = pair(from, address(SERVER, 7000), &listener);
    let flows = router.wait_fast_while("family 6 proto tcp", 2, 10_000, || {
        exchange_blocks(&mut ends, 400)
    });
    assert_eq!(flows.len(), 2);
    assert!(
        flows.iter().all(|flow| flow["connection"] == false),
        "{flows:#?}"
    );
    let (mut client, mut server) = ends;
    client.shutdown(std::net::Shutdown::Write).unwrap();
    at_end(&mut server);
    drop(server);
    at_end(&mut client);

    let (near, far) = fast_pair(&lab, &router, 7001);
    // Longer than proven once, fast after that.
    for len in (1..=1452).step_by(7) {
        echo(&near, &far, &vec![len as u8; len]);
    }
    // Two traffic classes are two flows in turn for the guard: both pass.
    let before = router.stats();
    set(&near, libc::IPV6_TCLASS, 0xb8);
    for _ in 0..20 {
        echo(&near, &far, b"expedited");
    }
    let stats = router.stats();
    assert!(
        stats.reason("guard_dscp") > before.reason("guard_dscp"),
        "{stats}"
    );
    router.stop();
}

#[test]
fn hop_limit_one_is_answered_by_the_kernel() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    let router = Router::start(&lab);
    let (near, far) = fast_pair(&lab, &router, 7002);
    let before = router.stats();
    set(&near, libc::IPV6_RECVERR, 1);
    set(&near, libc::IPV6_UNICAST_HOPS, 1);
    near.send(b"not far").unwrap();
    // ICMPv6 time exceeded
    let error = near.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH), "{error}");
    let stats = router.stats();
    assert_eq!(
        stats.reason("ttl") + stats.reason("guard_ttl"),
        before.reason("ttl") + 1 + before.reason("guard_ttl"),
        "{stats}"
    );
    far.set_nonblocking(true).unwrap();
    let error = far.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "it went no further");
    far.set_nonblocking(false).unwrap();
    // Two hops reach the server with one left; 64 is the learned one.
    set(&near, libc::IPV6_UNICAST_HOPS, 2);
    echo(&near, &far, b"just enough");
    set(&near, libc::IPV6_UNICAST_HOPS, 64);
    let fast = router.stats().fast();
    for _ in 0..20 {
        echo(&near, &far, b"as before");
    }
    assert!(router.stats().fast() >= fast + 20, "{}", router.stats());
    router.stop();
}

#[test]
fn fragments_go_through_the_kernel() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    let router = Router::start(&lab);
    let (near, far) = fast_pair(&lab, &router, 7003);
    let before = router.stats();
    for round in 0..20u8 {
        let payload: Vec<u8> = (0..4000u32).map(|i| (i >> 3) as u8 ^ round).collect();
        echo(&near, &far, &payload);
    }
    let stats = router.stats();
    // three each, both ways
    assert_eq!(
        stats.reason("fragment") - before.reason("fragment"),
        120,
        "{stats}"
    );
    let fast = stats.fast();
    echo(&near, &far, b"whole");
    assert!(router.stats().fast() > fast, "{}", router.stats());
    router.stop();
}

/// A UDP frame from the client to the server, with extension headers before it.
fn frame(
    class_label: u32,
    hop_limit: u8,
    first: u8,
    extensions: &[u8],
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let (source, destination): (Ipv6Addr, Ipv6Addr) = (
        "2001:db8:1::2".parse().unwrap(),
        "2001:db8:2::2".parse().unwrap(),
    );
    let len = 8 + payload.len() as u16;
    let mut datagram = Vec::new();
    for word in [ports.0, ports.1, len, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    let mut pseudo = Vec::new();
    pseudo.extend(source.octets());
    pseudo.extend(destination.octets());
    pseudo.extend([
        0,
        0,
        len.to_be_bytes()[0],
        len.to_be_bytes()[1],
        0,
        0,
        0,
        17,
    ]);
    pseudo.extend(&datagram);
    let sum = !sum16(&pseudo);
    datagram[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());

    let mut frame = Vec::new();
    frame.extend(MAC_LAN);
    frame.extend(MAC_CLIENT);
    frame.extend([0x86, 0xdd]);
    frame.extend((6 << 28 | class_label).to_be_bytes());
    frame.extend((extensions.len() as u16 + len).to_be_bytes());
    frame.extend([first, hop_limit]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(extensions);
    frame.extend(datagram);
    frame
}

/// The frame as a router forwards it.
fn routed(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    out[..6].copy_from_slice(&MAC_SERVER);
    out[6..12].copy_from_slice(&MAC_WAN);
    out[21] -= 1;
    out
}

#[test]
fn flow_labels_classes_and_extension_headers_arrive_as_they_were() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    let router = Router::start(&lab);
    let ports = (7004, 7004);
    let injector = Injector::open(lab.client_port()).unwrap();
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let mine =
        |bytes: &[u8]| bytes.len() > 54 && bytes[22..24] == [0x20, 0x01] && bytes[6..12] == MAC_WAN;
    let mut pass = |frame: &[u8]| {
        injector.send(frame).unwrap();
        let got = capture.collect(1, Duration::from_secs(2), mine).unwrap();
        assert_eq!(got.len(), 1, "it did not arrive");
        assert!(
            got[0].bytes == routed(frame),
            "{:02x?}\n{:02x?}",
            got[0].bytes,
            routed(frame)
        );
    };
    // One-way UDP, learned without a connection.
    until("a fast flow", Duration::from_secs(5), || {
        pass(&frame(0, 64, 17, &[], ports, &[1; 1000]));
        (router.stats().fast() >= 5).then_some(())
    });
    // ECN is no part of the guard: fast, and untouched.
    let before = router.stats();
    for ecn in 1..4u32 {
        pass(&frame(ecn << 20, 64, 17, &[], ports, b"marked"));
    }
    let stats = router.stats();
    // one of them may have been taken for revalidation
    assert!(stats.fast() >= before.fast() + 2, "{stats}");
    // A label may choose the next hop.
    for label in [1u32, 0xfffff, 0x12345, 0x80000] {
        pass(&frame(label, 64, 17, &[], ports, b"labelled"));
    }
    let before = stats;
    let stats = router.stats();
    assert_eq!(
        stats.reason("guard_label") - before.reason("guard_label"),
        4,
        "{stats}"
    );
    // Other classes and hop limits are not what was learned.
    let before = router.stats();
    pass(&frame(0xb8 << 20, 64, 17, &[], ports, b"expedited"));
    pass(&frame(0, 63, 17, &[], ports, b"from farther away"));
    let stats = router.stats();
    assert!(
        stats.reason("guard_dscp") > before.reason("guard_dscp"),
        "{stats}"
    );
    assert!(
        stats.reason("guard_ttl") > before.reason("guard_ttl"),
        "{stats}"
    );
    assert_eq!(stats.fast(), before.fast());

    // Extension headers: next header, length, options.
    let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    // atomic fragment (RFC 6946)
    let atomic = [17u8, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef];
    // an empty routing header with no segments left is passed over
    let routing = [17u8, 0, 99, 0, 0, 0, 0, 0];
    let hop_by_hop_then_destination = [padding(60), padding(17)].concat();
    let cases: [(&str, u8, &[u8], &str); 5] = [
        ("hop-by-hop options", 0, &padding(17), "ip6_extension"),
        ("destination options", 60, &padding(17), "ip6_extension"),
        (
            "hop-by-hop and destination options",
            0,
            &hop_by_hop_then_destination,
            "ip6_extension",
        ),
        ("routing header", 43, &routing, "ip6_extension"),
        ("atomic fragment", 44, &atomic, "fragment"),
    ];
    for (what, first, extensions, reason) in cases {
        let before = router.stats();
        for _ in 0..5 {
            pass(&frame(0x54321, 64, first, extensions, ports, b"extended"));
        }
        let stats = router.stats();
        assert_eq!(
            stats.reason(reason) - before.reason(reason),
            5,
            "{what}: {stats}"
        );
        assert_eq!(stats.fast(), before.fast(), "{what}");
        eprintln!("{what}: by the kernel, {reason}");
    }
    // And the plain ones are fast as ever.
    let before = router.stats();
    for _ in 0..10 {
        pass(&frame(0, 64, 17, &[], ports, b"plain"));
    }
    assert!(
        router.stats().fast() >= before.fast() + 9,
        "{}",
        router.stats()
    );
    router.stop();
}
