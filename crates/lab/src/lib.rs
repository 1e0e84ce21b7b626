//! Freeway: lab.
