//! IEEE binary16, no scales.

use super::{Element, Format, Tol};

/// `f16`.
pub const FORMAT: Format = Format {
    name: "f16",
    element: Element::F16,
    scale_tile: None,
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.00049, tensor: 0.00022 },
};
