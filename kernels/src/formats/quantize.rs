//! The quantizer: values to codes, scales and zero points, in blocks of rows.
//!
//! Rounds as compressed-tensors and modelopt do: codes are made with the scale as rounded to its
//! stored precision, zero points with the scale before that.

use super::{Element, Format, MatrixError, PackedMatrix, ScaleTile, WHOLE};
use bytes::Bytes;
use rayon::prelude::*;
use tessera_tile_ir::format::write_code;

/// Rows quantized by one task where scales do not span rows.
const BLOCK_ROWS: usize = 16;

impl PackedMatrix {
    /// Quantizes row-major `values` (`rows * cols` long) to `format`.
    ///
    /// # Errors
    /// [`MatrixError::Values`] on another number of values, [`MatrixError::Empty`] or
    /// [`MatrixError::Group`] if the shape does not fit the format, [`MatrixError::NotFinite`] on
    /// NaN or infinity if the format has scales (they would spread over a tile, or become a
    /// number), [`MatrixError::Implausible`] as [`PackedMatrix::new`].
    pub fn encode(
        format: &'static Format,
        rows: usize,
        cols: usize,
        values: &[f32],
    ) -> Result<Self, MatrixError> {
        let (got, want) = (values.len(), rows.saturating_mul(cols));
        if got != want {
            return Err(MatrixError::Values { format: format.name, rows, cols, got, want });
        }
        quantize(format, rows, cols, |row, out: &mut [f32]| {
            out.copy_from_slice(&values[row * cols..][..cols]);
        })
    }

    /// The same weight in another format, made a few rows at a time: needs no f32 copy of it.
    ///
    /// # Errors
    /// As [`PackedMatrix::encode`].
    pub fn requantize(&self, format: &'static Format) -> Result<Self, MatrixError> {
        if format == self.format {
            return Ok(self.clone());
        }
        quantize(format, self.rows, self.cols, |row, out: &mut [f32]| self.decode_row(row, out))
    }
}

/// Scales and zero points of some rows of tiles, stored form.
#[derive(Default)]
struct TileParts {
    scales: Vec<u8>,
    zero_points: Vec<u8>,
}

/// One scale as its reader will see it.
#[derive(Clone, Copy)]
struct Step {
    /// Tile scale times tensor scale.
    scale: f32,
    /// Zero point, a value of the element; 0 where there is none.
    zero: f32,
}

/// What every block of rows needs to know.
struct Job {
    format: &'static Format,
    cols: usize,
    tensor_scale: f32,
    /// The scale of everything, where one is shared by all rows.
    shared: Option<Step>,
}

fn quantize(
    format: &'static Format,
    rows: usize,
    cols: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<PackedMatrix, MatrixError> {
    super::check_shape(format, rows, cols)?;
    let mut parts = TileParts::default();
    let job = Job::new(format, cols, || tensor_amax(format, rows, cols, &read), &mut parts)?;
    let block_rows = match format.scale_tile {
        Some(tile) if tile.rows != WHOLE && tile.rows > 1 => tile.rows,
        _ => BLOCK_ROWS,
    };
    let row_bytes = format.row_bytes(cols);
    let mut codes = vec![0; rows * row_bytes];
    let blocks = codes
        .par_chunks_mut(block_rows * row_bytes)
        .enumerate()
        .map(|(block, codes)| {
            let values =
                read_rows(format, block * block_rows, codes.len() / row_bytes, cols, &read)?;
            Ok(job.encode_block(&values, codes))
        })
        .collect::<Result<Vec<_>, MatrixError>>()?;
    for block in blocks {
        parts.scales.extend(block.scales);
        parts.zero_points.extend(block.zero_points);
    }
    let matrix = PackedMatrix {
        format,
        rows,
        cols,
        codes: Bytes::from(codes),
        scales: Bytes::from(parts.scales),
        zero_points: Bytes::from(parts.zero_points),
        tensor_scale: job.tensor_scale,
    };
    matrix.check_scales()?;
    Ok(matrix)
}

/// Rows `first..first + count`, refused if they hold what the format cannot.
fn read_rows(
    format: &Format,
    first: usize,
    count: usize,
    cols: usize,
    read: &impl Fn(usize, &mut [f32]),
) -> Result<Vec<f32>, MatrixError> {
    let mut values = vec![0.0; count * cols];
    for (i, out) in values.chunks_exact_mut(cols).enumerate() {
        read(first + i, out);
        let bad = out.iter().position(|value| !value.is_finite());
        if let (Some(_), Some(col)) = (format.scale_tile, bad) {
            let (row, value) = (first + i, out[col]);
            return Err(MatrixError::NotFinite { format: format.name, row, col, value });
        }
    }
    Ok(values)
}

fn tensor_amax(
    format: &Format,
    rows: usize,
    cols: usize,
    read: &(impl Fn(usize, &mut [f32]) + Sync),
) -> Result<f32, MatrixError> {
    (0..rows.div_ceil(BLOCK_ROWS))
        .into_par_iter()
        .map(|block| {
            let first = block * BLOCK_ROWS;
            let values = read_rows(format, first, BLOCK_ROWS.min(rows - first), cols, read)?;
            Ok(values.iter().fold(0.0, |amax: f32, value| amax.max(value.abs())))
        })
        .try_reduce(|| 0.0, |a, b| Ok(a.max(b)))
}

impl Job {
    /// Picks the scales of the whole tensor, for which `amax` is asked only if there are any, and
    /// stores a shared one in `parts`.
    fn new(
        format: &'static Format,
        cols: usize,
        amax: impl FnOnce() -> Result<f32, MatrixError>,
        parts: &mut TileParts,
    ) -> Result<Self, MatrixError> {
        let mut job = Self { format, cols, tensor_scale: 1.0, shared: None };
        let Some(tile) = format.scale_tile else {
            job.shared = Some(Step { scale: 1.0, zero: 0.0 });
            return Ok(job);
        };
        if format.tensor_scale {
            // The largest tile scale lands on the largest scale its type can hold.
            let amax = amax()? / (tile.divisor * tile.scale.max());
            if amax > 0.0 {
                job.tensor_scale = amax;
            }
        } else if tile.rows == WHOLE {
            let amax = amax()?;
            job.shared = Some(job.pick(&tile, -amax, amax, parts));
        }
        Ok(job)
    }

    /// Encodes whole rows of tiles.
    fn encode_block(&self, values: &[f32], codes: &mut [u8]) -> TileParts {
        let mut parts = TileParts::default();
        let row_bytes = self.format.row_bytes(self.cols);
        if let Some(step) = self.shared {
            for (values, codes) in values.chunks(self.cols).zip(codes.chunks_mut(row_bytes)) {
                encode_run(self.format.element, step, values, codes);
            }
            return parts;
        }
        let tile = self.format.scale_tile.expect("a format without scales shares the scale 1");
        let rows = tile.rows.min(values.len() / self.cols);
        let width = tile.cols.min(self.cols);
        let tile_bytes = width * self.format.element.bits() / 8;
        for (values, codes) in
            values.chunks(rows * self.cols).zip(codes.chunks_mut(rows * row_bytes))
        {
            for (j, start) in (0..self.cols).step_by(width).enumerate() {
                let end = self.cols.min(start + width);
                let (mut min, mut max) = (0.0f32, 0.0f32);
                for row in values.chunks(self.cols) {
                    for value in &row[start..end] {
                        min = min.min(*value);
                        max = max.max(*value);
                    }
                }
                let step = self.pick(&tile, min, max, &mut parts);
                for (row, codes) in values.chunks(self.cols).zip(codes.chunks_mut(row_bytes)) {
                    let codes = &mut codes[j * tile_bytes..];
                    encode_run(self.format.element, step, &row[start..end], codes);
                }
            }
        }
        parts
    }

    /// Picks and stores scale and zero point of a tile with values in `min..=max` (0 included).
    fn pick(&self, tile: &ScaleTile, min: f32, max: f32, parts: &mut TileParts) -> Step {
        let element = self.format.element;
        let extent = if self.format.zero_point { max - min } else { max.max(-min) };
        let exact = extent / tile.divisor / self.tensor_scale;
        let scale = tile.precision.decode(tile.precision.encode(exact));
        tile.scale.push(scale, &mut parts.scales);
        let mut step = Step { scale: scale * self.tensor_scale, zero: 0.0 };
        if self.format.zero_point {
            if exact > 0.0 {
                let (low, high) = (element.min(), element.max());
                step.zero = (low - min / exact).clamp(low, high).round_ties_even();
            }
            parts.zero_points.push(byte(element.encode(step.zero)));
        }
        step
    }
}

/// Encodes one run of elements that share a scale. A scale of zero makes every code zero.
fn encode_run(element: Element, step: Step, values: &[f32], codes: &mut [u8]) {
    let code = |value: f32| {
        let steps = if step.scale > 0.0 { value / step.scale } else { 0.0 };
        // Adding a zero point of 0 would turn -0 into 0, which floats tell apart.
        element.encode(if step.zero == 0.0 { steps } else { steps + step.zero })
    };
    match element.bits() {
        4 => {
            for (pair, byte_out) in values.chunks(2).zip(codes) {
                let high = pair.get(1).map_or(0, |value| code(*value));
                *byte_out = byte(code(pair[0]) | high << 4);
            }
        }
        8 => {
            for (value, byte_out) in values.iter().zip(codes) {
                *byte_out = byte(code(*value));
            }
        }
        bits if !bits.is_multiple_of(8) => {
            for (idx, value) in values.iter().enumerate() {
                write_code(codes, bits, idx, code(*value));
            }
        }
        bits => {
            let bytes = bits / 8;
            for (value, out) in values.iter().zip(codes.chunks_exact_mut(bytes)) {
                out.copy_from_slice(&code(*value).to_le_bytes()[..bytes]);
            }
        }
    }
}

fn byte(code: u32) -> u8 {
    code.to_le_bytes()[0]
}
