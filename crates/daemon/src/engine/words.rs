// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of answers.

use freeway_abi::Stage;
use freeway_api::Failure;

use crate::DaemonError;

pub(super) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Fast => "fast",
        Stage::Hand => "hand",
        Stage::Punt => "punt",
        Stage::Drop => "drop",
        Stage::Learn => "learn",
        Stage::Keep => "keep",
    }
}

pub(super) fn internal(error: DaemonError) -> Failure {
    Failure::internal(error.to_string())
}
