//! Activations in [`A16Rows`] times four-bit weights whose codes are small integers.
#![expect(
    clippy::needless_range_loop,
    reason = "register blocks: one constant index walks several arrays, and unrolls"
)]

use super::activations::{Block, RowShape};
use super::{A16Rows, AHEAD, Acc, Decode, Place, load_codes};
use crate::isa::{Isa, LANES, TILE_BLOCK, splat_table};
use crate::packed::Slab;

/// Weight codes that stand for small integers times a power of two.
pub trait IntCodes {
    /// The integer of each code.
    const TABLE: [i8; 16];
    /// What one is worth; a power of two.
    const UNIT: f32;
    /// Added to the integers so that none is negative; their sum with it is at most 127.
    const OFFSET: u8;
}

/// The codes as they are multiplied: never negative.
const fn shifted<T: IntCodes>() -> [u8; 16] {
    let mut shifted = [0; 16];
    let mut code = 0;
    while code < 16 {
        shifted[code] = T::TABLE[code].wrapping_add_unsigned(T::OFFSET).cast_unsigned();
        code += 1;
    }
    shifted
}

/// Whether codes are already what [`shifted`] makes of them.
const fn is_identity<T: IntCodes>() -> bool {
    let shifted = shifted::<T>();
    let mut code = 0;
    while code < 16 {
        if shifted[code] as usize != code {
            return false;
        }
        code += 1;
    }
    true
}

/// `acc[m][n] += sum over k of x[m][k] * w[n][k]`, for the columns `k` and rows `n` of the slab.
///
/// In each scale group the products of codes add exactly in i32: a code is at most 15 in
/// magnitude (zero points included), an activation [`super::A16_MAX`], and a group has at most
/// [`crate::packed::MAX_INT_GROUP`] columns, so the sum stays below 2^31; what passes it on the way
/// wraps back. Then `acc = fma(f32(sum), x_scale * (w_scale * tensor_scale), acc)`, groups in the
/// order of `k`, every product rounded to f32.
///
/// # Panics
/// If the columns of the slab are not whole groups, the activations have another width or grouping
/// than the weights, or `acc` is smaller than the rows of `x` by the panels of the slab.
pub fn dot_scaled_int<I: Isa, T: IntCodes, S: Decode>(
    isa: I,
    x: A16Rows<'_>,
    w: &Slab<'_>,
    acc: &mut Acc<'_>,
) {
    let groups = w.whole_groups(x.shape.cols, x.shape.group);
    let job = Job { x, shape: x.row_shape(), w, groups, factor: w.tensor_scale() * T::UNIT };
    isa.run(
        #[inline(always)]
        || job.all::<I, T, S>(isa, acc),
    );
}

/// Columns of eight rows of activations, two bytes each, that leave room for weights in the nearest
/// cache.
const CACHED_COLS: usize = 1024;

/// What is multiplied.
pub(super) struct Job<'a> {
    pub(super) x: A16Rows<'a>,
    pub(super) shape: RowShape,
    pub(super) w: &'a Slab<'a>,
    /// Scale groups of the columns.
    pub(super) groups: std::ops::Range<usize>,
    /// Tensor scale and unit of the codes.
    pub(super) factor: f32,
}

impl Job<'_> {
    #[inline(always)]
    fn all<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) {
        // What tiles leave, or all.
        let first = self.tiled::<I, T, S>(isa, acc);
        let (rows, left) = (self.x.rows(), first..self.groups.end);
        if rows <= 8 {
            Job { groups: left, ..*self }.panels::<I, T, S>(isa, rows, acc);
            return;
        }
        // Many rows do not fit the nearest cache: they are taken a part of their columns at a time.
        // Few would gain less from that than weights lose which are not read from end to end.
        let step = (CACHED_COLS / self.x.shape.group).max(1);
        for start in left.clone().step_by(step) {
            let groups = start..(start + step).min(left.end);
            Job { groups, ..*self }.panels::<I, T, S>(isa, rows, acc);
        }
    }

    #[inline(always)]
    fn panels<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, rows: usize, acc: &mut Acc<'_>) {
        if self.groups.is_empty() {
            return;
        }
        for panel in 0..self.w.num_panels() {
            let mut row = 0;
            while row < rows {
                let place = Place { row, rows, panel };
                row += match rows - row {
                    5.. if I::BLOCK_ROWS >= 8 => self.block::<I, T, S, 8>(isa, place, acc),
                    4.. if I::BLOCK_ROWS >= 4 => self.block::<I, T, S, 4>(isa, place, acc),
                    3.. if I::BLOCK_ROWS >= 4 => self.block::<I, T, S, 3>(isa, place, acc),
                    2 => self.block::<I, T, S, 2>(isa, place, acc),
                    _ => self.block::<I, T, S, 1>(isa, place, acc),
                };
            }
        }
    }

    /// `MB` rows by one panel, all groups.
    #[inline(always)]
    fn block<I: Isa, T: IntCodes, S: Decode, const MB: usize>(
        &self,
        isa: I,
        place: Place,
        acc: &mut Acc<'_>,
    ) -> usize {
        let places = place.blocks::<MB, 1>(1);
        let mut out = acc.load::<I, MB, 1>(isa, &places);
        let mut x = [self.x.row(&self.shape, places.rows[0]); MB];
        for m in 1..MB {
            x[m] = self.x.row(&self.shape, places.rows[m]);
        }
        let w = self.w.panel(place.panel);
        let (w_steps, zero_points) = (w.nibbles(), w.zero_points.as_chunks::<LANES>().0);
        let (all_steps, all_groups) = (w_steps.len(), x[0].scales.len());
        let mut blocks = [x[0].blocks; MB];
        let (mut x_scales, mut x_sums) = ([x[0].scales; MB], [&x[0].sums[..all_groups]; MB]);
        for m in 1..MB {
            blocks[m] = &x[m].blocks[..x[0].blocks.len()];
            x_scales[m] = &x[m].scales[..all_groups];
            x_sums[m] = &x[m].sums[..all_groups];
        }
        let group_steps = self.x.shape.group.div_ceil(8).max(1);
        for group in self.groups.start..self.groups.end.min(all_groups) {
            let steps = group * group_steps..((group + 1) * group_steps).min(all_steps);
            let zero_points = zero_points.get(group);
            // What the offset of the codes adds to the sums is taken away before, as a scalar.
            let mut start = [isa.splat_i32(0); MB];
            for m in 0..MB {
                let offset = if zero_points.is_some() { 0 } else { i32::from(T::OFFSET) };
                start[m] = isa.splat_i32(-(x_sums[m][group] * offset));
            }
            let mut sums =
                group_sums::<I, T, MB>(isa, start, blocks, &w_steps[steps.clone()], steps.start);
            if let Some(zero_points) = zero_points {
                let zero_points = isa.load_u8(zero_points);
                for m in 0..MB {
                    let offset = isa.mul_i32(zero_points, isa.splat_i32(x_sums[m][group]));
                    sums[m] = isa.sub_i32(sums[m], offset);
                }
            }
            let scale = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
            let scale = isa.mul(scale, isa.splat(self.factor));
            for m in 0..MB {
                let x_scale = isa.splat(f32::from_bits(x_scales[m][group].cast_unsigned()));
                out[m][0] = isa.fma(isa.to_f32(sums[m]), isa.mul(x_scale, scale), out[m][0]);
            }
        }
        acc.store(isa, &places, &out);
        MB
    }
}

/// Steps of eight columns in a block.
const BLOCK_STEPS: usize = TILE_BLOCK / 8;

/// `low` plus the products of the shifted codes of one group, which begins at step `first` of `x`:
/// exact but for multiples of 2^32.
#[inline(always)]
fn group_sums<I: Isa, T: IntCodes, const MB: usize>(
    isa: I,
    low: [I::I32; MB],
    x: [&[Block]; MB],
    w: &[[u8; 4 * LANES]],
    first: usize,
) -> [I::I32; MB] {
    let zero = isa.splat_i32(0);
    let mut sums = Sums { x, high: [zero; MB], low, more: [zero; 2] };
    let table = isa.load_bytes(const { &splat_table(shifted::<T>()) });
    let (whole, rest) = w.as_chunks::<BLOCK_STEPS>();
    if first.is_multiple_of(BLOCK_STEPS) && rest.is_empty() {
        for (b, steps) in whole.iter().enumerate() {
            for (s, codes) in steps.iter().enumerate() {
                sums.add::<T>(isa, table, codes, (first / BLOCK_STEPS + b, s));
            }
        }
    } else {
        for (s, codes) in w.iter().enumerate() {
            let step = first + s;
            sums.add::<T>(isa, table, codes, (step / BLOCK_STEPS, step % BLOCK_STEPS));
        }
    }
    sums.total(isa)
}

/// Sums of the products with high bytes and with low bytes.
struct Sums<'a, I: Isa, const MB: usize> {
    x: [&'a [Block]; MB],
    high: [I::I32; MB],
    low: [I::I32; MB],
    /// One row leaves the multipliers waiting for its own sums, unless there are more of these.
    more: [I::I32; 2],
}

impl<I: Isa, const MB: usize> Sums<'_, I, MB> {
    /// Eight columns: a step of a block.
    #[inline(always)]
    fn add<T: IntCodes>(
        &mut self,
        isa: I,
        table: I::I32,
        codes: &[u8; 4 * LANES],
        (block, step): (usize, usize),
    ) {
        let nibble = isa.splat_i32(0x0f0f_0f0f);
        isa.prefetch(codes, AHEAD);
        let codes = isa.load_bytes(codes);
        let mut even = isa.and(codes, nibble);
        let mut odd = isa.and(isa.shr::<4>(codes), nibble);
        if const { !is_identity::<T>() } {
            even = isa.lookup(table, even);
            odd = isa.lookup(table, odd);
        }
        for m in 0..MB {
            let words = &self.x[m][block];
            let word = |idx: usize| isa.splat_i32(words[idx]);
            let (high, low) = (2 * step, TILE_BLOCK / 4 + 2 * step);
            self.high[m] = isa.dot4(self.high[m], even, word(high));
            self.low[m] = isa.dot4(self.low[m], even, word(low));
            if MB == 1 {
                self.more[0] = isa.dot4(self.more[0], odd, word(high + 1));
                self.more[1] = isa.dot4(self.more[1], odd, word(low + 1));
            } else {
                self.high[m] = isa.dot4(self.high[m], odd, word(high + 1));
                self.low[m] = isa.dot4(self.low[m], odd, word(low + 1));
            }
        }
    }

    #[inline(always)]
    fn total(self, isa: I) -> [I::I32; MB] {
        let mut sums = self.low;
        for m in 0..MB {
            sums[m] = isa.add_i32(isa.shl::<8>(self.high[m]), self.low[m]);
        }
        if MB == 1 {
            let [high, low] = self.more;
            sums[0] = isa.add_i32(sums[0], isa.add_i32(isa.shl::<8>(high), low));
        }
        sums
    }
}
