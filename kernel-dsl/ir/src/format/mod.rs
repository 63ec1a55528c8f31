//! Number formats: which value each code stands for, which codes share a scale.
//!
//! One policy everywhere (ADR 0003): encoding rounds half to even and saturates to the largest
//! finite value of the element; NaN stays NaN where the element has one and is refused where it
//! has none.

mod bits;
mod element;
mod number;
mod rule;
mod scale;
mod stream;

pub use bits::{FloatBits, Special};
pub use element::Element;
pub use number::{Exact, Float, Kind, NumberFormat, SmallIntegers, table_len};
pub use scale::{ScaleTile, ScaleType, TensorScaleKind, WHOLE};
pub use stream::{read_code, write_code};

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
    /// What activations are quantized to before they meet this format in a scaled dot; `None` where
    /// they take this very format. See [`Format::activation`].
    pub activation: Option<&'static Format>,
}

impl Format {
    /// The format itself, if its fields agree with each other.
    ///
    /// # Panics
    /// If they contradict each other; in a constant, that stops the build.
    #[must_use]
    pub const fn checked(self) -> Self {
        if let Some(tile) = self.scale_tile {
            let whole = tile.cols == WHOLE || (tile.cols * self.element.bits()).is_multiple_of(8);
            assert!(whole, "scale tiles start on a byte");
            assert!(tile.rows > 0 && tile.cols > 0, "scale tiles have elements");
        }
        let integer = self.element.format().int_bias().is_some();
        assert!(!self.zero_point || integer, "zero points go with integers");
        assert!(self.scale_tile.is_some() || !self.zero_point, "zero points go with scales");
        assert!(self.scale_tile.is_some() || !self.tensor_scale, "tensor scales go with scales");
        self
    }

    /// The format that activations take to meet this one in a scaled dot: itself where it declares
    /// none.
    pub fn activation(&'static self) -> &'static Self {
        self.activation.unwrap_or(self)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Format = Format {
        name: "plain",
        element: Element::F8E4M3,
        scale_tile: None,
        zero_point: false,
        tensor_scale: false,
        tol: Tol { element: 0.0, tensor: 0.0 },
        activation: None,
    };
    const SEVEN: ScaleTile = ScaleTile {
        scale: ScaleType::F32,
        rows: 1,
        cols: 7,
        ragged: true,
        divisor: 1.0,
        precision: ScaleType::F32,
    };

    #[test]
    fn fields_that_agree_are_taken() {
        assert_eq!(Format { scale_tile: Some(SEVEN), ..PLAIN }.checked().tiles(2, 8), 4);
    }

    #[test]
    #[should_panic(expected = "zero points go with integers")]
    fn a_float_has_no_zero_point() {
        let _ = Format { scale_tile: Some(SEVEN), zero_point: true, ..PLAIN }.checked();
    }

    #[test]
    #[should_panic(expected = "scale tiles start on a byte")]
    fn a_tile_does_not_start_inside_a_byte() {
        let _ = Format { element: Element::I4, scale_tile: Some(SEVEN), ..PLAIN }.checked();
    }

    #[test]
    #[should_panic(expected = "fields fill the code")]
    fn a_number_does_not_have_spare_bits() {
        let float = Float { exp: 3, man: 2, bias: 3, inf: None, nan: None, max: 0x1f };
        let _ = NumberFormat::new("e3m2", 7, Kind::Float(float), Exact::F16, &[0.0; 128]);
    }
}
