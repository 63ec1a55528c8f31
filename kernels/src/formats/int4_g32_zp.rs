//! Four-bit integers with zero points, a bf16 scale for each 32 elements of a row.

use super::{Element, Format, ScaleTile, ScaleType, Tol};

/// `int4-g32-zp`.
pub const FORMAT: Format = Format {
    name: "int4-g32-zp",
    element: Element::I4,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::Bf16,
        rows: 1,
        cols: 32,
        ragged: false,
        divisor: 15.0,
        precision: ScaleType::Bf16,
    }),
    zero_point: true,
    tensor_scale: false,
    tol: Tol { element: 0.0711, tensor: 0.086 },
};
