// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with BPF.

use std::io;

/// A failure of the data plane, with what it was about.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// An object did not open, load or hold what it must.
    #[error("BPF object {object}: {what}: {source}")]
    Object {
        /// `xdp`, `tc` or `watchdog`.
        object: &'static str,
        /// The step that failed.
        what: &'static str,
        /// The library's or the verifier's answer.
        source: libbpf_rs::Error,
    },
    /// The kernel did not take an object's programs or maps.
    #[error("BPF object {object}: loading: {source}{}; `freeway doctor` shows what the kernel lacks", words_of(.said))]
    Load {
        /// The object.
        object: &'static str,
        /// The library's answer.
        source: libbpf_rs::Error,
        /// The library's and the verifier's last words.
        said: Option<String>,
    },
    /// A map or program is missing from an object.
    #[error("BPF object {object} lacks {name}: data plane and daemon are of different builds")]
    Missing {
        /// The object.
        object: &'static str,
        /// Map or program.
        name: &'static str,
    },
    /// A map could not be written.
    #[error("BPF map {map}: {source}")]
    Map {
        /// The map.
        map: &'static str,
        /// The library's answer.
        source: libbpf_rs::Error,
    },
    /// Shared memory could not be mapped.
    #[error("mapping BPF map {map}: {source}")]
    Mmap {
        /// The map.
        map: &'static str,
        /// mmap(2)'s answer.
        source: io::Error,
    },
    /// A program could not be attached to a port.
    #[error("attaching {program} to interface {ifindex}: {source}{}", hint(.source, *.in_use))]
    Attach {
        /// The program.
        program: &'static str,
        /// The port.
        ifindex: u32,
        /// bpf(2)'s answer.
        source: io::Error,
        /// Another program holds the place.
        in_use: bool,
    },
}

fn words_of(words: &Option<String>) -> String {
    words
        .as_ref()
        .map_or_else(String::new, |words| format!(" ({words})"))
}

fn hint(source: &io::Error, in_use: bool) -> &'static str {
    if in_use {
        " (another program is attached there; detach it first)"
    } else if source.raw_os_error() == Some(libc::ERANGE) {
        " (its MTU is too large: XDP takes frames of one page)"
    } else {
        ""
    }
}
