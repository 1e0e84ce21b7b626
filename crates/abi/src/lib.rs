//! Freeway: abi.
