//! IEEE binary32, as is.

use super::{Element, Format, Tol};

/// `f32`.
pub const FORMAT: Format = Format {
    name: "f32",
    element: Element::F32,
    scale_tile: None,
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.0, tensor: 0.0 },
};
