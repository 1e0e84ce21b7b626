//! Freeway: datapath.
