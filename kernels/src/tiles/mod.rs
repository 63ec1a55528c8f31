//! Every op as a kernel of the tile language, one file an op.
//!
//! A kernel here and the reference in [`crate::ops`] say the same; the cases of `tests/cases` hold
//! both to the f64 evaluator. Nothing here runs: `kernels/artifacts` makes code of it.

use tessera_kernel_dsl::Entry;

/// Every kernel, one row each.
pub fn entries() -> Vec<Entry> {
    Vec::new()
}
