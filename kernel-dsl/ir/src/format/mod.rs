//! Number formats: which value each code stands for, which codes share a scale.
//!
//! One policy everywhere (ADR 0003): encoding rounds half to even and saturates to the largest
//! finite value of the element; NaN stays NaN where the element has one and is refused where it
//! has none.

mod element;
mod rule;
mod scale;

pub use element::Element;
pub use scale::{ScaleTile, ScaleType, TensorScaleKind, WHOLE};

/// Tolerances of a quantized weight, measured by `kernels/tests/formats/tolerance.rs`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tol {
    /// Largest error of an element, as a share of the largest magnitude in its scale tile (of its
    /// own magnitude where there are no scales, subnormals aside).
    pub element: f32,
    /// Largest relative Frobenius error of a weight of standard normal values.
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

impl Format {
    /// Bytes of one row of codes.
    pub const fn row_bytes(&self, cols: usize) -> usize {
        cols.saturating_mul(self.element.bits()).div_ceil(8)
    }

    /// Scales of a `[rows, cols]` weight, the tensor scale not counted.
    pub fn tiles(&self, rows: usize, cols: usize) -> usize {
        self.scale_tile.map_or(0, |tile| {
            let (down, across) = tile.grid(rows, cols);
            down.saturating_mul(across)
        })
    }

    /// Bytes of a `[rows, cols]` weight: codes, scales and zero points.
    pub fn num_bytes(&self, rows: usize, cols: usize) -> usize {
        let tile_bytes = self.scale_tile.map_or(0, |tile| tile.scale.bytes());
        let tile_bytes = tile_bytes + usize::from(self.zero_point);
        let codes = rows.saturating_mul(self.row_bytes(cols));
        codes.saturating_add(self.tiles(rows, cols).saturating_mul(tile_bytes))
    }
}
