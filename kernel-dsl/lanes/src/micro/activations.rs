//! Activations as 16-bit integers, for weights whose codes are small integers.

use crate::isa::{Isa, LANES, TILE_BLOCK};
use crate::memory::ALIGN;
use std::ops::Range;

/// The largest code. Codes are kept as two signed bytes, `256 * high + low`, which reach
/// `127 * 256 + 127` upwards; the same is used downwards.
pub const A16_MAX: f32 = 32639.0;

/// `A16_MAX` as an integer.
const A16_MAX_CODE: i32 = 32639;

/// Columns whose codes lie together: a block of [`crate::isa::Tiles`].
const BLOCK: usize = TILE_BLOCK;

/// Fewer rows are faster by vectors: a product of tiles takes the same time for one row as for
/// eight.
pub(super) const LEAST_TILE_ROWS: usize = 5;

/// The codes of a block, high bytes and low bytes apart: see [`A16Rows`].
pub(super) type Block = [i32; BLOCK / 2];

/// The codes of a block as bfloat16.
type TileBlock = [i32; BLOCK];

/// How quantized rows lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A16Shape {
    /// Columns of a row, before padding to whole blocks.
    pub cols: usize,
    /// Columns that share a scale: a multiple of 8, or all of them.
    pub group: usize,
    /// Whether [`crate::isa::Tiles`] find their blocks.
    tiles: bool,
}

impl A16Shape {
    /// Rows for vectors alone.
    pub const fn new(cols: usize, group: usize) -> Self {
        Self { cols, group, tiles: false }
    }

    /// As many rows at most as `rows`: they are for tiles, too, if the instruction set has them and
    /// they may be faster.
    #[must_use]
    pub const fn for_rows(self, rows: usize, has_tiles: bool) -> Self {
        let whole = self.group == TILE_BLOCK && self.cols.is_multiple_of(TILE_BLOCK);
        Self { tiles: has_tiles && whole && rows >= LEAST_TILE_ROWS, ..self }
    }

    /// Words of one row: an odd number of cache lines, so that rows next to each other do not meet
    /// in the same sets of a cache.
    pub const fn row_words(&self) -> usize {
        let words = self.scales() + 2 * self.groups();
        if words == 0 { 0 } else { (words.div_ceil(LANES) | 1) * LANES }
    }

    /// Groups of a row.
    const fn groups(&self) -> usize {
        self.cols.div_ceil(self.group)
    }

    /// Words of the codes of a row.
    const fn codes(&self) -> usize {
        BLOCK / 2 * self.cols.div_ceil(BLOCK)
    }

    /// The first word of the scales of a row.
    const fn scales(&self) -> usize {
        if self.tiles { 3 * self.codes() } else { self.codes() }
    }
}

/// Makes room in `words` for `len` words that begin with a cache line; where they are.
pub fn a16_words(words: &mut Vec<i32>, len: usize) -> Range<usize> {
    if words.len() < len + LANES {
        *words = vec![0; len + LANES];
    }
    let first = words.as_ptr().align_offset(ALIGN).min(LANES);
    first..first + len
}

/// Quantized rows, one after the other, [`A16Shape::row_words`] each.
///
/// ```text
/// 16 words for each block of 32 columns
///   words 0..8    high bytes, four columns a word, the first in the lowest byte
///   words 8..16   low bytes (signed)
/// if there are tiles, 32 words for each block
///   words 0..16   256 times the high bytes as bfloat16, two columns a word: 0 2, 1 3, 4 6, 5 7, ...
///   words 16..32  the low bytes, in the same order
/// then, for each group of columns, the bits of its f32 scale; then the sums of the groups' codes
/// then padding
/// ```
///
/// Rows that begin with a cache line are faster: see [`a16_words`].
#[derive(Debug, Clone, Copy)]
pub struct A16Rows<'a> {
    /// All rows.
    pub words: &'a [i32],
    /// How they lie there.
    pub shape: A16Shape,
}

impl<'a> A16Rows<'a> {
    /// Number of rows; none if they have no columns.
    #[inline(always)]
    pub const fn rows(&self) -> usize {
        match self.shape.row_words() {
            0 => 0,
            words => self.words.len() / words,
        }
    }

    /// Rows `first..first + count`.
    #[inline(always)]
    pub fn slice(&self, first: usize, count: usize) -> Self {
        let words = self.shape.row_words();
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
        let shape = &self.shape;
        RowShape {
            stride: shape.row_words(),
            codes: shape.codes(),
            tiles: if shape.tiles { Some(shape.codes()) } else { None },
            scales: shape.scales(),
            groups: shape.groups(),
        }
    }

    /// A row's blocks, and scale bits and sums of its groups.
    #[inline(always)]
    pub(super) fn row(&self, shape: &RowShape, row: usize) -> Row<'a> {
        let row = &self.words[row * shape.stride..][..shape.stride];
        let (blocks, metas) = (&row[..shape.codes], &row[shape.scales..]);
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
    /// The first of the blocks for tiles, if they are there.
    pub(super) tiles: Option<usize>,
    /// The first of the scales.
    pub(super) scales: usize,
    /// Number of groups.
    groups: usize,
}

/// Quantizes one row: in each group, `scale = amax / A16_MAX` and each code the integer nearest to
/// `x / scale`, ties to even; a group of zeros has scale 0 and codes 0. A group with an infinity or
/// NaN gets that as its scale and codes 0, which makes NaN of every product with it.
///
/// # Panics
/// If `x` has other columns than `shape`, `out` is not [`A16Shape::row_words`] long, or the group is
/// neither a multiple of 8 nor the whole row.
#[inline(always)]
pub fn quantize_row<I: Isa>(isa: I, x: &[f32], shape: A16Shape, out: &mut [i32]) {
    assert_eq!((x.len(), out.len()), (shape.cols, shape.row_words()), "a row and its words");
    let group = shape.group;
    assert!(group.is_multiple_of(8) || group >= x.len(), "groups are whole steps of 8 columns");
    let (codes, metas) = out.split_at_mut(shape.scales());
    let (blocks, for_tiles) = codes.split_at_mut(shape.codes());
    let (blocks, _) = blocks.as_chunks_mut::<{ BLOCK / 2 }>();
    let (scales, sums) = metas.split_at_mut(shape.groups());
    for (g, (x, (scale_bits, sum))) in x.chunks(group).zip(scales.iter_mut().zip(sums)).enumerate()
    {
        let scale = amax(isa, x) / A16_MAX;
        *sum = quantize_group(isa, x, scale, (g * group, &mut *blocks));
        *scale_bits = scale.to_bits().cast_signed();
    }
    for (block, out) in blocks.iter().zip(for_tiles.as_chunks_mut().0) {
        write_tile_block(isa, block, out);
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

/// The codes of a block as bfloat16, all of which are exact.
#[inline(always)]
fn write_tile_block<I: Isa>(isa: I, block: &Block, out: &mut TileBlock) {
    let (planes, _) = block.as_chunks::<{ BLOCK / 4 }>();
    let (out, _) = out.as_chunks_mut::<LANES>();
    for ((plane, out), worth) in planes.iter().zip(out).zip([256.0, 1.0]) {
        let bytes = plane.map(i32::to_le_bytes);
        let (halves, _) = bytes.as_flattened().as_chunks::<LANES>();
        for (bytes, out) in halves.iter().zip(out.as_chunks_mut::<{ LANES / 2 }>().0) {
            let signed = isa.sra::<24>(isa.shl::<24>(isa.load_u8(bytes)));
            let value = isa.mul(isa.to_f32(signed), isa.splat(worth));
            let mut high = [0; LANES];
            isa.store_i32(isa.shr::<16>(isa.bits(value)), &mut high);
            // Pairs of two columns each, the second pair above the first: 0 2, 1 3.
            for (four, out) in high.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = [four[0] | four[2] << 16, four[1] | four[3] << 16];
            }
        }
    }
}
