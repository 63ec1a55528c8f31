//! Tile IR to PTX.

pub mod bundle;
mod extents;
pub mod isa;
mod manifest;

pub use extents::{Expr, ExprOp};
pub use manifest::{AssertEntry, AxisEntry, KernelEntry, Manifest, ParamEntry, ParamEntryKind};
