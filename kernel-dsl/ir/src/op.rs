//! The ops of the tile IR: what each takes, gives and means.

use crate::format::{Element, Format};
use crate::types::Elem;

/// A constant. NaN equals NaN and 0.0 differs from -0.0, so that a kernel equals its copy.
#[derive(Debug, Clone, Copy)]
pub enum Literal {
    /// Of an `f32` scalar.
    Float(f64),
    /// Of an integer scalar; unsigned ones wrap, so -1 is the largest.
    Int(i64),
    /// Of a `bool` scalar.
    Bool(bool),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Float(a), Self::Float(b)) => {
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
            }
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            _ => false,
        }
    }
}

/// An op of one operand, elementwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after what they compute; Exp and Ln are base e")]
pub enum Unary {
    Neg,
    Abs,
    Exp,
    Exp2,
    Ln,
    Log2,
    Sin,
    Cos,
    Sqrt,
    Rsqrt,
    Recip,
    Floor,
    /// To the nearest integer, ties to even.
    Round,
    Not,
    IsNan,
}

/// An op of two operands of one type, elementwise: broadcasts are ops of their own.
///
/// `u32` and `u64` wrap. `i32` and `i64` must not overflow: the evaluator reports it, other
/// executors may give anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after what they compute")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Of integers: towards zero; by zero gives zero.
    Div,
    /// Of integers, with the sign of the left; by zero gives zero.
    Rem,
    /// NaN if either is.
    Min,
    /// NaN if either is.
    Max,
    And,
    Or,
    Xor,
    /// Of integers. Shifted out bits are lost; a distance of the width or more, or below zero,
    /// gives 0.
    Shl,
    /// Of integers, signed ones keep their sign; a distance of the width or more, or below zero,
    /// gives 0, or -1 if the left is negative.
    Shr,
}

/// A comparison, elementwise; any with NaN is false but `Ne`. Truths have only `Eq` and `Ne`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the six comparisons")]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// How a reduction or scan combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after what they compute")]
pub enum Combine {
    Sum,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// Read-modify-write of one integer of an `InOut` view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after what they compute")]
pub enum Atomic {
    Add,
    Min,
    Max,
    Or,
}

/// What an op does. Operands are listed in order; `T` is any arithmetic element.
///
/// Views are bounded: an element read outside is zero (of a stored view, code 0; of a packed one,
/// the value 0), one written outside is dropped. So a ragged tile needs no mask for its memory,
/// only for what its zeros would do to the result. Indices may be any `i64`.
///
/// A program may read what it wrote. It may not touch what another program of the launch wrote,
/// nor write what another read; atomics of several programs may meet in an element that none of
/// them reads or writes otherwise. Codes of less than a byte share the fate of their byte.
#[derive(Debug, Clone, PartialEq)]
pub enum OpKind {
    /// `() -> i64`: index of this program along a grid axis.
    ProgramId(usize),
    /// `() -> i64`: a named extent of the launch, by its index in the kernel's dims.
    Dim(usize),
    /// `() -> T`: a scalar parameter, by its index in the kernel's params.
    Scalar(usize),
    /// `() -> T`.
    Const(Literal),
    /// `() -> i64[n]`: 0, 1, 2, ...
    Iota(usize),
    /// `(T) -> T[shape]`: repeats extents of 1, and leading axes that are missing.
    Broadcast,
    /// `(T) -> T[shape]`: the same elements in row-major order.
    Reshape,
    /// `(T[r, c]) -> T[c, r]`.
    Transpose,
    /// `(T) -> T`: `start..start + extent` of an axis; the extent is the result's.
    Slice {
        /// Which axis.
        axis: usize,
        /// First index.
        start: usize,
    },
    /// `(T, T) -> T`: joined along an axis.
    Concat(usize),

    /// `(i64 per axis) -> T[shape]`: the window of a view that starts there, along its last axes.
    Load(usize),
    /// `(i64 per axis, T[shape]) -> ()`.
    Store(usize),
    /// `(i64 per axis, i64 end) -> T[shape]`: as `Load` of a view whose first extent is
    /// `min(extent, max(end, 0))`. Not of packed views.
    LoadUntil(usize),
    /// `(i64 per axis, i64 end, T[shape]) -> ()`: as `Store` to a view that ends there.
    StoreUntil(usize),
    /// `(i64[r], i64) -> T[r, c]`: `c` elements of each of these rows of a view of two axes, from
    /// that column.
    LoadRows(usize),
    /// `(i64[r], i64, T[r, c]) -> ()`. A row index outside is dropped; two rows may not write one
    /// element.
    StoreRows(usize),
    /// `(i64[shape] per axis) -> T[shape]`: single elements.
    Gather(usize),
    /// `(i64[shape] per axis, T[shape]) -> ()`. Two may not write one element.
    Scatter(usize),
    /// `(i64 per axis, T) -> ()`: one element, atomically.
    Atomic(usize, Atomic),

    /// `(T) -> T`.
    Unary(Unary),
    /// `(T, T) -> T`.
    Binary(Binary),
    /// `(T, T) -> bool`.
    Cmp(Cmp),
    /// `(bool, T, T) -> T`.
    Select,
    /// `(f32, f32, f32) -> f32`: `a * b + c`, rounded once.
    Fma,
    /// `(T) -> U`. Integers to `f32` round to the nearest; floats to integers round towards zero and
    /// saturate, NaN to 0; integers to unsigned ones keep the low bits, to signed ones must fit.
    Cast(Elem),
    /// `(T) -> U` of the same width: the same bits.
    Bitcast(Elem),
    /// `(T) -> T` with an extent of 1: along an axis. Sums add in an order fixed by the extent; the
    /// evaluator adds in the order of the axis. Minimum and maximum are NaN if there is one.
    Reduce {
        /// Which axis.
        axis: usize,
        /// How.
        combine: Combine,
    },
    /// `(T) -> i64` with an extent of 1: index of the first largest along an axis; NaN is largest.
    ArgMax(usize),
    /// `(T) -> T`: inclusive prefix along an axis.
    Scan {
        /// Which axis.
        axis: usize,
        /// How.
        combine: Combine,
    },

    /// `(stored) -> f32`, or `(packed[n, k]) -> f32[n, k]` with scales applied.
    Decode,
    /// `(f32) -> stored`: nearest, ties to even, saturating; NaN to the NaN code, and must not occur
    /// where there is none.
    Encode(Element),
    /// `(f32[m, k], f32[k, n], f32[m, n]) -> f32[m, n]`: the third is added.
    Dot,
    /// `(f32[m, k]) -> packed[m, k]`: codes and scales of a block format. `k` is a multiple of the
    /// group; each group of a row has its scale: `amax / divisor` in f32, rounded to the format's
    /// precision and then to its stored type. A code is the nearest to `x / scale`, divided in f32;
    /// ties to even, saturating. A group whose `amax` or scale is 0 is all zeros; a group with NaN
    /// or an infinity is all NaN. Without scales, each element is coded by itself.
    Quantize(&'static Format),
    /// `(packed[m, k], packed[n, k], f32[m, n]) -> f32[m, n]`: `x * w^T` with codes and scales kept
    /// together. Within a scale group of both sides the products of integer codes add exactly;
    /// groups add in the order of `k`. The third is added.
    DotScaled,

    /// `(start, end: i64, carried..) -> carried..`: region `(i64, carried..) -> carried..`, entered
    /// for `start, start + step, ..` below `end`.
    For {
        /// Distance between indices, at least 1.
        step: usize,
    },
    /// `(bool) -> carried..`: two regions without arguments; the first where it is true. The truth
    /// is one element of any rank.
    If,
    /// Ends a region with its results.
    Yield,
    /// `(bool) -> ()`: the launch fails with this message where any element is false.
    Assert(String),
    /// `(T) -> ()`: shown by `--trace`; nothing otherwise.
    Print(String),
}
