// SPDX-License-Identifier: MIT OR Apache-2.0
//! The namespaces of one lab.

use std::ops::Deref;

use nix::unistd::geteuid;

use crate::error::LabError;
use crate::netns::Netns;
use crate::{owner, signal, sweep};

/// A lab that is being built: it has a number of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run(pub(crate) u32);

impl Run {
    /// Removes leftovers of killed runs first.
    pub(crate) fn begin() -> Result<Self, LabError> {
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        sweep::sweep();
        Ok(Self(sweep::next_run()))
    }

    /// A namespace of it.
    pub(crate) fn space(self, host: &str) -> Result<Space, LabError> {
        // An error from here on removes what exists so far.
        let space = Space(Netns::named(owner::netns_name(self.0, host)));
        signal::create(&space)?;
        Ok(space)
    }
}

/// A namespace that goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Space(Netns);

impl Deref for Space {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.0
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Err(error) = signal::remove(&self.0) {
            eprintln!("cannot remove namespace {}: {error}", self.0.name());
        }
    }
}
