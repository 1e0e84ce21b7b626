//! Behaviour of the manager.
