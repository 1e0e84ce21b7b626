// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chromium without a screen, driven by its DevTools protocol over pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use freeway_lab::Netns;
use serde_json::{Value, json};

use crate::until;

/// The browser reads descriptor 3 and writes descriptor 4: those are the pipes to the test.
const SCRIPT: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
/// How long something may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page; dropping it ends it.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    number: u64,
    session: Option<String>,
    requested: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// In a network namespace, or in this one; `None` where there is no Chromium.
    pub fn start(netns: Option<&Netns>) -> Option<Browser> {
        let found = Command::new("chromium")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if found.is_err() {
            println!("skipped: chromium is not installed");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "sh", "chromium"])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = match netns {
            Some(netns) => netns.spawn(&mut command).unwrap(),
            None => command.spawn().unwrap(),
        };
        let mut browser = Browser {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            number: 0,
            session: None,
            requested: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let id = &target["targetId"];
        let attached = browser.call(
            "Target.attachToTarget",
            json!({ "targetId": id, "flatten": true }),
        );
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Network", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// A request of the protocol, and its result.
    #[track_caller]
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.ask(method, parameters);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        loop {
            let mut answer = Vec::new();
            let length = self.output.read_until(0, &mut answer).unwrap();
            assert!(length > 0, "chromium has ended at {method}");
            let answer: Value = serde_json::from_slice(&answer[..length - 1]).unwrap();
            if answer["method"] == "Network.requestWillBeSent" {
                let url = &answer["params"]["request"]["url"];
                self.requested.push(url.as_str().unwrap().to_owned());
            }
            if answer["id"] == self.number {
                return match answer["error"].is_null() {
                    true => Ok(answer["result"].clone()),
                    false => Err(answer["error"].clone()),
                };
            }
        }
    }

    /// Loads a page.
    pub fn go(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({ "url": url }));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.wait("the page", "document.readyState === 'complete'");
    }

    /// Loads a file.
    pub fn open(&mut self, file: &Path) {
        self.go(&format!("file://{}", file.display()));
    }

    /// A window of that width, light or dark.
    pub fn look_at(&mut self, width: u32, height: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// What an expression of JavaScript is worth in the page.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let worth = self.try_evaluate(expression);
        worth.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// An error is the page's, or that it goes at this moment.
    fn try_evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let result = self.ask(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        )?;
        match result["exceptionDetails"].is_null() {
            true => Ok(result["result"]["value"].clone()),
            false => Err(result),
        }
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&mut self, what: &str, expression: &str) {
        until(what, PATIENCE, || {
            let worth = self.try_evaluate(expression);
            worth.is_ok_and(|worth| worth == true).then_some(())
        });
    }

    /// The words of the page.
    #[track_caller]
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!(
            "document.querySelector({}).innerText",
            Value::from(selector)
        ));
        text.as_str().unwrap().to_owned()
    }

    /// The whole page as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        BASE64.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// Addresses of all that was requested so far.
    pub fn requested(&self) -> &[String] {
        &self.requested
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
