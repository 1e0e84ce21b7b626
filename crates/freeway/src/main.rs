//! The freeway binary.
fn main() {}
