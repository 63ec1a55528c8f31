//! The kernel language: what a kernel author imports.
//!
//! `#[kernel]` turns a function over tiles into a *builder*: ordinary Rust that, when it runs,
//! records a [`tessera_tile_ir::Kernel`]. So rustc checks the types, and a tile is a value.
//! Nothing here executes a kernel or knows a target.

pub mod cmp;
mod elem;
mod flow;
mod format;
mod ops;
pub mod reversed;
mod tile;
mod trace;
mod view;

pub use elem::{Arith, Codes, Elem, Int, Packed, Stored};
pub use flow::{Branch, Carry, Loop, TileRange, range};
pub use ops::{
    assert_all, cdiv, cos, dot, dot_scaled, fma, full, iota, max, min, program_id, rem, select,
    sin, zeros,
};
pub use tessera_kernel_macros::{Carry, kernel, tile_fn};
pub use tessera_tile_ir as ir;
pub use tile::{Index, Operand, Tile};
pub use trace::{Class, Consts, Entry, Target, dim, format_name, trace};
pub use view::{At, In, InOut, Out, Until, scalar, scalar_value};

/// All that a kernel's file needs.
pub mod prelude {
    pub use crate::{
        Arith, Carry, Codes, Elem, In, InOut, Index, Int, Out, Packed, Stored, Tile, Until,
        assert_all, cdiv, cos, dot, dot_scaled, fma, full, iota, kernel, max, min, program_id,
        range, rem, select, sin, tile_fn, zeros,
    };
}
