// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the control server asks of the engine.

use tokio::sync::oneshot;

use crate::api::{
    Explain, ExplainQuery, Failure, FlowFilter, Flows, Flushed, Stats, Status, Switch, Switched,
};

/// Where an answer goes. The asker may have left meanwhile, so a failed send means nothing.
pub type Reply<T> = oneshot::Sender<Result<T, Failure>>;

/// A question to the engine, with the place for its answer.
#[derive(Debug)]
pub enum Request {
    /// `GET /v1/status`.
    Status(Reply<Status>),
    /// `GET /v1/stats`.
    Stats(Reply<Stats>),
    /// `POST /v1/flows`.
    Flows(FlowFilter, Reply<Flows>),
    /// `POST /v1/explain`: may take as long as it watches.
    Explain(ExplainQuery, Reply<Explain>),
    /// `POST /v1/switch`.
    Switch(Switch, Reply<Switched>),
    /// `POST /v1/flush`.
    Flush(Reply<Flushed>),
}
