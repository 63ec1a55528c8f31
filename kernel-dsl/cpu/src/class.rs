//! How each element is kept: its type in generated code, and where its tiles live.

use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Elem, Type};

/// How an element is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    F32,
    I32,
    U32,
    I64,
    U64,
    Bool,
    /// Codes of so many bytes each, kept as 32-bit integers.
    Code(usize),
    /// Codes and scales, never kept.
    Packed,
}

impl Class {
    pub(crate) fn of(elem: Elem) -> Self {
        match elem {
            Elem::F32 => Self::F32,
            Elem::I32 => Self::I32,
            Elem::U32 => Self::U32,
            Elem::I64 => Self::I64,
            Elem::U64 => Self::U64,
            Elem::Bool => Self::Bool,
            Elem::Stored(element) => Self::Code(element.bits().div_ceil(8).next_power_of_two()),
            Elem::Packed(_) => Self::Packed,
        }
    }

    /// Whether tiles are worked on in vectors: what is not 64 bits wide.
    pub(crate) fn in_lanes(self) -> bool {
        !matches!(self, Self::I64 | Self::U64)
    }

    /// Type of one element.
    pub(crate) fn scalar(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 | Self::Code(_) | Self::Packed => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Bool => "bool",
        }
    }

    /// Which scratch memory its tiles live in.
    pub(crate) fn arena(self) -> Arena {
        match self {
            Self::F32 => Arena::F32,
            Self::I32 | Self::U32 | Self::Code(_) | Self::Packed => Arena::I32,
            Self::I64 => Arena::I64,
            Self::U64 => Arena::U64,
            Self::Bool => Arena::U8,
        }
    }

    /// Element of a view: codes are bytes or groups of bytes.
    pub(crate) fn in_view(self) -> &'static str {
        match self {
            Self::Code(1) => "u8",
            Self::Code(2) => "[u8; 2]",
            Self::Code(_) => "[u8; 4]",
            other => other.scalar(),
        }
    }
}

/// Scratch memory of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Arena {
    F32,
    I32,
    I64,
    U64,
    U8,
}

impl Arena {
    pub(crate) const ALL: [Self; 5] = [Self::F32, Self::I32, Self::I64, Self::U64, Self::U8];

    /// Its field in `Scratch` and `Sizes`.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::U8 => "u8",
        }
    }
}

/// A constant as text.
pub(crate) fn literal(value: Literal, class: Class) -> String {
    match value {
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => integer(value, class),
        Literal::Float(value) => float(value),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "literals above the range of i64 wrap, which is how the IR spells them"
)]
fn integer(value: i64, class: Class) -> String {
    match class {
        Class::U64 => format!("{}_u64", value as u64),
        Class::U32 => format!("{}_u32", value as u32),
        Class::I32 if value == i64::from(i32::MIN) => "i32::MIN".to_owned(),
        Class::I64 if value == i64::MIN => "i64::MIN".to_owned(),
        Class::I32 if value < 0 => format!("({value}_i32)"),
        Class::I32 => format!("{value}_i32"),
        _ if value < 0 => format!("({value}_i64)"),
        _ => format!("{value}_i64"),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32 once")]
fn float(value: f64) -> String {
    let value = value as f32;
    if value.is_nan() {
        "f32::NAN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "f32::INFINITY".to_owned() } else { "f32::NEG_INFINITY".to_owned() }
    } else if value.is_sign_negative() {
        format!("({value:?}_f32)")
    } else {
        format!("{value:?}_f32")
    }
}

/// Elements between rows of a tile in scratch memory: a whole number of vectors.
pub(crate) fn stride(cols: usize) -> usize {
    cols.next_multiple_of(16)
}

/// Elements of a tile in scratch memory: whole cache lines, with room for a vector that starts at
/// any element.
pub(crate) fn footprint(ty: &Type) -> usize {
    let [rows, cols] = ty.rows_cols();
    (rows * stride(cols) + 16).next_multiple_of(64)
}
