// SPDX-License-Identifier: MIT OR Apache-2.0
//! What another program prints, if it is there: neither more nor longer than there is patience for.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of what one says of its failure.
const COMPLAINT_MAX: u64 = 4096;
/// Between two looks at whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// What was printed.
pub struct Printed {
    pub text: String,
    /// There was more.
    pub cut: bool,
}

/// Runs a program to its end, or until it has printed `most` octets. An error says why there is nothing, or not all.
pub fn run(line: &[&str], most: u64) -> Result<Printed, String> {
    run_within(line, most, PATIENCE)
}

fn run_within(line: &[&str], most: u64, patience: Duration) -> Result<Printed, String> {
    let [program, arguments @ ..] = line else {
        return Err("no program".into());
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C.UTF-8");
    let piped = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let stdout = child.stdout.take().map(|pipe| reader(pipe, most + 1));
    let stderr = child.stderr.take().map(|pipe| reader(pipe, COMPLAINT_MAX));
    let ended = wait(&mut child, Instant::now() + patience);
    let read = |thread: Option<JoinHandle<Vec<u8>>>| thread.and_then(|t| t.join().ok());
    let mut output = read(stdout).unwrap_or_default();
    let complaint = read(stderr).unwrap_or_default();
    let cut = output.len() as u64 > most;
    output.truncate(most as usize);
    // it ended by what it could not print any more
    if ended == Some(true) || cut {
        let text = String::from_utf8_lossy(&output).into_owned();
        return Ok(Printed { text, cut });
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let first = complaint.lines().next().unwrap_or("it failed");
    Err(match ended {
        Some(_) => format!("{program}: {first}"),
        None => format!("{program}: not within {} s", patience.as_secs()),
    })
}

/// Reads until there is no more, or enough: what is beyond is not read, and ends the program.
fn reader(pipe: impl Read + Send + 'static, most: u64) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut read = Vec::new();
        // what was read before an error is there
        let _ = pipe.take(most).read_to_end(&mut read);
        read
    })
}

/// Whether it ended well; `None`: it had to be ended.
fn wait(child: &mut Child, until: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_heard_to_its_bound() {
        let printed = run(&["echo", "seven"], 6).unwrap();
        assert_eq!((printed.text.as_str(), printed.cut), ("seven\n", false));
        let printed = run(&["yes"], 1000).unwrap();
        assert_eq!((printed.text.len(), printed.cut), (1000, true));
    }

    #[test]
    fn it_is_said_why_there_is_nothing() {
        let why = |line: &[&str]| run_within(line, 10, Duration::from_secs(1)).err().unwrap();
        assert!(why(&["no-such-program"]).starts_with("no-such-program: No such file"));
        assert_eq!(why(&["sh", "-c", "echo no >&2; false"]), "sh: no");
        assert_eq!(why(&["false"]), "false: it failed");
        assert_eq!(why(&["sleep", "60"]), "sleep: not within 1 s");
    }
}
