//! OCP MXFP4: FP4 E2M1 with a power-of-two scale for each 32 elements of a row.
//!
//! The scale is `2^(floor(log2 amax) - 2)`, so the largest elements of a group may saturate.

use super::{Element, Format, ScaleTile, ScaleType, Tol};

/// `mxfp4`.
pub const FORMAT: Format = Format {
    name: "mxfp4",
    element: Element::F4E2M1,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::Ue8m0,
        rows: 1,
        cols: 32,
        ragged: false,
        divisor: 4.0,
        precision: ScaleType::Ue8m0,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.25, tensor: 0.121 },
};
