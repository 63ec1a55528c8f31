//! The ops of the tile IR: what each takes, gives and means.

use crate::format::{Element, Format};
use crate::types::Elem;

/// A constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// Of an `f32` scalar.
    Float(f64),
    /// Of an integer scalar; `u64` values above `i64::MAX` wrap.
    Int(i64),
    /// Of a `bool` scalar.
    Bool(bool),
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

/// An op of two operands of one type, elementwise after broadcasting.
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
    Shl,
    Shr,
}

/// A comparison, elementwise after broadcasting; any with NaN is false but `Ne`.
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

/// Read-modify-write of one element of a view.
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
/// Views are bounded: an element read outside is zero (code 0), one written outside is dropped.
/// So a ragged tile needs no mask for its memory, only for what its zeros would do to the result.
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

    /// `(i64 per axis) -> T[shape]`: the window of a view that starts there.
    Load(usize),
    /// `(i64 per axis, T[shape]) -> ()`.
    Store(usize),
    /// `(i64[r], i64) -> T[r, c]`: whole-width pieces of rows: row indices, first column.
    LoadRows(usize),
    /// `(i64[r], i64, T[r, c]) -> ()`. A row index outside is dropped.
    StoreRows(usize),
    /// `(i64[shape] per axis) -> T[shape]`: single elements. Indices broadcast.
    Gather(usize),
    /// `(i64[shape] per axis, T[shape]) -> ()`.
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
    /// `(T) -> U`: to the nearest value; floats to integers round towards zero and saturate.
    Cast(Elem),
    /// `(T) -> U` of the same width: the same bits.
    Bitcast(Elem),
    /// `(T) -> T` with an extent of 1: along an axis. Sums add in an order fixed by the extent.
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
    /// `(f32) -> stored`: nearest, ties to even, saturating; NaN to the NaN code.
    Encode(Element),
    /// `(f32[m, k], f32[k, n], f32[m, n]) -> f32[m, n]`: the third is added.
    Dot,
    /// `(f32[m, k]) -> packed[m, k]`: codes and scales of a block format along `k`, each scale
    /// `amax / divisor` of its group.
    Quantize(&'static Format),
    /// `(packed[m, k], packed[n, k], f32[m, n]) -> f32[m, n]`: `x * w^T` with codes and scales kept
    /// together. Within a scale group of both sides the products of integer codes add exactly;
    /// groups add in the order of `k`. The third is added.
    DotScaled,

    /// `(start, end: i64, carried..) -> carried..`: region `(i64, carried..) -> carried..`.
    For {
        /// Distance between indices, at least 1.
        step: usize,
    },
    /// `(bool, ..) -> carried..`: two regions without arguments.
    If,
    /// Ends a region with its results.
    Yield,
    /// `(bool) -> ()`: the launch fails with this message where any element is false.
    Assert(String),
    /// `(T) -> ()`: shown by `--trace`; nothing otherwise.
    Print(String),
}
