//! FP8 E4M3 with a scale for each row, as compressed-tensors' `float-quantized` stores it.
//!
//! Such checkpoints carry bf16 or f32 scales. The format holds f32, to which a reader widens bf16
//! without loss; the quantizer rounds to bf16, so that what it makes can be written as either.

use super::{Element, Format, ScaleTile, ScaleType, Tol, WHOLE};

/// `fp8-channel`.
pub const FORMAT: Format = Format {
    name: "fp8-channel",
    element: Element::F8E4M3,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: 1,
        cols: WHOLE,
        ragged: true,
        divisor: 448.0,
        precision: ScaleType::Bf16,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.0365, tensor: 0.028 },
};
