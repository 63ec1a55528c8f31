//! Operators whose left side is a literal. A literal has no type of its own, so `#[kernel]` turns
//! `1 - x` into `SubFrom::sub_from(x, 1)`, where `x` says whether the result is a tile.

use crate::elem::{Arith, Int};
use crate::ops::binary;
use crate::tile::{Operand, Tile};
use tessera_tile_ir::Loc;
use tessera_tile_ir::op::Binary;

macro_rules! reversed {
    ($($(#[$doc:meta])* $trait:ident $method:ident $op:ident $bound:ident $rust:tt: $($known:ty)*;)*) => {$(
        $(#[$doc])*
        #[diagnostic::on_unimplemented(message = "`{Self}` cannot stand on the right of a number here")]
        pub trait $trait<L> {
            /// What the operator gives.
            type Output;
            $(#[$doc])*
            #[track_caller]
            fn $method(self, left: L) -> Self::Output;
        }

        impl<T: $bound, L: Operand<T>> $trait<L> for Tile<T> {
            type Output = Self;
            fn $method(self, left: L) -> Self {
                let loc = Loc::caller();
                binary(loc, Binary::$op, left.operand(loc), self)
            }
        }

        $(impl $trait<$known> for $known {
            type Output = Self;
            fn $method(self, left: $known) -> Self {
                left $rust self
            }
        })*
    )*};
}

reversed! {
    /// `left - self`.
    SubFrom sub_from Sub Arith -: usize i32 i64 u32 u64 f32 f64;
    /// `left / self`.
    DivInto div_into Div Arith /: usize i32 i64 u32 u64 f32 f64;
    /// `left % self`.
    RemInto rem_into Rem Int %: usize i32 i64 u32 u64;
}
