//! Tile IR to PTX: which thread holds which elements, how tiles get from one layout to another,
//! which instructions compute them, where threads must wait for each other; and what a host must
//! know to launch the result.
//!
//! Deterministic and without a GPU, a driver or a toolkit: PTX is text. It knows no model and no
//! memory but what a manifest describes.

mod ahead;
mod barriers;
pub mod bundle;
mod code;
mod compile;
mod cores;
mod dot;
mod extents;
mod infer;
pub mod isa;
pub mod launch;
mod layout;
mod lower;
mod manifest;
mod print;

pub use compile::{Compiled, Origin, compile};
pub use extents::{Expr, ExprOp};
pub use isa::Sm;
pub use manifest::{AssertEntry, AxisEntry, KernelEntry, Manifest, ParamEntry, ParamEntryKind};
