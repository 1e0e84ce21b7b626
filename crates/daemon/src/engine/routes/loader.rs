// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the kernel's routes, which may take long, on a thread of its own.

use std::sync::mpsc as ask;

use freeway_kernel::routes::read;
use freeway_routing::Told;
use tokio::sync::mpsc;

use super::family::Sided;
use crate::DaemonError;
use crate::error::failure;

/// Routes of a piece, and pieces that may wait; more make the thread wait.
const PIECE: usize = 4096;
const PIECES_MAX: usize = 4;

/// A piece of the routes.
#[derive(Debug)]
pub enum Piece<A> {
    /// Some of them.
    Routes(Vec<Told<A>>),
    /// There are no more; whether all of one state were among them.
    End(bool),
}

/// The thread that reads. It was made by the daemon's main thread, and so is in the same network namespace.
#[derive(Debug)]
pub struct Loader<A> {
    jobs: ask::Sender<()>,
    pieces: mpsc::Receiver<Piece<A>>,
    /// A reading is under way.
    pub busy: bool,
}

impl<A: Sided> Loader<A> {
    pub fn start() -> Result<Self, DaemonError> {
        let (jobs, asked) = ask::channel();
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let work = move || {
            while asked.recv().is_ok() {
                if !load::<A>(&sender) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("freeway-routes".into());
        thread.spawn(work).map_err(failure)?;
        Ok(Self {
            jobs,
            pieces,
            busy: false,
        })
    }

    /// Has all routes be read.
    pub fn load(&mut self) {
        self.busy = self.jobs.send(()).is_ok();
    }

    pub async fn next(&mut self) -> Piece<A> {
        match self.pieces.recv().await {
            Some(piece) => piece,
            None => std::future::pending().await,
        }
    }
}

/// False: nobody waits for them.
fn load<A: Sided>(sender: &mpsc::Sender<Piece<A>>) -> bool {
    let mut piece = Vec::with_capacity(PIECE);
    let mut heard = true;
    let whole = read(A::FAMILY, |route| {
        piece.extend(Told::of(&route));
        if piece.len() >= PIECE {
            let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE));
            heard &= sender.blocking_send(Piece::Routes(full)).is_ok();
        }
    });
    let whole = whole.unwrap_or_else(|error| {
        tracing::warn!("reading the routes: {error}");
        false
    });
    heard
        && sender.blocking_send(Piece::Routes(piece)).is_ok()
        && sender.blocking_send(Piece::End(whole)).is_ok()
}
