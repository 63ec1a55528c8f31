//! The evaluator: what a kernel means, in f64. Every executor is judged by it.
//!
//! `f32` tiles are f64 and not rounded between ops: a load gives the exact value, a store rounds
//! once. Integers are exact; `i32` and `i64` report overflow, `u32` and `u64` wrap. Programs run
//! one after another and are watched: none may touch what another wrote, so their order does not
//! matter. It knows no SIMD, no threads and no layout of packed weights.

mod args;
mod cells;
mod counts;
mod dot;
mod error;
mod machine;
mod math;
mod memory;
mod race;
mod shape;

pub use args::{Arg, Args, Array, Data, PackedSource};
pub use cells::Cells;
pub use counts::Counts;
pub use error::{EvalError, Fault};
pub use machine::{Evaluator, Event};

use crate::kernel::Kernel;

/// Runs every program of a launch; written arrays are changed in place.
///
/// # Errors
/// Arguments that do not fit, and the first fault of a program.
pub fn evaluate(kernel: &Kernel, args: &mut Args) -> Result<(), EvalError> {
    Evaluator::new(kernel).run(args).map(|_| ())
}
