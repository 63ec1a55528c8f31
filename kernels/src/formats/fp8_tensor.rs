//! FP8 E4M3 with one f32 scale for the whole weight.

use super::{Element, Format, ScaleTile, ScaleType, Tol, WHOLE};

/// `fp8-tensor`.
pub const FORMAT: Format = Format {
    name: "fp8-tensor",
    element: Element::F8E4M3,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: WHOLE,
        cols: WHOLE,
        ragged: true,
        divisor: 448.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.036, tensor: 0.028 },
};
