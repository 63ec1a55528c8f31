//! Tile IR to PTX.

mod extents;
mod manifest;

pub use extents::{Expr, ExprOp};
pub use manifest::{
    AssertEntry, AxisEntry, KernelEntry, Manifest, ParamEntry, ParamEntryKind,
};
