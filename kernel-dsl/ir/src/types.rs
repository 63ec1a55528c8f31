//! Types of tiles: an element and a static shape of rank 0, 1 or 2.

use crate::format::{Element, Format};
use std::fmt;

/// Element of a tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Elem {
    /// Computed in f32 on every target, in f64 by the evaluator.
    F32,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer: every index and extent.
    I64,
    /// 32-bit unsigned integer, wrapping.
    U32,
    /// 64-bit unsigned integer, wrapping.
    U64,
    /// Truth.
    Bool,
    /// Codes of a number: no arithmetic, only decoding.
    Stored(Element),
    /// Codes and scales of a block format: only a scaled dot or decoding.
    Packed(&'static Format),
}

impl Elem {
    /// Whether arithmetic is defined.
    pub const fn is_arith(self) -> bool {
        !matches!(self, Self::Bool | Self::Stored(_) | Self::Packed(_))
    }

    /// Whether it is an integer.
    pub const fn is_int(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::U32 | Self::U64)
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::I32 => f.write_str("i32"),
            Self::I64 => f.write_str("i64"),
            Self::U32 => f.write_str("u32"),
            Self::U64 => f.write_str("u64"),
            Self::Bool => f.write_str("bool"),
            Self::Stored(element) => write!(f, "stored<{}>", element.name()),
            Self::Packed(format) => write!(f, "packed<{}>", format.name),
        }
    }
}

/// Element and shape of a tile. Rank 0 is a scalar.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the two parts of a type")]
pub struct Type {
    pub elem: Elem,
    pub shape: Vec<usize>,
}

impl Type {
    /// A scalar.
    pub const fn scalar(elem: Elem) -> Self {
        Self { elem, shape: Vec::new() }
    }

    /// A tile.
    pub fn tile(elem: Elem, shape: &[usize]) -> Self {
        Self { elem, shape: shape.to_vec() }
    }

    /// Number of elements; 1 for a scalar.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tile has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape as rows and columns: a scalar is `[1, 1]`, a vector `[1, n]`.
    pub fn rows_cols(&self) -> [usize; 2] {
        match *self.shape.as_slice() {
            [] => [1, 1],
            [cols] => [1, cols],
            [rows, cols, ..] => [rows, cols],
        }
    }
}

impl fmt::Display for Type {
    /// `f32` for a scalar, `f32[4, 16]` for a tile.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.elem)?;
        if self.shape.is_empty() { Ok(()) } else { write!(f, "{:?}", self.shape) }
    }
}
