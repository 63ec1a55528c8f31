//! Tile IR to PTX.

mod extents;
pub mod launch;
mod manifest;

pub use extents::{Expr, ExprOp};
pub use manifest::{AssertEntry, AxisEntry, KernelEntry, Manifest, ParamEntry, ParamEntryKind};
