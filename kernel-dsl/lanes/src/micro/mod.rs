//! Micro-kernels: inner products of tiles, the place where kernels spend their time.
//!
//! Every output has one f32 accumulator and its products are added in the order of `k`, so the bits
//! of a row depend neither on the rows that share its launch, nor on how a launch is cut, nor on
//! the instruction set. What adds exactly (integers inside a scale group) may add in any order.

mod activations;
mod dot;
mod float;
mod integer;
#[cfg(test)]
mod tests;
mod tiled;

pub use activations::{A16_MAX, A16Rows, A16Shape, a16_words, quantize_row};
pub use dot::dot;
pub(crate) use float::code_bytes;
pub use float::{FLOAT_CHUNK, dot_scaled_float};
pub use integer::{IntCodes, dot_scaled_int};

use crate::isa::{Isa, LANES};

/// How the codes of a stored number become f32, exactly and without a table in memory.
/// Implemented by code that the format's declaration generates.
pub trait Decode {
    /// Bits of a code; 0 for [`NoScale`]. Packed weights keep it in 8, 16 or 32 bits, the rest of
    /// which are zero.
    const BITS: usize;
    /// The values of sixteen codes, zero-extended to their lanes.
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32;
}

/// The scale type of formats that have no scales: always 1, and takes no memory.
#[derive(Debug, Clone, Copy)]
pub struct NoScale;

impl Decode for NoScale {
    const BITS: usize = 0;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, _: I::I32) -> I::F32 {
        isa.splat(1.0)
    }
}

/// How many bytes of codes ahead of a load memory is asked for: a page, where what the CPU fetches by
/// itself ends. Without it a core waits for a fifth of the bytes of a single row.
const AHEAD: usize = 4096;

/// Rows of f32, each contiguous.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Elements; the last row may end early.
    pub data: &'a [f32],
    /// Elements from a row to the next.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
}

/// A matrix of f32 with any strides.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    /// Elements.
    pub data: &'a [f32],
    /// Elements from a row to the next.
    pub row: usize,
    /// Elements from a column to the next.
    pub col: usize,
}

/// The tile that products are added to: rows of f32, each contiguous.
#[derive(Debug)]
pub struct Acc<'a> {
    /// Elements; the last row may end early.
    pub data: &'a mut [f32],
    /// Elements from a row to the next.
    pub stride: usize,
}

/// Where a block of rows and panels begins, and how many rows there are.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    rows: usize,
    panel: usize,
}

/// The rows and first columns of a block.
struct Block<const MB: usize, const NB: usize> {
    rows: [usize; MB],
    cols: [usize; NB],
}

impl Place {
    /// `MB` rows by `NB` of `panels` panels. Where there are fewer, the last one is there again:
    /// its products are made twice, from the same start, and stored twice.
    #[inline(always)]
    fn blocks<const MB: usize, const NB: usize>(&self, panels: usize) -> Block<MB, NB> {
        let mut rows = [self.row; MB];
        for (m, row) in rows.iter_mut().enumerate() {
            *row = (self.row + m).min(self.rows - 1);
        }
        let mut cols = [self.panel * LANES; NB];
        for (n, col) in cols.iter_mut().enumerate() {
            *col = (self.panel + n).min((self.panel + 1).max(panels) - 1) * LANES;
        }
        Block { rows, cols }
    }
}

/// Rows to multiply at a time, when `left` remain: 1, 4 or 8. May be more than remain.
#[inline(always)]
const fn block_rows<I: Isa>(left: usize) -> usize {
    if I::BLOCK_ROWS >= 8 && left > 4 {
        8
    } else if I::BLOCK_ROWS >= 4 && left > 1 {
        4
    } else {
        1
    }
}

impl Acc<'_> {
    #[inline(always)]
    fn load<I: Isa, const MB: usize, const NB: usize>(
        &self,
        isa: I,
        block: &Block<MB, NB>,
    ) -> [[I::F32; NB]; MB] {
        let mut sums = [[isa.splat(0.0); NB]; MB];
        for (row, sums) in block.rows.iter().zip(&mut sums) {
            for (col, sum) in block.cols.iter().zip(sums) {
                let at = row * self.stride + col;
                *sum = isa.load(&self.data[at..at + LANES].as_chunks().0[0]);
            }
        }
        sums
    }

    #[inline(always)]
    fn store<I: Isa, const MB: usize, const NB: usize>(
        &mut self,
        isa: I,
        block: &Block<MB, NB>,
        sums: &[[I::F32; NB]; MB],
    ) {
        for (row, sums) in block.rows.iter().zip(sums) {
            for (col, sum) in block.cols.iter().zip(sums) {
                let at = row * self.stride + col;
                isa.store(*sum, &mut self.data[at..at + LANES].as_chunks_mut().0[0]);
            }
        }
    }
}

/// Sixteen codes of `D` at index `idx` of a run of such groups.
#[inline(always)]
fn load_codes<I: Isa, D: Decode>(isa: I, codes: &[u8], idx: usize) -> I::I32 {
    match D::BITS {
        0 => isa.splat_i32(0),
        1..=8 => isa.load_u8(&codes.as_chunks::<LANES>().0[idx]),
        9..=16 => isa.load_u16(&codes.as_chunks::<{ 2 * LANES }>().0[idx]),
        _ => isa.load_bytes(&codes.as_chunks::<{ 4 * LANES }>().0[idx]),
    }
}
