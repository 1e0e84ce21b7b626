// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `freeway-bench`, which `freeway bench` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    freeway_bench::main()
}
