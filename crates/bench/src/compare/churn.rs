// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes and neighbours that change while traffic runs, as `ip -batch` is told.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freeway_console::Stop;
use freeway_lab::Lab;
use freeway_lab::frame::{MAC_SERVER, mac_text};
use freeway_rig::pin;

/// Of so many changes one is of the flows' own route, and one of their next hop's MAC address.
const CYCLE: u32 = 10;
/// Networks and neighbours that no flow uses.
const OTHERS: u32 = 100;

/// The `number`th change. At each moment every flow has a way.
fn change(number: u32) -> String {
    let (round, step) = (number / CYCLE, number % CYCLE);
    let other = round % OTHERS;
    let again = round % 2 == 1;
    match step {
        0 if again => "route del 198.51.100.2/32 dev wan0".into(),
        0 => "route replace 198.51.100.2/32 dev wan0".into(),
        5 => {
            let mut mac = MAC_SERVER;
            // the server's port has a program that takes any
            mac[5] = mac[5].wrapping_add(u8::from(!again));
            let mac = mac_text(mac);
            format!("neighbour replace 198.51.100.2 lladdr {mac} nud permanent dev wan0")
        }
        1 | 3 => format!("route replace 203.0.113.{other}/32 via 198.51.100.2 dev wan0"),
        2 | 4 => format!("route del 203.0.113.{other}/32 via 198.51.100.2 dev wan0"),
        _ => format!(
            "neighbour replace 198.51.100.{} lladdr 02:00:00:00:03:{step:02x} nud permanent dev wan0",
            10 + other
        ),
    }
}

/// Changes a router until it is dropped.
#[derive(Debug)]
pub struct Churn {
    end: Arc<AtomicBool>,
    feeder: Option<JoinHandle<Result<f64, String>>>,
}

impl Churn {
    /// Begins, so many changes a second, by a process on that CPU.
    pub fn begin(lab: &Lab, per_s: u32, cpu: Option<usize>) -> Result<Self, Stop> {
        let mut command = Command::new("ip");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ip = lab.router().spawn(&mut command)?;
        if let Some(cpu) = cpu {
            pin(ip.id(), cpu)?;
        }
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let feeder = thread::spawn(move || feed(ip, per_s, &ended));
        Ok(Self {
            end,
            feeder: Some(feeder),
        })
    }

    /// Ends it, with the changes that there really were a second; fails if one was refused.
    pub fn end(mut self) -> Result<f64, Stop> {
        self.end.store(true, Ordering::Relaxed);
        let fed = self.feeder.take().map(JoinHandle::join);
        match fed {
            Some(Ok(Ok(per_s))) => Ok(per_s),
            Some(Ok(Err(why))) => Err(Stop::failure(why)),
            _ => Err(Stop::failure("a thread that changes routes ended badly")),
        }
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
    }
}

/// Writes changes in whole rounds of both kinds, so that the router ends as it began.
fn feed(mut ip: Child, per_s: u32, end: &AtomicBool) -> Result<f64, String> {
    let failed = |what: String| format!("cannot change the router's routes: {what}");
    let start = Instant::now();
    // those after the end are not at the pace
    let (mut number, mut paced) = (0, 0);
    if let Some(mut pipe) = ip.stdin.take() {
        while !end.load(Ordering::Relaxed) || number % (2 * CYCLE) != 0 {
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(per_s.max(1)));
            if !end.load(Ordering::Relaxed) {
                thread::sleep(due.saturating_sub(start.elapsed()));
                paced = number + 1;
            }
            let written = pipe.write_all(format!("{}\n", change(number)).as_bytes());
            if written.is_err() {
                // ip has ended, and says why below
                break;
            }
            number += 1;
        }
    }
    let status = ip.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!("ip ended with {status}")));
    }
    // many fit into the pipe: they are made when ip has ended
    Ok(f64::from(paced) / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_is_changed_back() {
        let changes: Vec<String> = (0..2 * CYCLE).map(change).collect();
        let of = |words: &str| changes.iter().filter(|line| line.contains(words)).count();
        assert_eq!(of("route replace 198.51.100.2/32"), 1);
        assert_eq!(of("route del 198.51.100.2/32"), 1);
        assert_eq!(of("route replace 203.0.113."), of("route del 203.0.113."));
        let server = format!("198.51.100.2 lladdr {} ", mac_text(MAC_SERVER));
        assert_eq!(of(&server), 1);
        let last = changes
            .iter()
            .rfind(|line| line.contains("198.51.100.2 lladdr"));
        assert!(last.is_some_and(|line| line.contains(&server)));
    }

    #[test]
    fn changes_count_when_they_were_made() {
        let of = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).stdin(Stdio::piped());
            let child = shell.spawn().unwrap();
            let end = AtomicBool::new(false);
            thread::scope(|scope| {
                let fed = scope.spawn(|| feed(child, 1000, &end));
                thread::sleep(Duration::from_millis(30));
                end.store(true, Ordering::Relaxed);
                fed.join().unwrap()
            })
        };
        let slow = of("while read -r line; do sleep 0.02; done").unwrap();
        assert!(slow > 0.0 && slow < 500.0, "{slow}");
        assert!(of("cat > /dev/null; exit 1").is_err());
    }

    #[test]
    fn a_tenth_is_of_the_flows_route() {
        let changes: Vec<String> = (0..1000).map(change).collect();
        let own = changes
            .iter()
            .filter(|line| line.contains(" 198.51.100.2/32"));
        assert_eq!(own.count(), 100);
    }
}
