// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket's listener, which may be left to another process for a while, or for good.

use std::future::pending;
use std::io;

use axum::serve::Listener;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Takes connections while it is open; what comes meanwhile waits in the kernel, for whoever has the socket, too.
pub struct Gate {
    listener: UnixListener,
    open: watch::Receiver<bool>,
}

/// Opens and closes it.
pub type Latch = watch::Sender<bool>;

impl Gate {
    /// Open.
    pub fn new(listener: UnixListener) -> (Self, Latch) {
        let (latch, open) = watch::channel(true);
        (Self { listener, open }, latch)
    }
}

impl Listener for Gate {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            if self.open.wait_for(|open| *open).await.is_err() {
                pending::<()>().await;
            }
            tokio::select! {
                connection = Listener::accept(&mut self.listener) => return connection,
                Ok(()) = self.open.changed() => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
