// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's htb with the tree that the engine's scheduler has, in a namespace that goes with its thread.

use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};

/// 50 Mb/s: classes with their priority, rate and ceiling, Mb/s; as `tree()` of crates/engine/src/qos.rs.
const CLASSES: [(&str, u32, u32, u32); 3] =
    [("1:10", 0, 10, 20), ("1:20", 1, 20, 50), ("1:30", 2, 5, 50)];
/// UDP payload of a frame of 1,514 octets.
const PAYLOAD: usize = 1472;
/// Until all queues are full.
const WARM: Duration = Duration::from_millis(500);

/// The share of each class of all octets that left in that time, while all classes had frames.
pub fn shares(lasts: Duration) -> Result<Vec<f64>, String> {
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("no namespace can be made: {error}"))?;
            measured(lasts)
        });
        let ended = measured.join();
        ended.unwrap_or_else(|_| Err("its thread has ended".into()))
    })
}

fn tool(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{line}: {}", words.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn measured(lasts: Duration) -> Result<Vec<f64>, String> {
    for line in [
        "ip link add v0 type veth peer name v1",
        "ip address add 192.0.2.1/24 dev v0",
        "ip link set v0 up",
        "ip link set v1 up",
        "ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent",
        "tc qdisc add dev v0 root handle 1: htb default 30",
        "tc class add dev v0 parent 1: classid 1:1 htb rate 50mbit",
    ] {
        tool(line)?;
    }
    let mut sockets = Vec::new();
    for (class, priority, rate, ceiling) in CLASSES {
        tool(&format!(
            "tc class add dev v0 parent 1:1 classid {class} htb rate {rate}mbit ceil {ceiling}mbit prio {priority} quantum 1600"
        ))?;
        sockets.push(socket(class)?);
    }
    let fill = |lasts: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            for socket in &sockets {
                // until its buffer is full: the class has frames all the time
                while socket.send(&[0; PAYLOAD]).is_ok() {}
            }
            thread::sleep(Duration::from_micros(200));
        }
    };
    fill(WARM);
    let before = sent()?;
    fill(lasts);
    let after = sent()?;
    let left = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    let left: Vec<u64> = left.collect();
    let all: u64 = left.iter().sum();
    match all {
        0 => Err("nothing left".into()),
        _ => Ok(left.iter().map(|left| *left as f64 / all as f64).collect()),
    }
}

/// What it sends is of that class.
fn socket(class: &str) -> Result<UdpSocket, String> {
    let failed = |error: String| format!("a socket of class {class}: {error}");
    let socket = UdpSocket::bind("192.0.2.1:0").map_err(|error| failed(error.to_string()))?;
    let minor = class.split_once(':').map_or("0", |(_, minor)| minor);
    let minor = i32::from_str_radix(minor, 16).map_err(|error| failed(error.to_string()))?;
    setsockopt(&socket, sockopt::Priority, &(1 << 16 | minor))
        .map_err(|error| failed(error.to_string()))?;
    let connected = socket.connect("192.0.2.2:9");
    connected.map_err(|error| failed(error.to_string()))?;
    let prompt = socket.set_nonblocking(true);
    prompt.map_err(|error| failed(error.to_string()))?;
    Ok(socket)
}

/// Octets that each class has sent.
fn sent() -> Result<Vec<u64>, String> {
    let shown = tool("tc -s class show dev v0")?;
    let of = |(class, ..): (&str, u32, u32, u32)| {
        let head = format!("class htb {class} ");
        let mut lines = shown.lines().skip_while(|line| !line.starts_with(&head));
        let counts = lines.nth(1)?.trim().strip_prefix("Sent ")?;
        counts.split_once(' ')?.0.parse().ok()
    };
    let all: Option<Vec<u64>> = CLASSES.map(of).into_iter().collect();
    all.ok_or_else(|| format!("tc shows no counts of a class: {shown}"))
}
