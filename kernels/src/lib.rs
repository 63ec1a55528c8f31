//! Number formats and ops: what a launch *is* (data), and what its result must be (a reference).
//!
//! This crate knows no device, no model, no request and no clock. It describes launches; the
//! runtime performs them. Every op has a reference in plain Rust that other implementations are
//! judged by.

pub mod formats;
pub mod launch;
pub mod ops;
pub mod tiles;
