//! A tile: a handle to a value of the kernel under construction.

use crate::elem::{Arith, Codes, Elem, Int, Packed, Stored};
use crate::ops::{binary, broadcast_to, literal, reduce, unary};
use crate::trace::{mistake, push, with};
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};
use tessera_tile_ir::op::{Binary, Combine, Literal, OpKind, Unary};
use tessera_tile_ir::{self as ir, Loc, Type, Value};

/// A tile of `T`: rank 0 (a scalar), 1 or 2, with a shape known when the kernel is built.
#[derive(Debug)]
pub struct Tile<T> {
    value: Value,
    elem: PhantomData<T>,
}

impl<T> Clone for Tile<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tile<T> {}

/// An index or extent: a number known now, or a scalar of the kernel.
#[derive(Debug, Clone, Copy)]
pub enum Index {
    /// Known when the kernel is built.
    Known(i64),
    /// Known when it runs.
    Scalar(Tile<i64>),
}

impl From<Tile<i64>> for Index {
    fn from(tile: Tile<i64>) -> Self {
        Self::Scalar(tile)
    }
}

macro_rules! index_from {
    ($($int:ty)*) => {$(
        impl From<$int> for Index {
            fn from(known: $int) -> Self {
                Self::Known(i64::try_from(known).expect("an index fits i64"))
            }
        }
    )*};
}

index_from! { i32 i64 usize }

impl Index {
    /// The index as a scalar.
    #[track_caller]
    pub fn tile(self) -> Tile<i64> {
        match self {
            Self::Known(known) => literal(Loc::caller(), ir::Elem::I64, Literal::Int(known)),
            Self::Scalar(tile) => tile,
        }
    }
}

impl<T> Tile<T> {
    pub(crate) fn from_value(value: Value) -> Self {
        Self { value, elem: PhantomData }
    }

    /// The value behind the handle.
    pub fn value(self) -> Value {
        self.value
    }

    /// Element and shape.
    pub fn ty(self) -> Type {
        with(|b| b.ty(self.value).clone())
    }

    /// Shape; empty for a scalar.
    pub fn shape(self) -> Vec<usize> {
        self.ty().shape
    }
}

impl<T: Elem> Tile<T> {
    /// Repeats extents of 1, and leading axes that are missing, up to `shape`.
    #[track_caller]
    pub fn broadcast<const R: usize>(self, shape: [usize; R]) -> Self {
        Self::from_value(broadcast_to(Loc::caller(), self.value, &shape))
    }

    /// The same elements in row-major order.
    #[track_caller]
    pub fn reshape<const R: usize>(self, shape: [usize; R]) -> Self {
        let (loc, ty) = (Loc::caller(), self.ty());
        if ty.len() != shape.iter().product() {
            let message = format!("cannot reshape {ty} to {shape:?}: other number of elements");
            mistake("K002", loc, message, Vec::new());
        }
        push(loc, OpKind::Reshape, &[self.value], Type::tile(T::ELEM, &shape))
    }

    /// Rows and columns swapped.
    #[track_caller]
    pub fn t(self) -> Self {
        let (loc, ty) = (Loc::caller(), self.ty());
        let [rows, cols] = ty.rows_cols();
        if ty.shape.len() != 2 {
            mistake(
                "K003",
                loc,
                format!("only a tile of rank 2 has a transpose, not {ty}"),
                vec![],
            );
        }
        push(loc, OpKind::Transpose, &[self.value], Type::tile(T::ELEM, &[cols, rows]))
    }

    /// The columns `start..start + cols` (of a vector, its elements).
    #[track_caller]
    pub fn cols(self, start: usize, cols: usize) -> Self {
        let (loc, ty) = (Loc::caller(), self.ty());
        let Some((&width, lead)) = ty.shape.split_last() else {
            mistake("K003", loc, "a scalar has no columns".to_owned(), vec![]);
            return self;
        };
        if start + cols > width {
            let message = format!("columns {start}..{} of {ty}", start + cols);
            mistake("K002", loc, message, vec![]);
        }
        let shape: Vec<usize> = lead.iter().copied().chain([cols]).collect();
        let kind = OpKind::Slice { axis: lead.len(), start };
        push(loc, kind, &[self.value], Type::tile(T::ELEM, &shape))
    }

    /// This tile's columns, then `other`'s.
    #[track_caller]
    pub fn join(self, other: Self) -> Self {
        let (loc, a, b) = (Loc::caller(), self.ty(), other.ty());
        let ([rows, cols], [other_rows, other_cols]) = (a.rows_cols(), b.rows_cols());
        if a.shape.len() != b.shape.len() || a.shape.is_empty() || rows != other_rows {
            mistake("K001", loc, format!("cannot join the columns of {a} and {b}"), vec![]);
        }
        let mut shape = a.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = cols + other_cols;
        }
        let axis = shape.len().saturating_sub(1);
        push(loc, OpKind::Concat(axis), &[self.value, other.value], Type::tile(T::ELEM, &shape))
    }
}

impl<T: Arith> Tile<T> {
    /// Converts: to the nearest value; floats to integers round towards zero and saturate.
    #[track_caller]
    pub fn to<U: Arith>(self) -> Tile<U> {
        let ty = Type { elem: U::ELEM, ..self.ty() };
        push(Loc::caller(), OpKind::Cast(U::ELEM), &[self.value], ty)
    }

    /// The same bits as another element of the same width.
    #[track_caller]
    pub fn bits<U: Arith>(self) -> Tile<U> {
        let ty = Type { elem: U::ELEM, ..self.ty() };
        push(Loc::caller(), OpKind::Bitcast(U::ELEM), &[self.value], ty)
    }

    /// Sum along an axis, whose extent becomes 1.
    #[track_caller]
    pub fn sum(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::Sum)
    }

    /// Largest along an axis; NaN if there is one.
    #[track_caller]
    pub fn max(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::Max)
    }

    /// Smallest along an axis; NaN if there is one.
    #[track_caller]
    pub fn min(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::Min)
    }

    /// Index of the first largest along an axis; NaN counts as largest.
    #[track_caller]
    pub fn argmax(self, axis: usize) -> Tile<i64> {
        let (loc, mut ty) = (Loc::caller(), self.ty());
        ty.elem = ir::Elem::I64;
        crate::ops::shrink(loc, &mut ty, axis);
        push(loc, OpKind::ArgMax(axis), &[self.value], ty)
    }

    /// Inclusive prefix sums along an axis.
    #[track_caller]
    pub fn cumsum(self, axis: usize) -> Self {
        let kind = OpKind::Scan { axis, combine: Combine::Sum };
        push(Loc::caller(), kind, &[self.value], self.ty())
    }
}

impl<T: Int> Tile<T> {
    /// Exclusive-or along an axis, whose extent becomes 1.
    #[track_caller]
    pub fn xor(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::Xor)
    }
}

impl Tile<bool> {
    /// Whether all are true along an axis, whose extent becomes 1.
    #[track_caller]
    pub fn all(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::And)
    }

    /// Whether any is true along an axis, whose extent becomes 1.
    #[track_caller]
    pub fn any(self, axis: usize) -> Self {
        reduce(Loc::caller(), self, axis, Combine::Or)
    }
}

impl<T: Codes> Tile<T> {
    /// The f32 values of the codes, block scales applied.
    #[track_caller]
    pub fn decode(self) -> Tile<f32> {
        let ty = Type { elem: ir::Elem::F32, ..self.ty() };
        push(Loc::caller(), OpKind::Decode, &[self.value], ty)
    }
}

impl Tile<f32> {
    /// Codes of the nearest values: ties to even, saturating, NaN to the NaN code.
    #[track_caller]
    pub fn encode<F: Stored>(self) -> Tile<F> {
        let ty = Type { elem: F::ELEM, ..self.ty() };
        push(Loc::caller(), OpKind::Encode(F::ELEMENT), &[self.value], ty)
    }

    /// Codes and scales of a block format along the columns, for a scaled dot.
    #[track_caller]
    pub fn quantize<F: Packed>(self) -> Tile<F> {
        let ty = Type { elem: F::ELEM, ..self.ty() };
        push(Loc::caller(), OpKind::Quantize(F::FORMAT), &[self.value], ty)
    }

    /// `mask(row, column)` kept, `otherwise` elsewhere; the indices are those inside the tile.
    #[track_caller]
    pub fn mask(
        self,
        mask: impl FnOnce(Tile<i64>, Tile<i64>) -> Tile<bool>,
        otherwise: f32,
    ) -> Self {
        let [rows, cols] = self.ty().rows_cols();
        let row = crate::ops::iota(rows).reshape([rows, 1]);
        let col = crate::ops::iota(cols).reshape([1, cols]);
        crate::ops::select(mask(row, col), self, otherwise)
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tile<f32> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Self {
                unary(Loc::caller(), Unary::$op, self)
            }
        )*}
    };
}

unary_methods! {
    /// Magnitude.
    abs Abs;
    /// `e^x`.
    exp Exp;
    /// `2^x`.
    exp2 Exp2;
    /// Natural logarithm.
    ln Ln;
    /// Binary logarithm.
    log2 Log2;
    /// Square root.
    sqrt Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt Rsqrt;
    /// `1 / x`.
    recip Recip;
    /// Largest integer not above.
    floor Floor;
    /// Nearest integer, ties to even.
    round Round;
}

impl Tile<f32> {
    /// Whether each element is NaN.
    #[track_caller]
    pub fn is_nan(self) -> Tile<bool> {
        let ty = Type { elem: ir::Elem::Bool, ..self.ty() };
        push(Loc::caller(), OpKind::Unary(Unary::IsNan), &[self.value], ty)
    }
}

/// An operand of an operator with a `Tile<T>`: a tile, or a number known now.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not go with tiles of `{T}`",
    label = "expected a tile of `{T}` or a number",
    note = "`tile.to()` converts between numbers, `tile.decode()` gives the values of stored codes"
)]
pub trait Operand<T> {
    /// The operand as a tile.
    fn operand(self, loc: Loc) -> Tile<T>;
}

impl<T> Operand<T> for Tile<T> {
    fn operand(self, _: Loc) -> Self {
        self
    }
}

impl Operand<f32> for f32 {
    fn operand(self, loc: Loc) -> Tile<f32> {
        literal(loc, ir::Elem::F32, Literal::Float(f64::from(self)))
    }
}

impl Operand<bool> for bool {
    fn operand(self, loc: Loc) -> Tile<bool> {
        literal(loc, ir::Elem::Bool, Literal::Bool(self))
    }
}

macro_rules! int_operands {
    ($($known:ty => $($elem:ty)*;)*) => {$($(
        impl Operand<$elem> for $known {
            #[expect(clippy::allow_attributes, reason = "wraps only where an author writes u64::MAX")]
            #[allow(clippy::cast_possible_wrap, trivial_numeric_casts, reason = "see above")]
            fn operand(self, loc: Loc) -> Tile<$elem> {
                literal(loc, <$elem as Elem>::ELEM, Literal::Int(self as i64))
            }
        }
    )*)*};
}

int_operands! {
    i32 => i32 i64 u32 u64;
    i64 => i64;
    usize => i64;
    u32 => u32;
    u64 => u64;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident $bound:ident;)*) => {$(
        impl<T: $bound, R: Operand<T>> $trait<R> for Tile<T> {
            type Output = Tile<T>;
            #[track_caller]
            fn $method(self, other: R) -> Tile<T> {
                let loc = Loc::caller();
                binary(loc, Binary::$op, self, other.operand(loc))
            }
        }
    )*};
}

operators! {
    Add add Add Arith;
    Sub sub Sub Arith;
    Mul mul Mul Arith;
    Div div Div Arith;
    Rem rem Rem Int;
    Shl shl Shl Int;
    Shr shr Shr Int;
    BitAnd bitand And Bits;
    BitOr bitor Or Bits;
    BitXor bitxor Xor Bits;
}

/// An element with `&`, `|` and `^`: integers and truths.
#[diagnostic::on_unimplemented(message = "`{Self}` tiles have no `&`, `|` or `^`")]
pub trait Bits: Elem {}

impl Bits for bool {}
impl Bits for i32 {}
impl Bits for i64 {}
impl Bits for u32 {}
impl Bits for u64 {}

impl<T: Arith> Neg for Tile<T> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        unary(Loc::caller(), Unary::Neg, self)
    }
}

impl<T: Bits> Not for Tile<T> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        unary(Loc::caller(), Unary::Not, self)
    }
}

macro_rules! known_left {
    ($($known:ty, $elem:ty: $($trait:ident $method:ident)*;)*) => {$($(
        impl $trait<Tile<$elem>> for $known {
            type Output = Tile<$elem>;
            #[track_caller]
            fn $method(self, other: Tile<$elem>) -> Tile<$elem> {
                let left: Tile<$elem> = self.operand(Loc::caller());
                left.$method(other)
            }
        }
    )*)*};
}

known_left! {
    f32, f32: Add add Sub sub Mul mul Div div;
    usize, i64: Add add Sub sub Mul mul Div div Rem rem;
    i64, i64: Add add Sub sub Mul mul Div div Rem rem;
    i32, i64: Add add Sub sub Mul mul Div div Rem rem;
}
