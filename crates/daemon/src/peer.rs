// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who asks at the control socket.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use nix::unistd::geteuid;

use super::gate::Gate;

/// The other end of a connection, as the kernel knows it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    uid: Option<u32>,
}

impl Peer {
    /// True of root, and of who runs the daemon.
    pub fn is_trusted(self) -> bool {
        self.uid
            .is_some_and(|uid| uid == 0 || uid == geteuid().as_raw())
    }
}

impl Connected<IncomingStream<'_, Gate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        Self {
            uid: credentials.map(|peer| peer.uid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_is_trusted() {
        let of = |uid| Peer { uid }.is_trusted();
        assert!(of(Some(0)) && of(Some(geteuid().as_raw())));
        assert!(!of(None) && !of(Some(geteuid().as_raw() + 7)));
    }
}
