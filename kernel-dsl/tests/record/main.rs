//! What functions record when they are built as kernels.

mod kernels;
mod language;
mod support;
