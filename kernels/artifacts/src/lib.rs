//! The kernels as code: typed launches for the CPU, made at build time from `tessera_kernels`.

/// What the launches run on.
pub use tessera_lanes as lanes;
