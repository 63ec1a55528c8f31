//! FP8 E4M3 with an f32 scale for each 128x128 tile, the last of which may be partial.
//!
//! The layout of DeepSeek's FP8 checkpoints, whose `weight_scale_inv` is this scale and no inverse.

use super::{Element, Format, ScaleTile, ScaleType, Tol};

/// `fp8-128x128`.
pub const FORMAT: Format = Format {
    name: "fp8-128x128",
    element: Element::F8E4M3,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: 128,
        cols: 128,
        ragged: true,
        divisor: 448.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.036, tensor: 0.028 },
};
