//! Pages, schedulers, models, checkpoints, devices and the hand-off between pools.
//!
//! The runtime knows no JSON request, no flag and no environment variable: those are the
//! server's. It reaches kernels only through launch descriptions that a device performs.

pub mod cache;
pub mod checkpoint;
pub mod device;
pub mod engine;
mod ffi;
pub mod model;
pub mod request;
pub mod schedule;
pub mod transfer;
