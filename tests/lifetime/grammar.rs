// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configurations by a grammar: whole ones, and ones with one thing wrong.

use std::fmt::Write as _;

use freeway_testkit::random::Random;

/// What may differ from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Whatever concerns no flow of the load.
    Apart,
    /// That, and what flows of the load may be fast, and by which path.
    Load,
}

/// What a configuration means for the load, and for what can be asked of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// By whom the load goes: `xdp`, `tc` or `kernel`.
    pub path: &'static str,
    /// Flows of these source ports and above are the kernel's.
    pub excluded: bool,
    pub steered: usize,
    pub limits: usize,
    pub drops: bool,
    pub accounts: bool,
    pub metrics: Option<u16>,
}

/// What is wrong: what `freeway reload` says of it.
#[derive(Clone, Debug)]
pub struct Fault {
    pub exit: i32,
    /// The line, from 1 on; 0: what is wrong has none.
    pub line: usize,
    /// The key, or what else names it.
    pub words: &'static str,
    /// A daemon that starts with it goes on: nothing is wrong with the file itself.
    pub only_here: bool,
}

/// A table; its lines are those of the file.
#[derive(Clone, Debug)]
struct Table {
    head: String,
    lines: Vec<String>,
}

impl Table {
    fn new(head: &str) -> Self {
        Self {
            head: head.to_owned(),
            lines: Vec::new(),
        }
    }

    fn set(&mut self, key: &str, value: impl std::fmt::Display) -> &mut Self {
        self.lines.push(format!("{key} = {value}"));
        self
    }

    /// May be written with dots, ahead of all tables: no other one is within it.
    fn is_dotted(&self) -> bool {
        ["[flows]", "[accounting]", "[web]", "[daemon]"].contains(&&*self.head)
    }
}

/// One thing that is wrong: table, its other lines, the wrong line (none: the table's head is), and what names it.
type Wrong = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

/// Of these the file itself is to blame.
const WRONG: &[Wrong] = &[
    // another type
    ("[flows]", &[], "tcp_idle_s = \"60\"", "`tcp_idle_s`"),
    ("[flows]", &[], "udp_idle_s = true", "`udp_idle_s`"),
    ("[flows]", &[], "udp_idle_s = 6.5", "`udp_idle_s`"),
    ("[flows]", &[], "max = [9]", "`max`"),
    ("[policy]", &[], "tcp = 1", "`tcp`"),
    ("[policy]", &[], "udp_one_way = \"no\"", "`udp_one_way`"),
    ("[policy]", &[], "bridging = []", "`bridging`"),
    ("[policy]", &[], "drops = 0.5", "`drops`"),
    ("[policy]", &[], "routes = \"auto\"", "`routes`"),
    ("[[policy.exclude]]", &[], "dst = \"192.0.2.1\"", "`dst`"),
    ("[[policy.exclude]]", &[], "proto = 17", "`proto`"),
    (
        "[[policy.exclude]]",
        &["proto = \"udp\""],
        "dport = [true]",
        "`dport`",
    ),
    ("[[policy.steer]]", &[], "path = true", "`path`"),
    (
        "[[scrub.limit]]",
        &["proto = \"udp\""],
        "packets_per_s = \"9\"",
        "`packets_per_s`",
    ),
    ("[port.spare0]", &[], "wire_true = 1", "`wire_true`"),
    ("[port.spare0]", &[], "path = 2", "`path`"),
    ("[accounting]", &[], "hosts = \"192.0.2.0/24\"", "`hosts`"),
    ("[[export]]", &[], "collector = 4739", "`collector`"),
    (
        "[[export]]",
        &["collector = \"192.0.2.9:1\""],
        "biflow = \"yes\"",
        "`biflow`",
    ),
    ("[web]", &[], "hosts = [1]", "`hosts`"),
    ("[daemon]", &[], "interfaces = \"lan0\"", "`interfaces`"),
    ("[daemon]", &[], "metrics = 9100", "`metrics`"),
    // another value
    ("[flows]", &[], "tcp_idle_s = 0", "`tcp_idle_s`"),
    ("[flows]", &[], "udp_idle_s = -1", "`udp_idle_s`"),
    ("[flows]", &[], "udp_idle_s = 4294967296", "`udp_idle_s`"),
    ("[flows]", &[], "max = 1835009", "`max`"),
    (
        "[[policy.exclude]]",
        &[],
        "src = [\"192.0.2.0/33\"]",
        "`src`",
    ),
    ("[[policy.exclude]]", &[], "sport = [70000]", "`sport`"),
    ("[[policy.exclude]]", &[], "dport = [\"9-8\"]", "`dport`"),
    ("[[policy.exclude]]", &[], "proto = \"256\"", "`proto`"),
    ("[[policy.steer]]", &[], "path = \"tc\"", "`path`"),
    ("[punts.limits]", &[], "icmp = 0", "`icmp`"),
    ("[punts.limits]", &[], "arp = 9", "`arp`"),
    ("[punts.limits]", &[], "not_ip = 9", "`not_ip`"),
    (
        "[[scrub.limit]]",
        &["proto = \"any\""],
        "packets_per_s = 0",
        "`packets_per_s`",
    ),
    (
        "[[scrub.limit]]",
        &["packets_per_s = 9"],
        "proto = \"esp\"",
        "`proto`",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"syn\"", "packets_per_s = 1"],
        "burst = 3601",
        "scrub.limit.burst",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"syn\"", "packets_per_s = 1"],
        "burst = 0",
        "scrub.limit.burst",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"syn\"", "packets_per_s = 1"],
        "prefix_len4 = 33",
        "`prefix_len4`",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"syn\"", "packets_per_s = 1"],
        "prefix_len6 = 0",
        "`prefix_len6`",
    ),
    ("[port.spare0]", &[], "path = \"xpd\"", "`path`"),
    ("[accounting]", &[], "active_s = 0", "`active_s`"),
    ("[accounting]", &[], "idle_s = 86401", "`idle_s`"),
    (
        "[accounting]",
        &[],
        "hosts = [\"192.0.2.0/24\", \"2001:db8::/129\"]",
        "`hosts`",
    ),
    (
        "[[export]]",
        &[],
        "collector = \"192.0.2.9\"",
        "`collector`",
    ),
    (
        "[[export]]",
        &[],
        "collector = \"192.0.2.9:0\"",
        "key `export.collector`: a collector has a port",
    ),
    (
        "[[export]]",
        &["collector = \"192.0.2.9:1\"", "format = \"netflow9\""],
        "transport = \"tcp\"",
        "key `export.transport`: NetFlow v9 goes over UDP",
    ),
    (
        "[[export]]",
        &["collector = \"192.0.2.9:1\""],
        "mtu = 575",
        "`mtu`",
    ),
    (
        "[[export]]",
        &["collector = \"192.0.2.9:1\""],
        "queue = 63",
        "`queue`",
    ),
    ("[web]", &[], "listen = \"0.0.0.0:8080\"", "web.listen"),
    ("[web]", &[], "hosts = [\"a b\"]", "web.hosts"),
    ("[daemon]", &[], "log = \"loud\"", "`loud`"),
    ("[daemon]", &[], "metrics = \"localhost\"", "`metrics`"),
    ("[engine]", &[], "same_core = true", "engine.same_core"),
    // an unknown key or table, one that is missing, one that is there twice
    ("[flows]", &[], "maximum = 9", "`maximum`"),
    ("[policy]", &[], "sctp = true", "`sctp`"),
    (
        "[[policy.exclude]]",
        &["proto = \"udp\""],
        "vlan = 7",
        "`vlan`",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"udp\"", "packets_per_s = 9"],
        "mark = 7",
        "`mark`",
    ),
    ("[port.spare0]", &[], "mtu = 1500", "`mtu`"),
    ("[daemon]", &[], "user = \"root\"", "`user`"),
    ("[flow]", &[], "", "`flow`"),
    (
        "[[exports]]",
        &["collector = \"192.0.2.9:1\""],
        "",
        "`exports`",
    ),
    ("[[policy.exclude]]", &[], "", "policy.exclude"),
    (
        "[[policy.steer]]",
        &["proto = \"tcp\""],
        "",
        "neither path nor mirror",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"tcp\""],
        "",
        "`packets_per_s`",
    ),
    ("[[export]]", &["domain = 7"], "", "`collector`"),
    ("[port.lan0]", &[], "wire_true = true", "duplicate key"),
    (
        "[flows]",
        &["tcp_idle_s = 60"],
        "tcp_idle_s = 60",
        "duplicate key",
    ),
    // no TOML
    ("[flows", &[], "", ""),
    ("[]", &[], "", ""),
    ("[flows]", &[], "tcp_idle_s == 60", ""),
    ("[flows]", &[], "tcp_idle_s 60", ""),
    ("[flows]", &[], "tcp_idle_s = 6O", ""),
    ("[policy]", &[], "tcp = True", ""),
    ("[policy]", &[], "= true", ""),
    ("[daemon]", &[], "log = \"info", ""),
    ("[daemon]", &[], "log = \"\\q\"", ""),
    ("[daemon]", &[], "log = info", ""),
];

/// Of these what is there is to blame, not the file.
const ELSEWHERE: &[Wrong] = &[
    (
        "[port.lan9]",
        &["path = \"tc\""],
        "",
        "key `port.lan9`: lan9: no such",
    ),
    (
        "[[policy.exclude]]",
        &[],
        "port = [\"lan9\"]",
        "key `policy.exclude.port`: lan9: no such",
    ),
    (
        "[[policy.steer]]",
        &["path = \"xdp\""],
        "port = [\"lan9\"]",
        "key `policy.steer.port`: lan9: no such",
    ),
    (
        "[[scrub.limit]]",
        &["proto = \"udp\"", "packets_per_s = 9"],
        "port = [\"wan0\", \"lan9\"]",
        "key `scrub.limit.port`: lan9: no such",
    ),
    (
        "[daemon]",
        &[],
        "interfaces = [\"lan0\", \"wan0\", \"lan9\"]",
        "key `daemon.interfaces`: lan9: no such",
    ),
    (
        "[daemon]",
        &[],
        "metrics = \"192.0.2.1:9100\"",
        "key `daemon.metrics`: cannot serve",
    ),
];

/// Of these a restart is needed; the key.
const RESTART: &[Wrong] = &[
    ("[flows]", &[], "max = 4096", "flows.max"),
    ("[policy]", &[], "routes = false", "policy.routes"),
    ("[punts.limits]", &[], "icmp = 1000", "punts.limits.icmp"),
    (
        "[punts.limits]",
        &[],
        "miss_close = 50000",
        "punts.limits.miss_close",
    ),
    ("[engine]", &[], "core = 0", "engine.core"),
    (
        "[engine.port.spare0]",
        &[],
        "af_xdp = true",
        "engine.port.spare0.af_xdp",
    ),
    (
        "[daemon]",
        &[],
        "socket = \"/run/freeway/another.sock\"",
        "daemon.socket",
    ),
    (
        "[daemon]",
        &[],
        "rcvbuf_bytes = 4194304",
        "daemon.rcvbuf_bytes",
    ),
];

/// A configuration of the grammar.
#[derive(Clone, Debug)]
pub struct Configuration {
    tables: Vec<Table>,
    pub meaning: Meaning,
}

impl Configuration {
    /// One that the daemon takes. `half`: source ports above are those of about half of the load's flows.
    pub fn draw(rng: &mut Random, reach: Reach, half: u16) -> Self {
        let load = reach == Reach::Load;
        let mut tables = Vec::new();
        let mut meaning = Meaning {
            path: "xdp",
            excluded: false,
            steered: 0,
            limits: 0,
            drops: true,
            accounts: false,
            metrics: None,
        };
        let mut table = |table: Table| tables.push(table);

        let mut flows = Table::new("[flows]");
        for key in ["tcp_idle_s", "udp_idle_s"] {
            if rng.permille(500) {
                flows.set(key, 30 + rng.below(600));
            }
        }
        table(flows);

        let mut policy = Table::new("[policy]");
        for key in [
            "tcp",
            "icmp",
            "tunnels",
            "multicast",
            "bridging",
            "drops",
            "udp_one_way",
        ] {
            if rng.permille(400) {
                let value = rng.permille(500);
                policy.set(key, value);
                meaning.drops &= value || key != "drops";
            }
        }
        if load && rng.permille(200) {
            policy.set("udp", false);
            meaning.path = "kernel";
        }
        table(policy);

        for _ in 0..rng.below(3) {
            let mut exclude = Table::new("[[policy.exclude]]");
            match rng.below(5) {
                0 => exclude
                    .set("proto", "\"tcp\"")
                    .set("dport", "[22, \"8000-8010\"]"),
                1 => exclude.set("dst", "[\"203.0.113.0/24\", \"2001:db8::/32\"]"),
                2 => exclude.set("proto", "\"gre\""),
                3 => exclude.set("port", "[\"spare0\"]"),
                _ => exclude
                    .set("src", "[\"203.0.113.7\"]")
                    .set("sport", format!("[{}]", rng.below(65536))),
            };
            table(exclude);
        }
        if load && rng.permille(300) {
            let mut exclude = Table::new("[[policy.exclude]]");
            exclude
                .set("proto", "\"udp\"")
                .set("sport", format!("[\"{half}-65535\"]"));
            table(exclude);
            meaning.excluded = true;
        }
        for _ in 0..rng.below(3) {
            let mut steer = Table::new("[[policy.steer]]");
            steer.set(
                "path",
                if rng.permille(700) {
                    "\"engine\""
                } else {
                    "\"xdp\""
                },
            );
            if rng.permille(500) {
                steer.set("proto", "\"udp\"");
            }
            if rng.permille(500) {
                steer.set("dport", format!("[\"{}-65535\"]", 1 + rng.below(60000)));
            }
            table(steer);
            meaning.steered += 1;
        }
        for _ in 0..rng.below(4) {
            let mut limit = Table::new("[[scrub.limit]]");
            // nobody reaches those that count the load
            let (proto, least) = rng.of(&[
                ("any", 10_000_000),
                ("udp", 10_000_000),
                ("tcp", 1),
                ("syn", 1),
                ("icmp", 1),
            ]);
            limit
                .set("proto", format!("\"{proto}\""))
                .set("packets_per_s", least + rng.below(1000));
            if rng.permille(300) {
                limit.set("port", rng.of(&["[\"lan0\"]", "[\"spare0\", \"wan0\"]"]));
            }
            if rng.permille(300) {
                limit.set("burst", 600 + rng.below(1000));
            }
            if rng.permille(300) {
                limit
                    .set("prefix_len4", 24 + rng.below(9))
                    .set("prefix_len6", 48);
            }
            table(limit);
            meaning.limits += 1;
        }

        let paths: Vec<&str> = ["lan0", "wan0"]
            .map(|port| {
                let path = match load {
                    true => rng.of(&["", "auto", "auto", "xdp", "xdp", "tc", "kernel"]),
                    false => rng.of(&["", "auto"]),
                };
                let mut own = Table::new(&format!("[port.{port}]"));
                own.set("wire_true", true);
                if !path.is_empty() {
                    own.set("path", format!("\"{path}\""));
                }
                // what is sent is looked for among flows
                own.set("routes", false);
                table(own);
                path
            })
            .into();
        let any = |path| paths.contains(&path);
        if any("kernel") || any("tc") && any("xdp") {
            // a port that is XDP's alone gives the kernel what XDP cannot forward
            meaning.path = "kernel";
        } else if any("tc") && meaning.path != "kernel" {
            meaning.path = "tc";
        }
        if rng.permille(700) {
            let mut spare = Table::new("[port.spare0]");
            if rng.permille(700) {
                spare.set(
                    "path",
                    format!("\"{}\"", rng.of(&["auto", "xdp", "tc", "kernel"])),
                );
            }
            for key in ["wire_true", "routes"] {
                if rng.permille(500) {
                    spare.set(key, rng.permille(500));
                }
            }
            table(spare);
        }

        let mut accounting = Table::new("[accounting]");
        for key in ["active_s", "idle_s"] {
            if rng.permille(400) {
                accounting.set(key, 1 + rng.below(100));
            }
        }
        if rng.permille(400) {
            accounting.set(
                "hosts",
                rng.of(&[
                    "[\"192.0.2.0/24\"]",
                    "[\"192.0.2.0/25\", \"2001:db8:1::/48\"]",
                ]),
            );
            meaning.accounts = true;
        }
        table(accounting);
        for _ in 0..rng.below(3) {
            let mut export = Table::new("[[export]]");
            export.set(
                "collector",
                format!("\"127.0.0.1:{}\"", 4739 + rng.below(3)),
            );
            match rng.below(3) {
                0 => export.set("format", "\"netflow9\""),
                1 => export.set("transport", "\"tcp\""),
                _ => export.set("domain", rng.below(9)).set("biflow", false),
            };
            if rng.permille(300) {
                export.set("mtu", 1400).set("queue", 64 + rng.below(1000));
            }
            table(export);
            meaning.accounts = true;
        }

        let mut web = Table::new("[web]");
        if rng.permille(300) {
            web.set("listen", format!("\"127.0.0.1:{}\"", 8080 + rng.below(9)));
        }
        if rng.permille(300) {
            web.set("hosts", "[\"router.lan\"]");
        }
        table(web);

        let mut daemon = Table::new("[daemon]");
        // named or not is a difference for the port
        let interfaces = match load && rng.permille(150) {
            true => {
                meaning.path = "kernel";
                "[\"lan0\"]"
            }
            false => rng.of(&[
                "[\"lan0\", \"wan0\"]",
                "[\"wan0\", \"lan0\", \"spare0\"]",
                "[\"br9\", \"lan0\", \"spare0\", \"wan0\"]",
            ]),
        };
        daemon.set("interfaces", interfaces);
        if rng.permille(500) {
            // what changed is to be in the log
            daemon.set("log", rng.of(&["\"info\"", "\"debug\""]));
        }
        if rng.permille(500) {
            let port = 9100 + rng.below(3) as u16;
            daemon.set("metrics", format!("\"127.0.0.1:{port}\""));
            meaning.metrics = Some(port);
        }
        table(daemon);

        tables.retain(|table| !table.lines.is_empty());
        for at in (1..tables.len()).rev() {
            tables.swap(at, rng.below(at + 1));
        }
        for table in &mut tables {
            for at in (1..table.lines.len()).rev() {
                table.lines.swap(at, rng.below(at + 1));
            }
        }
        Self { tables, meaning }
    }

    /// As a file.
    pub fn text(&self, rng: &mut Random) -> String {
        render(&self.tables, rng, None).0
    }

    /// The same as a file with one thing wrong.
    pub fn spoiled(&self, rng: &mut Random) -> (String, Fault) {
        let kind = rng.below(10);
        let (wrong, exit, only_here) = match kind {
            0..=5 => (rng.of(WRONG), 78, false),
            6 | 7 => (rng.of(ELSEWHERE), 78, true),
            _ => (rng.of(RESTART), 1, true),
        };
        let (head, others, line, words) = wrong;
        let mut tables = self.tables.clone();
        let name = |line: &str| line.split(['=', ' ']).next().unwrap_or_default().to_owned();
        let there = tables
            .iter_mut()
            .find(|table| table.head == head && !head.starts_with("[["));
        let again = words == "duplicate key" && others.is_empty();
        let table = match there {
            Some(table) if !again && !line.is_empty() => table,
            _ => {
                // after what it is like, or it would not be the second one
                tables.push(Table::new(head));
                tables.last_mut().unwrap()
            }
        };
        let said = [others, &[line]].concat();
        table
            .lines
            .retain(|own| !said.iter().any(|said| name(said) == name(own)));
        table
            .lines
            .extend(others.iter().map(|&line| line.to_owned()));
        if !line.is_empty() {
            table.lines.push(line.to_owned());
        }
        let own = if again || line.is_empty() { head } else { line };
        let (text, line) = render(&tables, rng, Some((head, own)));
        let fault = Fault {
            exit,
            line,
            words,
            only_here,
        };
        (text, fault)
    }
}

/// Tables with comments and blank lines among them; of those with that head the last line that is `sought`.
fn render(tables: &[Table], rng: &mut Random, sought: Option<(&str, &str)>) -> (String, usize) {
    let mut found = None;
    let (mut ahead, mut rest) = (
        String::from("# what a comment says = \"counts\" [not]\n"),
        String::new(),
    );
    for table in tables {
        let sought = sought.filter(|(head, _)| *head == table.head);
        let sought = sought.map(|(_, line)| line);
        let wrong = sought.is_some_and(|sought| {
            table.head == sought || table.lines.iter().any(|line| line == sought)
        });
        if table.is_dotted() && !wrong && rng.permille(300) {
            let name = table.head.trim_matches(['[', ']']);
            for line in &table.lines {
                let _ = writeln!(ahead, "{name}.{line}");
            }
            continue;
        }
        if rng.permille(500) {
            rest.push('\n');
        }
        if sought == Some(table.head.as_str()) {
            found = Some(rest.lines().count());
        }
        let _ = writeln!(rest, "{}", table.head);
        for line in &table.lines {
            if rng.permille(100) {
                rest.push_str("\t# more\n\n");
            }
            let indent = rng.of(&["", "", "  "]);
            let wrong = sought == Some(line);
            if wrong {
                found = Some(rest.lines().count());
            }
            let end = if !wrong && rng.permille(100) {
                " # as it is"
            } else {
                ""
            };
            let _ = writeln!(rest, "{indent}{line}{end}");
        }
    }
    let line = found.map_or(0, |line| ahead.lines().count() + line + 1);
    (ahead + &rest, line)
}
