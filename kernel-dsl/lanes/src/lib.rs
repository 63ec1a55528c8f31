//! What generated CPU kernels run on: lanes of one width on every instruction set, micro-kernels
//! over them, packed weights, views of arrays, and a thread pool that parks.
//!
//! A value of an [`Isa`] type is the proof that the CPU has its instructions, so everything here
//! is safe to call. Unsafe code stays in this crate, each block with its proof.

pub mod exec;
pub mod isa;
pub mod math;
pub mod memory;
pub mod micro;
pub mod packed;
pub mod pool;
#[cfg(test)]
mod samples;
pub mod view;

pub use exec::{Cpu, LaunchError};
pub use isa::Isa;
pub use pool::Pool;
pub use view::{View, ViewMut};
