//! Freeway: kernel.
