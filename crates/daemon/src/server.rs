// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control server: HTTP and JSON over a Unix socket, every question handed to the engine.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use freeway_api::engine::DispatchQuery;
use freeway_api::{
    CaptureQuery, ExplainQuery, Failure, FailureKind, FlowFilter, RoutesQuery, SteerChange, Switch,
    TopQuery,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ask::{Engine, ask};
use super::capture::Capture;
use super::listing::Listing;
use super::peer::Peer;
use super::request::Request;

/// The engine answers in milliseconds; a start or a resynchronisation may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest that `explain` may watch.
const WATCH_MAX_MS: u32 = 60_000;

/// Every path of the control API.
pub fn router(engine: Engine) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/stats", get(stats))
        .route("/v1/flows", post(flows))
        .route("/v1/top", post(top))
        .route("/v1/explain", post(explain))
        .route("/v1/capture", post(capture))
        .route("/v1/switch", post(switch))
        .route("/v1/steer", get(steering).post(steer))
        .route("/v1/engine/dispatch", get(dispatching).post(dispatch))
        .route("/v1/flush", post(flush))
        .route("/v1/drops", get(drops))
        .route("/v1/routes", post(routes))
        .route("/v1/hosts", get(hosts))
        .route("/v1/resync", post(resync))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .with_state(engine)
}

async fn status(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Status).await)
}

async fn stats(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Stats).await)
}

async fn flows(State(engine): State<Engine>, body: Bytes) -> Response {
    let filter = match read::<FlowFilter>(&body) {
        Ok(filter) => filter,
        Err(failure) => return refusal(failure),
    };
    match Listing::open(engine, PATIENCE, filter).await {
        Ok(listing) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, Body::new(listing)).into_response()
        }
        Err(failure) => refusal(failure),
    }
}

async fn top(State(engine): State<Engine>, body: Bytes) -> Response {
    let query = match read::<TopQuery>(&body) {
        Ok(query) => query,
        Err(failure) => return refusal(failure),
    };
    answer(ask(&engine, PATIENCE, |reply| Request::Top(query, reply)).await)
}

async fn explain(State(engine): State<Engine>, body: Bytes) -> Response {
    let query = match read::<ExplainQuery>(&body).and_then(check) {
        Ok(query) => query,
        Err(failure) => return refusal(failure),
    };
    let patience = PATIENCE + Duration::from_millis(query.watch_ms.into());
    answer(ask(&engine, patience, |reply| Request::Explain(query, reply)).await)
}

fn is_root(peer: Option<Extension<ConnectInfo<Peer>>>) -> bool {
    peer.is_some_and(|Extension(ConnectInfo(peer))| peer.is_trusted())
}

/// What is in packets is not for all who may use the socket.
async fn capture(
    State(engine): State<Engine>,
    peer: Option<Extension<ConnectInfo<Peer>>>,
    body: Bytes,
) -> Response {
    if !is_root(peer) {
        return refusal(Failure::privilege("only root may have packets captured"));
    }
    let query = match read::<CaptureQuery>(&body) {
        Ok(query) => query,
        Err(failure) => return refusal(failure),
    };
    match Capture::open(engine, PATIENCE, query).await {
        Ok(capture) => {
            let kind = [(header::CONTENT_TYPE, "application/x-pcapng")];
            (kind, Body::new(capture)).into_response()
        }
        Err(failure) => refusal(failure),
    }
}

async fn switch(State(engine): State<Engine>, body: Bytes) -> Response {
    let switch = match read::<Switch>(&body) {
        Ok(switch) => switch,
        Err(failure) => return refusal(failure),
    };
    answer(ask(&engine, PATIENCE, |reply| Request::Switch(switch, reply)).await)
}

async fn steering(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, |reply| Request::Steer(None, reply)).await)
}

async fn steer(
    State(engine): State<Engine>,
    peer: Option<Extension<ConnectInfo<Peer>>>,
    body: Bytes,
) -> Response {
    let change = match read::<SteerChange>(&body) {
        Ok(change) => Some(change),
        Err(failure) => return refusal(failure),
    };
    // as what is captured; and copies leave the router past its rules
    let copies = |change: &SteerChange| match change {
        SteerChange::Add { rule, .. } => rule.mirror.is_some(),
        SteerChange::Delete { .. } => false,
    };
    if change.as_ref().is_some_and(copies) && !is_root(peer) {
        return refusal(Failure::privilege("only root may have frames copied"));
    }
    answer(ask(&engine, PATIENCE, |reply| Request::Steer(change, reply)).await)
}

async fn dispatching(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, |reply| Request::Dispatch(None, reply)).await)
}

async fn dispatch(State(engine): State<Engine>, body: Bytes) -> Response {
    let query = match read::<DispatchQuery>(&body) {
        Ok(query) => Some(query),
        Err(failure) => return refusal(failure),
    };
    answer(ask(&engine, PATIENCE, |reply| Request::Dispatch(query, reply)).await)
}

async fn flush(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Flush).await)
}

async fn drops(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Drops).await)
}

async fn routes(State(engine): State<Engine>, body: Bytes) -> Response {
    let query = match read::<RoutesQuery>(&body) {
        Ok(query) => query,
        Err(failure) => return refusal(failure),
    };
    answer(ask(&engine, PATIENCE, |reply| Request::Routes(query, reply)).await)
}

async fn hosts(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Hosts).await)
}

async fn resync(State(engine): State<Engine>) -> Response {
    answer(ask(&engine, PATIENCE, Request::Resync).await)
}

async fn unknown() -> Response {
    let failure = Failure::request(
        "no such request",
        "client and daemon may differ in version: restart the daemon",
    );
    (StatusCode::NOT_FOUND, Json(failure)).into_response()
}

fn check(query: ExplainQuery) -> Result<ExplainQuery, Failure> {
    if query.src.is_ipv4() != query.dst.is_ipv4() {
        return Err(Failure::request(
            "source and destination are of different families",
            "give two IPv4 or two IPv6 addresses",
        ));
    }
    if query.watch_ms > WATCH_MAX_MS {
        return Err(Failure::request(
            format!("cannot watch for {} ms", query.watch_ms),
            format!("{WATCH_MAX_MS} is the most"),
        ));
    }
    Ok(query)
}

/// A request's body.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::request(
            format!("the request does not parse: {error}"),
            "see docs/commands.md",
        )
    })
}

/// A value, or a failure with its status.
pub fn answer<T: Serialize>(result: Result<T, Failure>) -> Response {
    match result {
        Ok(body) => Json(body).into_response(),
        Err(failure) => refusal(failure),
    }
}

fn refusal(failure: Failure) -> Response {
    let status = match failure.kind {
        FailureKind::Request => StatusCode::BAD_REQUEST,
        FailureKind::Privilege => StatusCode::FORBIDDEN,
        FailureKind::Config => StatusCode::UNPROCESSABLE_ENTITY,
        FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(failure)).into_response()
}

/// The one path of the metrics address.
pub fn metrics_router(engine: Engine) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(engine)
}

async fn metrics(State(engine): State<Engine>) -> Response {
    let status = ask(&engine, PATIENCE, Request::Status).await;
    let stats = ask(&engine, PATIENCE, Request::Stats).await;
    match (status, stats) {
        (Ok(status), Ok(stats)) => {
            let kind = [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )];
            (kind, super::metrics::render(&status, &stats)).into_response()
        }
        (Err(failure), _) | (_, Err(failure)) => refusal(failure),
    }
}
