// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's questions, answered by the control server.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use freeway_api::{Client, ExplainQuery, FlowFilter, Flushed, Resynced, Switched, TopQuery, fake};
use freeway_console::Exit;

use crate::fake::Daemon;

#[test]
fn every_question_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let _daemon = Daemon::start(&path);
    let client = Client::new(Some(&path)).unwrap();
    assert_eq!(client.status().unwrap(), fake::status());
    assert_eq!(client.stats().unwrap(), fake::stats());
    let counts = |filter: &FlowFilter| {
        let mut flows = 0;
        let total = client.flow_stream(filter).unwrap().each(|_| {
            flows += 1;
            true
        });
        (total.unwrap(), flows)
    };
    assert_eq!(counts(&FlowFilter::default()), (Some(2), 2));
    let some = FlowFilter {
        sport: "5201".parse().ok(),
        limit: Some(1),
        ..FlowFilter::default()
    };
    assert_eq!(counts(&some), (Some(1), 1));
    let one = FlowFilter {
        limit: Some(1),
        ..FlowFilter::default()
    };
    assert_eq!(counts(&one), (Some(2), 1), "those not shown count");
    assert_eq!(client.top(TopQuery { flows: 9 }).unwrap(), fake::top());
    let query = fake::query();
    assert_eq!(client.explain(&query).unwrap(), fake::explain());
    assert_eq!(
        client.switch(false).unwrap(),
        Switched {
            on: false,
            was_on: true
        }
    );
    assert_eq!(
        client.switch(true).unwrap(),
        Switched {
            on: true,
            was_on: false
        }
    );
    assert_eq!(client.flush().unwrap(), Flushed { flows: 2 });
    assert_eq!(client.resync().unwrap(), Resynced { changes: 3 });
}

#[test]
fn flows_arrive_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let _daemon = Daemon::start(&path);
    let client = Client::new(Some(&path)).unwrap();
    let stream = || client.flow_stream(&FlowFilter::default()).unwrap();
    let mut flows = Vec::new();
    let total = stream().each(|flow| {
        flows.push(flow);
        true
    });
    assert_eq!(total.unwrap(), Some(2));
    assert_eq!(flows, [fake::flow(), fake::reply_flow()]);
    let mut count = 0;
    let total = stream().each(|_| {
        count += 1;
        false
    });
    assert_eq!(
        (total.unwrap(), count),
        (None, 1),
        "the reader has had enough"
    );
}

#[test]
fn bad_requests_come_back_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let _daemon = Daemon::start(&path);
    let client = Client::new(Some(&path)).unwrap();
    let query = ExplainQuery {
        dst: "[2001:db8::1]:1".parse().unwrap(),
        ..fake::query()
    };
    let stop = client.explain(&query).unwrap_err();
    assert_eq!(stop.exit, Exit::Usage);
    assert!(stop.to_string().contains("different families"), "{stop}");
    let asked = |request: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        io::read_to_string(stream).unwrap()
    };
    let answer = asked("GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("no such request"), "{answer}");
    let answer = asked(
        "POST /v1/flows HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 5\r\n\r\n[\"x\"]",
    );
    assert!(answer.contains("does not parse"), "{answer}");
}
