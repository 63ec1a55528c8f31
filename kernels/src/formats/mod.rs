//! Number formats as data: how an element is coded, which elements share a scale, how codes and
//! scales are packed.
//!
//! One policy everywhere (see `docs/adr`): encoding rounds half to even and saturates to the
//! largest finite value of the element; NaN stays NaN where the element has one.

mod element;
mod kv;
mod matrix;

pub use element::{Element, ScaleType};
pub use kv::{KV_FORMATS, KvFormat, kv_format};
pub use matrix::{MatrixError, PackedMatrix};

/// "All of them", as an extent of a [`ScaleTile`].
pub const WHOLE: usize = usize::MAX;

/// The part of a weight that shares one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleTile {
    /// Type the scale is stored in.
    pub scale: ScaleType,
    /// Weight rows (output features) per scale; [`WHOLE`] for all.
    pub rows: usize,
    /// Weight columns (input features) per scale; [`WHOLE`] for all.
    pub cols: usize,
}

/// Elementwise and whole-tensor tolerance against the f64 rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tol {
    /// Largest relative error of one dequantized element against the unquantized one.
    pub element: f32,
    /// Largest relative Frobenius error of a tensor of standard normal values.
    pub tensor: f32,
}

/// All that a kernel, loader or tool may know of a weight format.
#[derive(Debug, PartialEq)]
pub struct Format {
    /// Name on the command line, in manifests and metrics, such as `int4-g32`.
    pub name: &'static str,
    /// Stored element.
    pub element: Element,
    /// Elements that share a scale; `None` for formats that stand for themselves.
    pub scale_tile: Option<ScaleTile>,
    /// Whether each scale tile also has a zero point: `real = (code - zero_point) * scale`.
    pub zero_point: bool,
    /// Whether one f32 scale of the whole tensor multiplies on top of the tile scales.
    pub tensor_scale: bool,
    /// Tolerances of a quantized tensor.
    pub tol: Tol,
}
