//! Activations as 16-bit integers, for weights whose codes are small integers.

use crate::isa::{Isa, LANES, TILE_BLOCK};
use crate::memory::ALIGN;
use std::ops::Range;

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

/// Makes room in `words` for `len` words that begin with a cache line; where they are.
pub fn a16_words(words: &mut Vec<i32>, len: usize) -> Range<usize> {
    if words.len() < len + LANES {
        *words = vec![0; len + LANES];
    }
    let first = words.as_ptr().align_offset(ALIGN).min(LANES);
    first..first + len
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
/// then, for each group of columns, the bits of its f32 scale; then the sums of the groups' codes
/// then padding
/// ```
///
/// Rows that begin with a cache line are faster: see [`a16_words`].
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

    /// A row's blocks, and scale bits and sums of its groups.
    #[inline(always)]
    pub(super) fn row(&self, shape: &RowShape, row: usize) -> Row<'a> {
        let row = &self.words[row * shape.stride..][..shape.stride];
        let (blocks, metas) = row.split_at(shape.codes);
        let (scales, sums) = metas.split_at(shape.groups);
        Row { blocks: blocks.as_chunks().0, scales, sums: &sums[..shape.groups] }
    }
}

/// The parts of a row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) blocks: &'a [Block],
    /// Bits of f32.
    pub(super) scales: &'a [i32],
    pub(super) sums: &'a [i32],
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
    let (blocks, metas) = out.split_at_mut(block_words(x.len()));
    let (blocks, _) = blocks.as_chunks_mut::<{ BLOCK / 2 }>();
    let (scales, sums) = metas.split_at_mut(x.len().div_ceil(group));
    for (g, (x, (scale_bits, sum))) in x.chunks(group).zip(scales.iter_mut().zip(sums)).enumerate()
    {
        let scale = amax(isa, x) / A16_MAX;
        *sum = quantize_group(isa, x, scale, (g * group, &mut *blocks));
        *scale_bits = scale.to_bits().cast_signed();
    }
}

/// The largest magnitude; not finite if any is not.
#[inline(always)]
fn amax<I: Isa>(isa: I, x: &[f32]) -> f32 {
    // The bits of floats without a sign are in the order of their values, NaN above all.
    let mut most = isa.splat_i32(0);
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        most = isa.max_i32(most, isa.bits(isa.abs(isa.load(x))));
    }
    if !rest.is_empty() {
        most = isa.max_i32(most, isa.bits(isa.abs(isa.load_first(rest))));
    }
    f32::from_bits(isa.most_i32(most).cast_unsigned())
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
    let limit = isa.splat_i32(A16_MAX_CODE);
    let mut sum = isa.splat_i32(0);
    for (i, x) in x.chunks(LANES).enumerate() {
        let lanes = match x.first_chunk::<LANES>() {
            Some(x) => isa.load(x),
            None => isa.load_first(x),
        };
        let code = isa.to_i32(isa.round(isa.div(lanes, divisor)));
        let code = isa.min_i32(isa.max_i32(code, isa.splat_i32(-A16_MAX_CODE)), limit);
        let code = if usable { code } else { isa.splat_i32(0) };
        sum = isa.add_i32(sum, code);
        let high = isa.sra::<8>(isa.add_i32(code, isa.splat_i32(128)));
        let mut bytes = [[0; LANES]; 2];
        isa.store_u8(high, &mut bytes[0]);
        isa.store_u8(code, &mut bytes[1]);
        // A group may end inside a vector: only its own steps of eight columns are written.
        let words = if x.len() > LANES / 2 { LANES / 4 } else { LANES / 8 };
        write_words(&bytes, words, first + i * LANES, blocks);
    }
    isa.total_i32(sum)
}

/// Writes the first `words` words of both planes to the columns from `col`.
#[inline(always)]
fn write_words(bytes: &[[u8; LANES]; 2], words: usize, col: usize, blocks: &mut [Block]) {
    let planes = bytes.each_ref().map(|bytes| {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn::<i32, { LANES / 4 }, _>(|i| i32::from_le_bytes(words[i]))
    });
    let (block, word) = (col / BLOCK, col % BLOCK / 4);
    if words == LANES / 4 && word.is_multiple_of(LANES / 4) {
        // Sixteen columns lie together.
        for (plane, words) in planes.iter().enumerate() {
            let at = plane * BLOCK / 4 + word;
            blocks[block][at..at + LANES / 4].copy_from_slice(words);
        }
        return;
    }
    for (plane, values) in planes.iter().enumerate() {
        for (i, value) in values.iter().take(words).enumerate() {
            let word = col / 4 + i;
            let block = &mut blocks[word / (BLOCK / 4)];
            block[plane * BLOCK / 4 + word % (BLOCK / 4)] = *value;
        }
    }
}
