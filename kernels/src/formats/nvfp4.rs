//! NVFP4: FP4 E2M1, an E4M3 scale for each 16 elements of a row, an f32 scale for the weight.
//!
//! The f32 scale multiplies, as modelopt's `weight_scale_2` does. compressed-tensors stores the
//! divisor (`weight_global_scale`) instead: see [`super::TensorScaleKind`].

use super::{Element, Format, ScaleTile, ScaleType, Tol};

/// `nvfp4`.
pub const FORMAT: Format = Format {
    name: "nvfp4",
    element: Element::F4E2M1,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::E4M3,
        rows: 1,
        cols: 16,
        ragged: false,
        divisor: 6.0,
        precision: ScaleType::E4M3,
    }),
    zero_point: false,
    tensor_scale: true,
    tol: Tol { element: 0.18, tensor: 0.1 },
};
