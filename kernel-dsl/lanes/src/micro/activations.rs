//! Activations as 16-bit integers, for weights whose codes are small integers.

use crate::isa::{Isa, LANES, TILE_BLOCK};

/// The largest code. Codes are kept as two signed bytes, `256 * high + low`, which reach
/// `127 * 256 + 127` upwards; the same is used downwards.
pub const A16_MAX: f32 = 32639.0;

/// `A16_MAX` as an integer.
const A16_MAX_CODE: i32 = 32639;

/// Columns whose codes lie together: a block of [`crate::isa::ByteTiles`].
const BLOCK: usize = TILE_BLOCK;

/// The codes of a block, high bytes and low bytes apart: see [`A16Rows`].
pub(super) type Block = [i32; BLOCK / 2];

/// Words of one quantized row: an odd number of cache lines, so that rows next to each other do not
/// meet in the same sets of a cache.
pub const fn a16_row_words(cols: usize, group: usize) -> usize {
    let words = block_words(cols) + 2 * cols.div_ceil(group);
    if words == 0 { 0 } else { (words.div_ceil(LANES) | 1) * LANES }
}

/// Words of the codes of a row.
const fn block_words(cols: usize) -> usize {
    BLOCK / 2 * cols.div_ceil(BLOCK)
}

/// Quantized rows, one after the other, [`a16_row_words`] each.
///
/// ```text
/// 16 words for each block of 32 columns
///   words 0..8    high bytes, four columns a word, the first in the lowest byte
///   words 8..16   low bytes (signed)
/// then, for each group of columns: the bits of its f32 scale, and the sum of its codes
/// then padding
/// ```
///
/// Rows that begin with a cache line are faster.
#[derive(Debug, Clone, Copy)]
pub struct A16Rows<'a> {
    /// All rows.
    pub words: &'a [i32],
    /// Columns of a row, before padding to whole blocks.
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

    /// What its rows have in common.
    #[inline(always)]
    pub(super) const fn row_shape(&self) -> RowShape {
        RowShape {
            stride: a16_row_words(self.cols, self.group),
            codes: block_words(self.cols),
            groups: self.cols.div_ceil(self.group),
        }
    }

    /// The blocks of a row, and its groups.
    #[inline(always)]
    pub(super) fn row(&self, shape: &RowShape, row: usize) -> (&'a [Block], &'a [[i32; 2]]) {
        let (blocks, groups) =
            self.words[row * shape.stride..][..shape.stride].split_at(shape.codes);
        (blocks.as_chunks().0, &groups.as_chunks().0[..shape.groups])
    }
}

/// Where the parts of a row are, in words; divisions that are made once.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowShape {
    /// From a row to the next.
    pub(super) stride: usize,
    /// Words of codes.
    codes: usize,
    /// Number of groups.
    groups: usize,
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
    let (blocks, groups) = out.split_at_mut(block_words(x.len()));
    let (blocks, _) = blocks.as_chunks_mut::<{ BLOCK / 2 }>();
    let (groups, _) = groups.as_chunks_mut::<2>();
    for ((g, x), meta) in x.chunks(group).enumerate().zip(groups) {
        let scale = amax(isa, x) / A16_MAX;
        let sum = quantize_group(isa, x, scale, (g * group, &mut *blocks));
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

/// Writes the codes of one group, whose first column is `first`, and gives their sum.
#[inline(always)]
fn quantize_group<I: Isa>(
    isa: I,
    x: &[f32],
    scale: f32,
    (first, blocks): (usize, &mut [Block]),
) -> i32 {
    let usable = scale > 0.0 && scale.is_finite();
    let divisor = isa.splat(if usable { scale } else { 1.0 });
    let mut sum = isa.splat_i32(0);
    for (i, x) in x.chunks(LANES).enumerate() {
        let lanes = match x.first_chunk::<LANES>() {
            Some(x) => isa.load(x),
            None => isa.load_first(x),
        };
        let limit = isa.splat_i32(A16_MAX_CODE);
        let code = isa.to_i32(isa.round(isa.div(lanes, divisor)));
        let code = isa.min_i32(isa.max_i32(code, isa.splat_i32(-A16_MAX_CODE)), limit);
        let code = if usable { code } else { isa.splat_i32(0) };
        sum = isa.add_i32(sum, code);
        let high = isa.sra::<8>(isa.add_i32(code, isa.splat_i32(128)));
        let (mut high_bytes, mut low_bytes) = ([0; LANES], [0; LANES]);
        isa.store_u8(high, &mut high_bytes);
        isa.store_u8(code, &mut low_bytes);
        // A group may end inside a vector: only its own steps of eight columns are written.
        let words = high_bytes.as_chunks::<4>().0.iter().zip(low_bytes.as_chunks::<4>().0);
        for (w, (high, low)) in words.take(2 * x.len().div_ceil(8)).enumerate() {
            let word = (first + i * LANES) / 4 + w;
            let block = &mut blocks[word / (BLOCK / 4)];
            block[word % (BLOCK / 4)] = i32::from_le_bytes(*high);
            block[BLOCK / 4 + word % (BLOCK / 4)] = i32::from_le_bytes(*low);
        }
    }
    let mut lanes = [0; LANES];
    isa.store_i32(sum, &mut lanes);
    lanes.iter().sum()
}
