// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of `engine/`, generated.
#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    missing_docs,
    clippy::all
)]

/// Opaque: `dataplane/target/engine.h`.
#[repr(C)]
pub struct fw_engine_framings {
    _opaque: [u8; 0],
}

/// Opaque: `dataplane/prefix4.h`.
#[repr(C)]
pub struct fw_prefix4 {
    _opaque: [u8; 0],
}

/// Opaque: `dataplane/prefix6.h`.
#[repr(C)]
pub struct fw_prefix6 {
    _opaque: [u8; 0],
}

include!(concat!(env!("OUT_DIR"), "/engine.rs"));

// which bindgen does not know of types that come from elsewhere
impl Copy for fwe_bench_slice {}
impl Clone for fwe_bench_slice {
    fn clone(&self) -> Self {
        *self
    }
}
