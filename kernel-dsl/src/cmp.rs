//! Comparisons. `#[kernel]` turns `a < b` into `Less::lt(a, b)`, so that tiles compare to tiles of
//! truths while numbers known at build time still compare to `bool`.

use crate::elem::Arith;
use crate::ops::unify;
use crate::tile::{Operand, Tile};
use crate::trace::push;
use tessera_tile_ir::op::{Cmp, OpKind};
use tessera_tile_ir::{self as ir, Loc};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $trait:ident $op:ident $rust:tt $bound:ident;)*) => {$(
        $(#[$doc])*
        #[diagnostic::on_unimplemented(message = "cannot compare `{Self}` with `{B}`")]
        pub trait $trait<B> {
            /// `bool`, or a tile of them.
            type Output;
            $(#[$doc])*
            #[track_caller]
            fn $name(self, b: B) -> Self::Output;
        }

        impl<T: Arith, B: Operand<T>> $trait<B> for Tile<T> {
            type Output = Tile<bool>;
            fn $name(self, b: B) -> Tile<bool> {
                let loc = Loc::caller();
                compare(loc, Cmp::$op, self, b.operand(loc))
            }
        }

        known! { $name $trait $rust: usize i32 i64 u32 u64 f32 }
        known_left! { $name $trait $op: usize => i64, i64 => i64, f32 => f32 }
    )*};
}

macro_rules! known {
    ($name:ident $trait:ident $rust:tt: $($known:ty)*) => {$(
        impl $trait<$known> for $known {
            type Output = bool;
            #[expect(clippy::allow_attributes, reason = "one expansion of many compares floats")]
            #[allow(clippy::float_cmp, reason = "the author asked for it")]
            fn $name(self, b: $known) -> bool {
                self $rust b
            }
        }
    )*};
}

macro_rules! known_left {
    ($name:ident $trait:ident $op:ident: $($known:ty => $elem:ty),*) => {$(
        impl $trait<Tile<$elem>> for $known {
            type Output = Tile<bool>;
            fn $name(self, b: Tile<$elem>) -> Tile<bool> {
                let loc = Loc::caller();
                compare(loc, Cmp::$op, self.operand(loc), b)
            }
        }
    )*};
}

comparisons! {
    /// `a == b`.
    eq Equal Eq == PartialEq;
    /// `a != b`.
    ne NotEqual Ne != PartialEq;
    /// `a < b`.
    lt Less Lt < PartialOrd;
    /// `a <= b`.
    le LessEqual Le <= PartialOrd;
    /// `a > b`.
    gt Greater Gt > PartialOrd;
    /// `a >= b`.
    ge GreaterEqual Ge >= PartialOrd;
}

known! { eq Equal ==: bool }
known! { ne NotEqual !=: bool }

fn compare<T: Arith>(loc: Loc, op: Cmp, a: Tile<T>, b: Tile<T>) -> Tile<bool> {
    let (operands, ty) = unify(loc, "comparison", &[a.value(), b.value()], ir::Elem::Bool);
    push(loc, OpKind::Cmp(op), &operands, ty)
}
