//! The upper half of binary32, no scales.

use super::{Element, Format, Tol};

/// `bf16`.
pub const FORMAT: Format = Format {
    name: "bf16",
    element: Element::Bf16,
    scale_tile: None,
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.00391, tensor: 0.00175 },
};
