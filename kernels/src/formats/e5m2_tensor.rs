//! FP8 E5M2 with one f32 scale for the whole weight.

use super::{Element, Format, ScaleTile, ScaleType, Tol, WHOLE};

/// `e5m2-tensor`.
pub const FORMAT: Format = Format {
    name: "e5m2-tensor",
    element: Element::F8E5M2,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: WHOLE,
        cols: WHOLE,
        ragged: true,
        divisor: 57344.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.072, tensor: 0.055 },
};
