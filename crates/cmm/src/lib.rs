//! Freeway: cmm.
