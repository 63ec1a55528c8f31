//! What a tile holds while it is evaluated.

use crate::types::Elem;

/// Elements of a tile, row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// `f32` tiles, not rounded; values of packed tiles, scales applied.
    Float(Vec<f64>),
    /// Integers and codes of stored tiles. `u64` keeps its bits.
    Int(Vec<i64>),
    /// Truths.
    Bool(Vec<bool>),
}

impl Cells {
    /// `len` zeros of an element.
    pub(super) fn zeros(elem: Elem, len: usize) -> Self {
        match elem {
            Elem::F32 | Elem::Packed(_) => Self::Float(vec![0.0; len]),
            Elem::Bool => Self::Bool(vec![false; len]),
            _ => Self::Int(vec![0; len]),
        }
    }

    pub(super) fn floats(&self) -> &[f64] {
        match self {
            Self::Float(cells) => cells,
            _ => unreachable!("the verifier checked the element"),
        }
    }

    pub(super) fn ints(&self) -> &[i64] {
        match self {
            Self::Int(cells) => cells,
            _ => unreachable!("the verifier checked the element"),
        }
    }

    pub(super) fn bools(&self) -> &[bool] {
        match self {
            Self::Bool(cells) => cells,
            _ => unreachable!("the verifier checked the element"),
        }
    }

    /// The cells at these places.
    pub(super) fn pick(&self, places: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::Float(cells) => Self::Float(places.map(|at| cells[at]).collect()),
            Self::Int(cells) => Self::Int(places.map(|at| cells[at]).collect()),
            Self::Bool(cells) => Self::Bool(places.map(|at| cells[at]).collect()),
        }
    }
}

/// The nearest f32.
#[expect(clippy::cast_possible_truncation, reason = "rounds on purpose")]
pub(super) fn round_f32(value: f64) -> f32 {
    value as f32
}

/// An integer element as a number.
#[expect(clippy::cast_sign_loss, reason = "u64 cells keep their bits")]
pub(super) fn number(elem: Elem, cell: i64) -> i128 {
    if elem == Elem::U64 { i128::from(cell as u64) } else { i128::from(cell) }
}

/// A number as a cell: unsigned ones wrap, signed ones must fit.
#[expect(clippy::cast_possible_truncation, reason = "wraps on purpose")]
pub(super) fn cell(elem: Elem, number: i128) -> Option<i64> {
    match elem {
        Elem::U32 => Some((number & 0xffff_ffff) as i64),
        Elem::U64 => Some(number as i64),
        Elem::I32 => i32::try_from(number).ok().map(i64::from),
        _ => i64::try_from(number).ok(),
    }
}
