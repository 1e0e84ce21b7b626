// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to `flows` as it is sent: page after page, each asked for when the reader has taken the one before. So a
//! million flows take no more memory than a few hundred.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use freeway_api::{Failure, FlowFilter};
use tokio::sync::mpsc;

use super::ask::{Engine, ask};
use super::parts::Parts;
use super::request::{Page, PageQuery, Request};

/// Pages that are made before the reader takes them.
const AHEAD: usize = 1;

/// An object with `flows`, one on a line, and `total`.
pub struct Listing;

impl Listing {
    /// Asks for the first page; the others follow as the listing is read.
    pub async fn open(
        engine: Engine,
        patience: Duration,
        filter: FlowFilter,
    ) -> Result<Parts, Failure> {
        let pages = Pages {
            engine,
            patience,
            left: filter
                .limit
                .map_or(usize::MAX, |l| usize::try_from(l).unwrap_or(usize::MAX)),
            filter: Arc::new(filter),
            total: 0,
            shown: 0,
        };
        let first = pages.ask(0).await?;
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::spawn(async move { pages.send(first, &sender).await });
        Ok(Parts(receiver))
    }
}

struct Pages {
    engine: Engine,
    patience: Duration,
    filter: Arc<FlowFilter>,
    /// How many flows may still be shown.
    left: usize,
    shown: u64,
    total: u64,
}

impl Pages {
    async fn ask(&self, from: u32) -> Result<Page, Failure> {
        let query = PageQuery {
            filter: Arc::clone(&self.filter),
            from,
            room: self.left,
        };
        ask(&self.engine, self.patience, |reply| {
            Request::Flows(query, reply)
        })
        .await
    }

    /// Sends them all; a reader that has left ends it.
    async fn send(mut self, first: Page, reader: &mpsc::Sender<Result<Bytes, Failure>>) {
        let mut text = b"{\"flows\":[".to_vec();
        let mut page = first;
        loop {
            self.write(&page, &mut text);
            let all_shown = self.left == 0 && self.filter.is_open();
            let Some(next) = page.next.filter(|_| !all_shown) else {
                if all_shown {
                    self.total = self.shown.max(page.table);
                }
                break;
            };
            if !text.is_empty() {
                let part = std::mem::take(&mut text);
                if reader.send(Ok(part.into())).await.is_err() {
                    return;
                }
            }
            page = match self.ask(next).await {
                Ok(page) => page,
                Err(failure) => {
                    // the answer breaks off, which its reader notices
                    let _ = reader.send(Err(failure)).await;
                    return;
                }
            };
            // counting sends nothing that would tell that the reader has left
            if reader.is_closed() {
                return;
            }
        }
        text.extend_from_slice(format!("\n],\"total\":{}}}\n", self.total).as_bytes());
        let _ = reader.send(Ok(text.into())).await;
    }

    fn write(&mut self, page: &Page, text: &mut Vec<u8>) {
        for flow in page.flows.iter().take(self.left) {
            text.extend_from_slice(if self.shown == 0 { b"\n" } else { b",\n" });
            // writing to memory does not fail, nor does the value
            let _ = serde_json::to_writer(&mut *text, flow);
            self.shown += 1;
        }
        self.left = self.left.saturating_sub(page.flows.len());
        self.total += page.matched;
    }
}
