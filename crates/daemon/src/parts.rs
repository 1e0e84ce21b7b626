// SPDX-License-Identifier: MIT OR Apache-2.0
//! An answer that is sent as it is made, part by part.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use freeway_api::Failure;
use hyper::body::Frame;
use tokio::sync::mpsc;

/// It ends when nobody makes more, and breaks off at a failure, which its reader notices.
pub struct Parts(pub mpsc::Receiver<Result<Bytes, Failure>>);

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let part = self.0.poll_recv(context);
        part.map(|part| part.map(|part| part.map(Frame::data)))
    }
}
