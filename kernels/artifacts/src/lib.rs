//! The kernels as code: typed launches for the CPU, made at build time from `tessera_kernels`.
//!
//! Nothing here is written by hand but this file; the build script of this crate runs the builders
//! and the code generator, and the same sources give the same bytes.

pub mod by_name;

/// What the launches run on.
pub use tessera_lanes as lanes;

/// Launches on the CPU, one struct a kernel with the author's parameter names.
#[allow(
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::pedantic,
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::too_many_lines,
    reason = "generated code answers to its generator's tests"
)]
pub mod cpu {
    include!(concat!(env!("OUT_DIR"), "/cpu.rs"));
}

/// What was built: one JSON object a variant, with kernel, label, class, dims and source.
pub const MANIFEST: &str = include_str!(concat!(env!("OUT_DIR"), "/manifest.json"));
