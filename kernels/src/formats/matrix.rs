//! A weight matrix in its format: packed codes, scales, zero points.

use super::Format;
use bytes::Bytes;

/// A `[rows, cols]` weight as stored.
///
/// ```text
/// codes        row-major, each row starts on a byte; four-bit codes two a byte, low nibble first
/// scales       row-major [ceil(rows / tile rows), ceil(cols / tile cols)], little endian
/// zero_points  one u8 a scale tile, in the order of the scales (only formats with zero points)
/// ```
/// `real = decode(code) * scale * tensor_scale`, or `(code - zero_point) * scale * tensor_scale`.
#[derive(Debug, Clone)]
pub struct PackedMatrix {
    /// How to read the rest.
    pub format: &'static Format,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// Packed elements.
    pub codes: Bytes,
    /// Stored scales.
    pub scales: Bytes,
    /// Zero points.
    pub zero_points: Bytes,
    /// Scale of the whole tensor; 1 where the format has none.
    pub tensor_scale: f32,
}

/// Why parts do not make a matrix.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum MatrixError {
    #[error("{format} [{rows}, {cols}]: {part} has {got} bytes, needs {want}")]
    Bytes {
        format: &'static str,
        rows: usize,
        cols: usize,
        part: &'static str,
        got: usize,
        want: usize,
    },
    #[error("{format}: {what} is {got}, expected a finite value above 0")]
    Scale { format: &'static str, what: &'static str, got: f32 },
}

impl PackedMatrix {
    /// Dequantizes row `row` into `out` (`cols` long).
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        let _ = (row, out);
        unimplemented!()
    }

    /// Quantizes row-major f32 `values` (`rows * cols` long) to `format`.
    pub fn encode(format: &'static Format, rows: usize, cols: usize, values: &[f32]) -> Self {
        let _ = (format, rows, cols, values);
        unimplemented!()
    }

    /// Bytes held: codes, scales and zero points.
    pub fn num_bytes(&self) -> usize {
        self.codes.len() + self.scales.len() + self.zero_points.len()
    }
}
