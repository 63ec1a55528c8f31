//! `cargo xtask kernel`: a kernel as its author wants to see it. Which variants there are, what
//! each line of the source became, and what the tiles of a line hold in the f64 evaluator.
//!
//! And `cargo xtask build-kernels`: what a GPU would run, assembled and measured without one; with
//! `cargo xtask bench floor`, what it would take there.
//!
//! The cases of `tests/cases` are read here, for the tests as well. It is a crate of its own, without
//! the generated kernels, the runtime and the server: it builds in seconds, and it also shows a
//! kernel whose generated code does not compile.

pub mod cases;
pub mod choose;
pub mod emulate;
pub mod explain;
pub mod floor;
pub mod gpu;
pub mod matrix;
pub mod place;
pub mod source;
pub mod terminal;
pub mod trace;
