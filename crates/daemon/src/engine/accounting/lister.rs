// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the kernel's connections, page by page, on a thread of its own: of very many that takes seconds.

use std::sync::mpsc as ask;
use std::time::Duration;

use freeway_kernel::conntrack::{ConnectionFilter, Conntrack};
use freeway_kernel::model::Connection;
use tokio::sync::mpsc;

use crate::DaemonError;
use crate::error::failure;

/// Connections of a page.
const PAGE: usize = 512;
/// Between two pages, so that what is told of many connections is not told at once.
const PAUSE: Duration = Duration::from_millis(4);

/// A part of a listing.
pub enum Page {
    Connections(Vec<Connection>),
    /// That was all.
    End,
    /// It could not be listed to its end.
    Failed,
}

/// The thread.
pub struct Lister {
    questions: ask::Sender<()>,
    pages: mpsc::Receiver<Page>,
    listing: bool,
}

impl Lister {
    pub fn start() -> Result<Self, DaemonError> {
        let (questions, asked) = ask::channel();
        let (sender, pages) = mpsc::channel(1);
        let work = move || {
            while asked.recv().is_ok() {
                let end = match list(&sender) {
                    Ok(()) => Page::End,
                    Err(error) => {
                        tracing::warn!("connections cannot be listed: {error}");
                        Page::Failed
                    }
                };
                if sender.blocking_send(end).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("freeway-list".into());
        thread.spawn(work).map_err(failure)?;
        Ok(Self {
            questions,
            pages,
            listing: false,
        })
    }

    /// A listing begins.
    pub fn ask(&mut self) {
        self.listing = self.questions.send(()).is_ok();
    }

    /// A listing is under way.
    pub fn is_listing(&self) -> bool {
        self.listing
    }

    /// The next page; never without a listing.
    pub async fn page(&mut self) -> Page {
        if !self.listing {
            return std::future::pending().await;
        }
        let page = self.pages.recv().await.unwrap_or(Page::Failed);
        self.listing = matches!(page, Page::Connections(_));
        page
    }
}

fn list(to: &mpsc::Sender<Page>) -> freeway_kernel::Result<()> {
    let mut page = Vec::new();
    let send = |page: &mut Vec<Connection>| {
        // nobody is there any more: the rest goes nowhere
        let _ = to.blocking_send(Page::Connections(std::mem::take(page)));
    };
    Conntrack::open()?.for_each(&ConnectionFilter::default(), &mut |connection| {
        page.push(connection);
        if page.len() == PAGE {
            send(&mut page);
            std::thread::sleep(PAUSE);
        }
    })?;
    send(&mut page);
    Ok(())
}
