// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the control server asks of the engine.

use std::sync::Arc;

use freeway_api::engine::{DispatchQuery, Dispatching};
use freeway_api::{
    CaptureQuery, Drops, Explain, ExplainQuery, Failure, Flow, FlowFilter, Flushed, Hosts,
    Reloaded, Resynced, Routes, RoutesQuery, Stats, Status, SteerChange, Steering, Switch,
    Switched, Top, TopQuery, Upgraded,
};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::engine::capture::Captured;
use crate::succession::successor::Handover;

/// Where an answer goes. The asker may have left meanwhile, so a failed send means nothing.
pub type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// A question to the engine, with the place for its answer.
#[derive(Debug)]
pub enum Request {
    /// `GET /v1/status`.
    Status(Reply<Status>),
    /// `GET /v1/stats`.
    Stats(Reply<Stats>),
    /// A part of the answer to `POST /v1/flows`.
    Flows(PageQuery, Reply<Page>),
    /// `POST /v1/top`.
    Top(TopQuery, Reply<Top>),
    /// `GET /v1/drops`.
    Drops(Reply<Drops>),
    /// `POST /v1/routes`.
    Routes(RoutesQuery, Reply<Routes>),
    /// `GET /v1/hosts`.
    Hosts(Reply<Hosts>),
    /// `POST /v1/explain`: may take as long as it watches.
    Explain(ExplainQuery, Reply<Explain>),
    /// `POST /v1/capture`.
    Capture(CaptureQuery, Reply<Captured>),
    /// Its reader has left.
    CaptureEnded,
    /// `POST /v1/switch`.
    Switch(Switch, Reply<Switched>),
    /// `GET /v1/steer`, and `POST` with a change.
    Steer(Option<SteerChange>, Reply<Steering>),
    /// `GET /v1/engine/dispatch`, and `POST` with a change.
    Dispatch(Option<DispatchQuery>, Reply<Dispatching>),
    /// `POST /v1/flush`.
    Flush(Reply<Flushed>),
    /// `POST /v1/reload` and SIGHUP: the configuration as it was read, or why it could not be.
    Reload(Result<Box<Config>, Failure>, Reply<Reloaded>),
    /// `POST /v1/upgrade`: the successor is ready.
    HandOver(Box<Handover>, Reply<Upgraded>),
    /// `POST /v1/resync`.
    Resync(Reply<Resynced>),
}

/// Which part of the flow table.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    /// Which flows; its limit does not count here.
    pub filter: Arc<FlowFilter>,
    /// Where to begin: 0, or where the page before ended.
    pub from: u32,
    /// At most so many flows; 0: they are counted only.
    pub room: usize,
}

/// A part of the flow table. It may be empty although more follow.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Flows that the filter lets through.
    pub flows: Vec<Flow>,
    /// How many it let through, those for which there was no room included.
    pub matched: u64,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<u32>,
    /// Flows in the whole table.
    pub table: u64,
}
