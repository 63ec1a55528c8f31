//! A weight matrix in its format: packed codes, scales, zero points.

use super::{Element, Format};
use bytes::Bytes;
use rayon::prelude::*;
use tessera_tile_ir::format::read_code;

/// A `[rows, cols]` weight as stored. The parts may borrow a memory-mapped file.
///
/// ```text
/// codes        element (r, c) of b bits, row_bytes = ceil(cols * b / 8): bits c * b.. of the row
///              that starts at byte r * row_bytes, where bit p is bit p % 8 of byte p / 8. So:
///                b = 32, 16, 8: little endian at byte c * b / 8
///                b = 6:         four codes in three bytes
///                b = 4:         byte c / 2, low nibble for even c, high for odd
/// scales       tile (i, j) of s bytes, little endian, at byte (i * tiles_across + j) * s,
///              where i = r / tile rows, j = c / tile cols, tiles_across = ceil(cols / tile cols)
/// zero_points  one code of the element a tile, a u8 at byte i * tiles_across + j, if the format has them
/// ```
/// `real = value(code) * (scale * tensor_scale)`, or `(code - zero_point) * scale` where there are
/// zero points; every product is rounded to f32. `tensor_scale` multiplies, always: an exporter
/// that stores the divisor is inverted by the reader of that checkpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PackedMatrix {
    /// How to read the rest.
    pub format: &'static Format,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// Packed elements.
    pub codes: Bytes,
    /// Stored scales; empty where the format has none.
    pub scales: Bytes,
    /// Zero points; empty where the format has none.
    pub zero_points: Bytes,
    /// Scale of the whole tensor; 1 where the format has none.
    pub tensor_scale: f32,
}

/// What a [`PackedMatrix`] is made of, laid out as described there.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Packed elements.
    pub codes: Bytes,
    /// Stored scales; empty where the format has none.
    pub scales: Bytes,
    /// Zero points; empty where the format has none.
    pub zero_points: Bytes,
    /// Multiplier of the whole tensor; present exactly where the format has one.
    pub tensor_scale: Option<f32>,
}

impl Parts {
    /// Parts of a format without scales.
    pub const fn unscaled(codes: Bytes) -> Self {
        Self { codes, scales: Bytes::new(), zero_points: Bytes::new(), tensor_scale: None }
    }

    /// Parts of a format with scales and nothing else.
    pub const fn scaled(codes: Bytes, scales: Bytes) -> Self {
        Self { codes, scales, zero_points: Bytes::new(), tensor_scale: None }
    }
}

/// Why parts or values do not make a matrix. The caller knows the tensor's name and adds it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum MatrixError {
    #[error("{format}: a weight of shape [{rows}, {cols}] has no elements")]
    Empty { format: &'static str, rows: usize, cols: usize },
    #[error("{format} [{rows}, {cols}]: {part} has {got} bytes, needs {want}")]
    Bytes {
        format: &'static str,
        rows: usize,
        cols: usize,
        part: &'static str,
        got: usize,
        want: usize,
    },
    #[error("{format}: {cols} input features are not a multiple of the {group} that share a scale")]
    Group { format: &'static str, cols: usize, group: usize },
    #[error("{format}: scale {idx} is {got}, expected a finite value, 0 or above")]
    Scale { format: &'static str, idx: usize, got: f32 },
    #[error("{format}: tensor scale is {got:?}, expected {want}")]
    TensorScale { format: &'static str, got: Option<f32>, want: &'static str },
    #[error(
        "{format}: scales allow weights up to {got:e}, expected at most {limit:e}; \
         a tensor scale that is a divisor in the file must be inverted"
    )]
    Implausible { format: &'static str, got: f32, limit: f32 },
    #[error("{format}: zero point {idx} is {got}, expected 0 to 15")]
    ZeroPoint { format: &'static str, idx: usize, got: u8 },
    #[error("{format} [{rows}, {cols}]: {got} values to quantize, needs {want}")]
    Values { format: &'static str, rows: usize, cols: usize, got: usize, want: usize },
    #[error("{format}: value at row {row}, column {col} is {value}, which the format cannot hold")]
    NotFinite { format: &'static str, row: usize, col: usize, value: f32 },
}

/// Largest weight that the scales of a format with a tensor scale may allow. Weights of linear
/// layers stay far below; a tensor scale read the wrong way round (`1 / x` for `x`) lands far above,
/// because the right one is about `max |weight| / 2688`.
pub const PLAUSIBLE_MAX_ABS: f32 = 1024.0;

/// Rows decoded by one task of [`PackedMatrix::decode`].
const DECODE_ROWS: usize = 16;

impl PackedMatrix {
    /// Puts a matrix together from its stored parts, without copying them.
    ///
    /// A scale of zero is accepted: checkpoints hold it for groups that are zero throughout, and
    /// all of the tile then decodes to zero.
    ///
    /// # Errors
    /// [`MatrixError`] if a part has the wrong size, a scale is negative, infinite or NaN, a zero
    /// point is no four-bit code, the width does not fit the format, or the tensor scale is
    /// missing, superfluous, not above zero or implausible (see [`PLAUSIBLE_MAX_ABS`]).
    pub fn new(
        format: &'static Format,
        rows: usize,
        cols: usize,
        parts: Parts,
    ) -> Result<Self, MatrixError> {
        super::check_shape(format, rows, cols)?;
        let name = format.name;
        let tiles = format.tiles(rows, cols);
        let scale_bytes = format.scale_tile.map_or(0, |tile| tile.scale.bytes());
        for (part, got, want) in [
            ("codes", parts.codes.len(), rows.saturating_mul(format.row_bytes(cols))),
            ("scales", parts.scales.len(), tiles.saturating_mul(scale_bytes)),
            ("zero points", parts.zero_points.len(), if format.zero_point { tiles } else { 0 }),
        ] {
            if got != want {
                return Err(MatrixError::Bytes { format: name, rows, cols, part, got, want });
            }
        }
        let tensor_scale = match (format.tensor_scale, parts.tensor_scale) {
            (false, None) => 1.0,
            (true, Some(scale)) if scale.is_finite() && scale > 0.0 => scale,
            (true, got) => {
                let want = "a finite value above 0";
                return Err(MatrixError::TensorScale { format: name, got, want });
            }
            (false, got) => {
                return Err(MatrixError::TensorScale { format: name, got, want: "none" });
            }
        };
        let zero_points = parts.zero_points.iter().copied().enumerate();
        let mask = format.element.mask();
        if let Some((idx, got)) = zero_points.into_iter().find(|(_, zp)| u32::from(*zp) > mask) {
            return Err(MatrixError::ZeroPoint { format: name, idx, got });
        }
        let Parts { codes, scales, zero_points, .. } = parts;
        let matrix = Self { format, rows, cols, codes, scales, zero_points, tensor_scale };
        matrix.check_scales()?;
        Ok(matrix)
    }

    /// Refuses scales that no weight has.
    pub(super) fn check_scales(&self) -> Result<(), MatrixError> {
        let (format, Some(tile)) = (self.format.name, self.format.scale_tile) else {
            return Ok(());
        };
        let mut largest = 0.0f32;
        for idx in 0..self.format.tiles(self.rows, self.cols) {
            let got = tile.scale.read(&self.scales, idx);
            if !(got.is_finite() && got >= 0.0) {
                return Err(MatrixError::Scale { format, idx, got });
            }
            largest = largest.max(got);
        }
        let got = largest * self.tensor_scale * self.format.element.max();
        if self.format.tensor_scale && got > PLAUSIBLE_MAX_ABS {
            return Err(MatrixError::Implausible { format, got, limit: PLAUSIBLE_MAX_ABS });
        }
        Ok(())
    }

    /// Dequantizes row `row` into `out` (`cols` long).
    ///
    /// # Panics
    /// If there is no such row or `out` has another length.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
        assert_eq!(out.len(), self.cols, "a row holds as many values as the matrix has columns");
        let element = self.format.element;
        let row_bytes = self.format.row_bytes(self.cols);
        let codes = &self.codes[row * row_bytes..][..row_bytes];
        let Some(tile) = self.format.scale_tile else {
            decode_run(element, codes, 0.0, 1.0, out);
            return;
        };
        let across = self.cols.div_ceil(tile.cols);
        let first = row / tile.rows * across;
        let width = tile.cols.min(self.cols);
        let tile_bytes = width * element.bits() / 8;
        for (j, out) in out.chunks_mut(width).enumerate() {
            let scale = tile.scale.read(&self.scales, first + j) * self.tensor_scale;
            let zero = self.zero_points.get(first + j);
            let zero = zero.map_or(0.0, |&code| element.decode(code.into()));
            decode_run(element, &codes[j * tile_bytes..], zero, scale, out);
        }
    }

    /// Dequantizes everything, row-major, `rows * cols` long.
    pub fn decode(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.rows * self.cols];
        out.par_chunks_mut(DECODE_ROWS * self.cols).enumerate().for_each(|(chunk, out)| {
            for (i, out) in out.chunks_mut(self.cols).enumerate() {
                self.decode_row(chunk * DECODE_ROWS + i, out);
            }
        });
        out
    }

    /// Bytes held: codes, scales and zero points.
    pub fn num_bytes(&self) -> usize {
        self.codes.len() + self.scales.len() + self.zero_points.len()
    }
}

/// Decodes one run of elements that share a scale: `out = (value - zero) * scale`. What depends on
/// the element is decided outside the loops.
fn decode_run(element: Element, codes: &[u8], zero: f32, scale: f32, out: &mut [f32]) {
    let values = element.values();
    match element.bits() {
        // Arithmetic in place of a table: this one the compiler turns into vector code.
        4 if let Some(bias) = element.int_bias() => {
            let zero = bias as f32 + zero;
            decode4(codes, out, |code| (f32::from(code) - zero) * scale);
        }
        4 => decode4(codes, out, |code| values[usize::from(code)] * scale),
        8 => {
            for (out, code) in out.iter_mut().zip(codes) {
                *out = (values[usize::from(*code)] - zero) * scale;
            }
        }
        16 if element == Element::Bf16 => {
            decode16(codes, out, |code| f32::from_bits(code << 16) * scale);
        }
        16 if element == Element::F16 => {
            decode16(codes, out, |code| Element::F16.decode(code) * scale);
        }
        32 => {
            for (out, code) in out.iter_mut().zip(codes.chunks_exact(4)) {
                *out = f32::from_le_bytes([code[0], code[1], code[2], code[3]]) * scale;
            }
        }
        bits => {
            for (idx, out) in out.iter_mut().enumerate() {
                *out = (element.decode(read_code(codes, bits, idx)) - zero) * scale;
            }
        }
    }
}

/// As [`decode_run`], for codes two a byte; an odd last one stands in a low nibble.
fn decode4(codes: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    let paired = out.len() / 2;
    for (out, code) in out.chunks_exact_mut(2).zip(codes) {
        out[0] = value(code & 15);
        out[1] = value(code >> 4);
    }
    if let (Some(last), Some(code)) = (out.get_mut(paired * 2), codes.get(paired)) {
        *last = value(code & 15);
    }
}

/// As [`decode_run`], for two-byte codes.
fn decode16(codes: &[u8], out: &mut [f32], value: impl Fn(u32) -> f32) {
    for (out, code) in out.iter_mut().zip(codes.chunks_exact(2)) {
        *out = value(u32::from(u16::from_le_bytes([code[0], code[1]])));
    }
}
