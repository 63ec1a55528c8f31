//! Activations as 16-bit integers, for weights whose codes are small integers.

use crate::isa::{Isa, LANES};

/// The largest code. Codes are kept as two signed bytes, `256 * high + low`, which reach
/// `127 * 256 + 127` upwards; the same is used downwards.
pub const A16_MAX: f32 = 32639.0;

/// `A16_MAX` as an integer.
const A16_MAX_CODE: i32 = 32639;

/// Words of one quantized row.
pub const fn a16_row_words(cols: usize, group: usize) -> usize {
    4 * cols.div_ceil(8) + 2 * cols.div_ceil(group)
}

/// Quantized rows, one after the other, [`a16_row_words`] each.
///
/// ```text
/// word 4 * s + 0   high bytes of columns 8 * s .. 8 * s + 4, the first in the lowest byte
/// word 4 * s + 1   high bytes of columns 8 * s + 4 .. 8 * s + 8
/// word 4 * s + 2   low bytes (signed) of the first four
/// word 4 * s + 3   low bytes (signed) of the other four
/// then, for each group of columns: the bits of its f32 scale, and the sum of its codes
/// ```
#[derive(Debug, Clone, Copy)]
pub struct A16Rows<'a> {
    /// All rows.
    pub words: &'a [i32],
    /// Columns of a row, before padding to a multiple of 8.
    pub cols: usize,
    /// Columns that share a scale: a multiple of 8, or all of them.
    pub group: usize,
}

impl<'a> A16Rows<'a> {
    /// Number of rows; none if they have no columns.
    #[inline(always)]
    pub const fn rows(&self) -> usize {
        match a16_row_words(self.cols, self.group) {
            0 => 0,
            words => self.words.len() / words,
        }
    }

    /// Rows `first..first + count`.
    #[inline(always)]
    pub fn slice(&self, first: usize, count: usize) -> Self {
        let words = a16_row_words(self.cols, self.group);
        Self { words: &self.words[first * words..(first + count) * words], ..*self }
    }

    /// Rows up to `end`.
    #[inline(always)]
    #[must_use]
    pub fn until(&self, end: i64) -> Self {
        let end = usize::try_from(end).unwrap_or(0);
        self.slice(0, self.rows().min(end))
    }

    /// The steps of eight columns of a row, and its groups.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> (&'a [[i32; 4]], &'a [[i32; 2]]) {
        let len = a16_row_words(self.cols, self.group);
        let (steps, groups) =
            self.words[row * len..(row + 1) * len].split_at(4 * self.cols.div_ceil(8));
        (steps.as_chunks().0, groups.as_chunks().0)
    }
}

/// Quantizes one row: in each group, `scale = amax / A16_MAX` and each code the integer nearest to
/// `x / scale`, ties to even; a group of zeros has scale 0 and codes 0. A group with an infinity or
/// NaN gets that as its scale and codes 0, which makes NaN of every product with it.
///
/// # Panics
/// If `out` is not [`a16_row_words`] long, or `group` is neither a multiple of 8 nor the whole row.
#[inline(always)]
pub fn quantize_row<I: Isa>(isa: I, x: &[f32], group: usize, out: &mut [i32]) {
    assert_eq!(out.len(), a16_row_words(x.len(), group), "words of a quantized row");
    assert!(group.is_multiple_of(8) || group >= x.len(), "groups are whole steps of 8 columns");
    let (steps, groups) = out.split_at_mut(4 * x.len().div_ceil(8));
    let (steps, _) = steps.as_chunks_mut::<4>();
    let (groups, _) = groups.as_chunks_mut::<2>();
    let group_steps = group.min(x.len()).div_ceil(8).max(1);
    for ((x, steps), meta) in x.chunks(group).zip(steps.chunks_mut(group_steps)).zip(groups) {
        let scale = amax(isa, x) / A16_MAX;
        let sum = quantize_group(isa, x, scale, steps);
        *meta = [scale.to_bits().cast_signed(), sum];
    }
}

#[inline(always)]
fn amax<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let mut lanes = isa.splat(0.0);
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        lanes = isa.max(lanes, isa.abs(isa.load(x)));
    }
    lanes = isa.max(lanes, isa.abs(isa.load_first(rest)));
    let mut out = [0.0; LANES];
    isa.store(lanes, &mut out);
    let mut amax = 0.0;
    for value in out {
        amax = if value > amax || value.is_nan() { value } else { amax };
    }
    amax
}

#[inline(always)]
fn quantize_group<I: Isa>(isa: I, x: &[f32], scale: f32, steps: &mut [[i32; 4]]) -> i32 {
    let usable = scale > 0.0 && scale.is_finite();
    let divisor = isa.splat(if usable { scale } else { 1.0 });
    let mut sum = isa.splat_i32(0);
    for (x, steps) in x.chunks(LANES).zip(steps.chunks_mut(2)) {
        let x = match x.first_chunk::<LANES>() {
            Some(x) => isa.load(x),
            None => isa.load_first(x),
        };
        let limit = isa.splat_i32(A16_MAX_CODE);
        let code = isa.to_i32(isa.round(isa.div(x, divisor)));
        let code = isa.min_i32(isa.max_i32(code, isa.splat_i32(-A16_MAX_CODE)), limit);
        let code = if usable { code } else { isa.splat_i32(0) };
        sum = isa.add_i32(sum, code);
        let high = isa.sra::<8>(isa.add_i32(code, isa.splat_i32(128)));
        let (mut high_bytes, mut low_bytes) = ([0; LANES], [0; LANES]);
        isa.store_u8(high, &mut high_bytes);
        isa.store_u8(code, &mut low_bytes);
        let (high, _) = high_bytes.as_chunks::<4>();
        let (low, _) = low_bytes.as_chunks::<4>();
        for (s, step) in steps.iter_mut().enumerate() {
            let word = |bytes: [u8; 4]| i32::from_le_bytes(bytes);
            *step =
                [word(high[2 * s]), word(high[2 * s + 1]), word(low[2 * s]), word(low[2 * s + 1])];
        }
    }
    let mut lanes = [0; LANES];
    isa.store_i32(sum, &mut lanes);
    lanes.iter().sum()
}
