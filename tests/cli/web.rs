// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway web`: who is let in, and the page in a browser beside a router with traffic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::Value;

const TOKEN: &str = "correct+horse=battery";
/// A phone's width.
const PHONE: u32 = 390;
/// What the page has in the router: a set by which a rule drops.
const RULESET: &str = "table inet f {
    set banned { type ipv4_addr; elements = { 203.0.113.9, 203.0.113.77 } }
    chain raw { type filter hook prerouting priority raw; ip saddr @banned counter drop; }
}";
const CONNECTIONS: u16 = 3;
/// Of the first connection, between two blocks each way.
const PAUSE: Duration = Duration::from_millis(150);
/// The name of a port that would be markup if it were put in as such.
const PORT: &str = "<b>x";
/// How long traffic is shown ahead of pictures that are wanted.
const SITTING: Duration = Duration::from_secs(75);

fn token_file(mode: u32) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

/// No daemon is needed, nor are privileges.
const SOCKET: [&str; 2] = ["--socket", "/nonexistent/freeway.sock"];

#[track_caller]
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = freeway().arg("web").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), text)
}

#[test]
fn what_is_unsafe_is_refused_at_the_start() {
    let config = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| std::fs::write(config.path(), text).unwrap();
    write("");
    let with = |arguments: &[&str]| {
        let always = ["--config", path(&config), SOCKET[0], SOCKET[1]];
        refused(&[&always, arguments].concat())
    };
    let (code, text) = with(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, 78, "{text}");
    assert!(text.contains("others reach 0.0.0.0:0") && text.contains("--token-file"));
    let open = token_file(0o644);
    let (code, text) = with(&["--listen", "127.0.0.1:0", "--token-file", path(&open)]);
    assert_eq!(code, 78);
    assert!(text.contains("all users may use it"), "{text}");
    let (code, text) = with(&["--token-file", "/nonexistent/token"]);
    assert_eq!(code, 78);
    assert!(text.contains("/nonexistent/token: No such file"), "{text}");
    assert_eq!(with(&["--listen", "here"]).0, 64);

    write("[web]\nlisten = \"[::]:8080\"\n");
    let (code, text) = with(&[]);
    assert_eq!(code, 78);
    assert!(
        text.contains(":2:1: web.listen: others reach [::]:8080"),
        "{text}"
    );
    let check = freeway()
        .args(["config", "check", path(&config)])
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(78));

    let first = Web::start(None, &["--listen", "127.0.0.1:0", SOCKET[0], SOCKET[1]]);
    let (code, text) = refused(&["--listen", &first.address.to_string()]);
    assert_eq!(code, 1);
    assert!(
        text.contains("choose another address with --listen"),
        "{text}"
    );
}

#[test]
fn a_wrong_token_gets_401_and_a_line_in_the_log() {
    let file = token_file(0o640);
    let arguments = ["--listen", "127.0.0.1:0", "--token-file", path(&file)];
    let mut web = Web::start(None, &[&arguments[..], &SOCKET].concat());
    let host = format!("Host: {}", web.address);
    let get = |path: &str, more: &[&str]| {
        let line = format!("GET {path} HTTP/1.1");
        web.ask(&[&[line.as_str(), &host], more].concat(), "")
    };
    // without one: the form, and no complaint
    let (status, page) = get("/", &[]);
    assert_eq!(status, 401);
    assert!(
        page.contains("<form method=\"post\" action=\"/login\">"),
        "{page}"
    );
    assert_eq!(get("/events", &[]).0, 401);
    assert!(!web.log().contains("token"), "{}", web.log());

    let (status, page) = get("/", &["Authorization: Bearer wrong+horse=battery"]);
    assert_eq!(status, 401);
    assert!(page.contains("www-authenticate: Bearer") && page.contains("This is not the token"));
    web.wait_said("WARN a wrong token from 127.0.0.1");
    assert!(!web.log().contains("horse"), "{}", web.log());

    let bearer = format!("Authorization: Bearer {TOKEN}");
    let (status, page) = get("/", &[&bearer]);
    assert_eq!(status, 200);
    for header in [
        "content-security-policy: default-src 'none'; script-src 'nonce-",
        "x-frame-options: DENY",
        "referrer-policy: same-origin",
        "cache-control: no-store",
        "connection: close",
    ] {
        assert!(page.contains(header), "{header}: {page}");
    }

    // a name that leads here is not this machine's
    let (status, _) = web.ask(&["GET / HTTP/1.1", "Host: evil.example", &bearer], "");
    assert_eq!(status, 421);
    web.wait_said("127.0.0.1 asks for host evil.example, which is refused");

    // what is no request, or too much of it, does no harm
    let long = format!("X: {}", "x".repeat(1 << 16));
    for wrong in [&["HELO"][..], &["GET / HTTP/1.1", &host, &long]] {
        let mut stream = web.connect();
        // it may be closed before all is said
        let _ = stream.write_all((wrong.join("\r\n") + "\r\n\r\n").as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    let form = format!(
        "{{\"proto\": \"tcp\", \"src\": \"{}\"}}",
        "1".repeat(1 << 13)
    );
    let lines = [
        "POST /explain HTTP/1.1",
        &host,
        &bearer,
        "Content-Type: application/json",
    ];
    assert_eq!(web.ask(&lines, &form).0, 413);
    assert_eq!(get("/", &[&bearer]).0, 200);
    let ended = web.stop();
    assert!(ended.success(), "{ended}: {}", web.log());
}

#[test]
fn names_of_the_configuration_are_this_machine() {
    let config = tempfile::NamedTempFile::new().unwrap();
    let text = "[web]\nlisten = \"127.0.0.1:0\"\nhosts = [\"router.lan\"]\n[daemon]\nsocket = \"/nonexistent/a.sock\"\n";
    std::fs::write(config.path(), text).unwrap();
    let web = Web::start(None, &["--config", path(&config)]);
    let status = |host: &str| web.ask(&["GET / HTTP/1.1", &format!("Host: {host}")], "").0;
    assert_eq!(status("router.lan:8080"), 200);
    assert_eq!(status("other.lan:8080"), 421);
}

/// A connection on which there is always some traffic, the less the higher its number.
fn exchange(lab: &Lab, number: u16, ends: &AtomicBool) {
    let to = address(&format!("198.51.100.2:{}", 5000 + number));
    let from = address(&format!("192.0.2.2:{}", 40_000 + number));
    let listener = listen(lab.server(), to);
    let mut streams = pair((lab.client(), from), to, &listener);
    while !ends.load(Ordering::Relaxed) {
        exchange_blocks(&mut streams, 1);
        thread::sleep(PAUSE * number.into());
    }
}

/// Where pictures are wanted.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("FREEWAY_PICTURES").map(|name| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// In pictures it would puzzle.
fn port() -> &'static str {
    pictures().map_or(PORT, |_| "guest0")
}

fn start(lab: &Lab) -> Router {
    let config = lab.config_toml("");
    let ports = ["lan0", "wan0", port()];
    Router::start_until(lab.router(), &config, freeway(), &ports, |status| {
        let ports = status["ports"].as_array().unwrap();
        let fast = ports.iter().filter(|port| port["state"] == "fast");
        ports.len() == 3 && fast.count() == 2
    })
}

/// Live, with both flows of each connection.
const SHOWN: &str = "document.getElementById('link').textContent === 'live' \
    && document.querySelectorAll('#flows tbody tr').length >= 6 \
    && document.getElementById('flows').innerText.includes('tcp 192.0.2.2:40001')";

#[test]
fn a_browser_shows_what_is_forwarded() {
    let Some(_machine) = machine() else { return };
    let lab = &build("nat");
    lab.router().tool_with_input("nft -f -", RULESET).unwrap();
    let veth = format!("ip link add {} type veth peer name peer0", port());
    lab.router().tool(&veth).unwrap();
    let Some(mut browser) = Browser::start(Some(lab.router())) else {
        return;
    };
    let router = start(lab);
    let file = token_file(0o600);
    let arguments = ["--listen", "127.0.0.1:8080", "--token-file", path(&file)];
    let web = Web::start(Some(lab.router()), &arguments);
    let (url, ends) = (format!("http://{}/", web.address), AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        for number in 1..=CONNECTIONS {
            let ends = &ends;
            scope.spawn(move || exchange(lab, number, ends));
        }
        log_in(&mut browser, &web, &url);
        browser.wait("flows are shown", SHOWN);
        check_words(&mut browser);
        check_form(&mut browser);
        check_looks(&mut browser);
        check_refusal(&mut browser);
        drop_daemon(&mut browser, lab, router);
        check_requests(&mut browser, &url);
    });
}

/// By the form: a wrong token first.
fn log_in(browser: &mut Browser, web: &Web, url: &str) {
    let say = |word: &str| {
        format!(
            "document.querySelector('input').value = {}; document.querySelector('form').requestSubmit()",
            Value::from(word)
        )
    };
    browser.go(url);
    browser.evaluate(&say("correct horse"));
    browser.wait("a refusal", "document.querySelector('.wrong') !== null");
    web.wait_said("WARN a wrong token from 127.0.0.1");
    browser.evaluate(&say(TOKEN));
    browser.wait("the page", "document.getElementById('flows') !== null");
    // scripts do not get at it
    assert_eq!(browser.evaluate("document.cookie"), "");
}

fn check_words(browser: &mut Browser) {
    let has = |section: &str, words: &[&str], text: &str| {
        for word in words {
            assert!(text.contains(word), "{section}: {word}: {text}");
        }
    };
    for (section, words) in [
        ("header", &["Freeway", "on", "live"][..]),
        ("#paths", &["XDP", "Kernel"]),
        ("#ports", &["lan0", "wan0", port(), "fast · XDP"]),
        (
            "#flows",
            &[
                "tcp 192.0.2.2:40001 → 198.51.100.2:5001",
                "lan0 → wan0",
                "xdp",
            ],
        ),
        ("#drops", &["inet f banned", "2 elements"]),
        ("footer", &["Freeway 0.", "Linux"]),
    ] {
        let text = browser.text(section);
        has(section, words, &text);
    }
    // confirmations are the kernel's, so there is one sooner or later
    let reasons = "document.querySelector('#reasons tbody small') !== null";
    browser.wait("a reason", reasons);
    // names are text
    let bold = "document.querySelectorAll('#ports tbody tr').length * 1 === document.querySelectorAll('#ports b').length";
    assert_eq!(browser.evaluate(bold), true);
    // each sparkline has been drawn, and each table has heads
    let drawn = "[...document.querySelectorAll('#paths path')].every(path => path.getAttribute('d').length > 8)";
    assert_eq!(browser.evaluate(drawn), true);
    let heads = "[...document.querySelectorAll('section')].every(s => s.hasAttribute('aria-label') || s.hasAttribute('aria-labelledby'))";
    assert_eq!(browser.evaluate(heads), true);
}

fn check_form(browser: &mut Browser) {
    // a flow of the table, by its row
    browser.evaluate(
        "[...document.querySelectorAll('.flow')].find(b => b.textContent.startsWith('tcp')).click()",
    );
    browser.wait(
        "an answer",
        "document.querySelector('#answer .badge') !== null",
    );
    let answer = browser.text("#answer");
    assert!(answer.starts_with("fast"), "{answer}");
    assert!(
        answer.contains("In the kernel") && answer.contains("connection established"),
        "{answer}"
    );
}

/// What makes no sense.
fn check_refusal(browser: &mut Browser) {
    let submit =
        "{ const f = document.querySelector('form'); f.src.value = '<b>'; f.requestSubmit() }";
    browser.evaluate(submit);
    let refused =
        "document.querySelector('#answer').textContent.includes('source: write 192.0.2.1:80')";
    browser.wait("a refusal", refused);
}

fn check_looks(browser: &mut Browser) {
    if pictures().is_some() {
        thread::sleep(SITTING);
    }
    let mut grounds = Vec::new();
    for (width, name) in [(1280, "wide"), (PHONE, "phone")] {
        for (dark, scheme) in [(false, "light"), (true, "dark")] {
            browser.look_at(width, 900, dark);
            browser.evaluate(
                "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))",
            );
            let wider = "[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 \
                && e.getBoundingClientRect().width > 0).map(e => e.outerHTML.slice(0, 80))";
            assert_eq!(browser.evaluate(wider), Value::Array(Vec::new()), "{width}");
            assert_eq!(browser.evaluate("innerWidth"), width);
            assert_eq!(
                browser.evaluate("document.documentElement.scrollWidth"),
                width
            );
            grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
            let height = browser.evaluate("document.documentElement.scrollHeight");
            browser.look_at(width, height.as_u64().unwrap() as u32, dark);
            let picture = browser.picture();
            assert!(picture.starts_with(b"\x89PNG"));
            assert_eq!(picture[16..20], width.to_be_bytes());
            if let Some(folder) = pictures() {
                std::fs::write(folder.join(format!("{name}-{scheme}.png")), picture).unwrap();
            }
        }
    }
    assert!(grounds[0] != grounds[1]);
    assert_eq!(grounds[..2], grounds[2..]);
}

/// The daemon is killed, and comes back.
fn drop_daemon(browser: &mut Browser, lab: &Lab, mut router: Router) {
    router.signal(Signal::SIGKILL);
    router.wait();
    let words = "no connection to the daemon";
    let away = format!("document.getElementById('link').textContent.startsWith('{words}')");
    browser.wait(words, &away);
    let _router = start(lab);
    browser.wait(
        "the daemon is back",
        "document.getElementById('link').textContent === 'live'",
    );
}

/// Nothing was asked of anybody else, and nothing could be.
fn check_requests(browser: &mut Browser, url: &str) {
    let requested = browser.requested();
    let own = |of: &&String| of.starts_with(url) || of.starts_with("data:,");
    let foreign: Vec<_> = requested.iter().filter(|of| !own(of)).collect();
    assert!(foreign.is_empty() && requested.len() >= 4, "{requested:?}");
    let blocked = "new Promise(told => { \
        document.addEventListener('securitypolicyviolation', event => told(event.effectiveDirective)); \
        fetch('http://192.0.2.1:9/').catch(() => 0); })";
    assert_eq!(browser.evaluate(blocked), "connect-src");
    let script = "new Promise(told => { \
        document.addEventListener('securitypolicyviolation', event => told(event.effectiveDirective)); \
        const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })";
    assert_eq!(browser.evaluate(script), "script-src-elem");
    assert_eq!(browser.evaluate("window.ran === undefined"), true);
}
