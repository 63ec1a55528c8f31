//! The tile IR: what a kernel is once its builder has run, and nothing of any target.
//!
//! A [`Kernel`] is an arena of ops over tiles, each with the place in the author's source that
//! made it. This crate builds it, checks it, prints and parses it, and evaluates it in f64, which
//! is the truth that every executor is judged by. It knows no SIMD, no PTX and no memory layout.

pub mod eval;
pub mod format;
pub mod kernel;
pub mod launch;
pub mod op;
pub mod types;

mod builder;
mod error;
pub mod text;
mod verify;

pub use builder::Builder;
pub use error::{BuildError, Loc};
pub use kernel::{Access, Kernel, Op, OpId, Param, ParamKind, Region, Value, ValueInfo, Window};
pub use op::OpKind;
pub use types::{Elem, Type};
