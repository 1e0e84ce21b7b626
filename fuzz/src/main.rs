// SPDX-License-Identifier: MIT OR Apache-2.0
//! libFuzzer's entry. `FUZZ_TARGET` names the target.
#![no_main]

use std::sync::OnceLock;

use freeway_fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

/// Called by libFuzzer with each input.
///
/// # Safety
///
/// `data` must point to `len` bytes.
#[unsafe(no_mangle)]
#[allow(clippy::expect_used)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, len: usize) -> i32 {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET");
        freeway_fuzz::target(&name).expect("FUZZ_TARGET is a target")
    });
    let bytes = match len {
        0 => &[],
        // SAFETY: libFuzzer lends so many bytes for the call.
        _ => unsafe { std::slice::from_raw_parts(data, len) },
    };
    target(bytes);
    0
}
