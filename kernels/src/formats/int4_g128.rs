//! Four-bit integers, symmetric, a bf16 scale for each 128 elements of a row.
//!
//! The layout of compressed-tensors' `pack-quantized`, eight codes an i32, low nibble first: the
//! same bytes as ours wherever the width is a multiple of 8.

use super::{Element, Format, ScaleTile, ScaleType, Tol};

/// `int4-g128`.
pub const FORMAT: Format = Format {
    name: "int4-g128",
    element: Element::I4,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::Bf16,
        rows: 1,
        cols: 128,
        ragged: false,
        divisor: 7.5,
        precision: ScaleType::Bf16,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.0711, tensor: 0.117 },
};
