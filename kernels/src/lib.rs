//! Number formats, ops and kernels: what a launch *is* (data), what its result must be (a reference),
//! and how it is computed (a kernel of the tile language).
//!
//! This crate knows no device, no model, no request and no clock. It describes launches; the
//! runtime performs them, by code that `kernels/artifacts` makes of the kernels.

pub mod formats;
pub mod launch;
pub mod ops;
pub mod tiles;
