//! Activations in [`A16Rows`] times four-bit weights whose codes are small integers.
#![expect(
    clippy::needless_range_loop,
    reason = "register blocks: one constant index walks several arrays, and unrolls"
)]

use super::{A16Rows, Acc, Decode, Place, block_rows, load_codes};
use crate::isa::{Isa, LANES};
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
    let groups = w.whole_groups(x.cols, x.group);
    let job = Job { x, w, groups, factor: w.tensor_scale() * T::UNIT };
    isa.run(
        #[inline(always)]
        || job.all::<I, T, S>(isa, acc),
    );
}

/// Columns of eight rows of activations, two bytes each, that leave room for weights in the nearest
/// cache.
const CACHED_COLS: usize = 1024;

struct Job<'a> {
    x: A16Rows<'a>,
    w: &'a Slab<'a>,
    groups: std::ops::Range<usize>,
    /// Tensor scale and unit of the codes.
    factor: f32,
}

impl Job<'_> {
    #[inline(always)]
    fn all<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) {
        let rows = self.x.rows();
        if rows <= 8 {
            self.panels::<I, T, S>(isa, rows, acc);
            return;
        }
        // Many rows do not fit the nearest cache: they are taken a part of their columns at a time.
        // Few would gain less from that than weights lose which are not read from end to end.
        let step = (CACHED_COLS / self.x.group).max(1);
        for start in self.groups.clone().step_by(step) {
            let groups = start..(start + step).min(self.groups.end);
            Job { groups, ..*self }.panels::<I, T, S>(isa, rows, acc);
        }
    }

    #[inline(always)]
    fn panels<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, rows: usize, acc: &mut Acc<'_>) {
        for panel in 0..self.w.num_panels() {
            let mut row = 0;
            while row < rows {
                let place = Place { row, rows, panel };
                row += match block_rows::<I>(rows - row) {
                    8 => self.block::<I, T, S, 8>(isa, place, acc),
                    4 => self.block::<I, T, S, 4>(isa, place, acc),
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
        let mut x = [self.x.row(places.rows[0]); MB];
        for m in 1..MB {
            x[m] = self.x.row(places.rows[m]);
        }
        let w = self.w.panel(place.panel);
        let (w_steps, zero_points) = (w.nibbles(), w.zero_points.as_chunks::<LANES>().0);
        let (all_steps, all_groups) = (w_steps.len(), x[0].1.len());
        let mut x_steps = [&x[0].0[..all_steps]; MB];
        let mut metas = [&x[0].1[..all_groups]; MB];
        for m in 1..MB {
            x_steps[m] = &x[m].0[..all_steps];
            metas[m] = &x[m].1[..all_groups];
        }
        let group_steps = self.x.group.div_ceil(8).max(1);
        for group in self.groups.start..self.groups.end.min(all_groups) {
            let steps = group * group_steps..((group + 1) * group_steps).min(all_steps);
            let zero_points = zero_points.get(group);
            // What the offset of the codes adds to the sums is taken away before, as a scalar.
            let mut start = [isa.splat_i32(0); MB];
            for m in 0..MB {
                let offset = if zero_points.is_some() { 0 } else { i32::from(T::OFFSET) };
                start[m] = isa.splat_i32(-(metas[m][group][1] * offset));
            }
            let mut sums =
                group_sums::<I, T, MB>(isa, start, x_steps, &w_steps[steps.clone()], steps.start);
            if let Some(zero_points) = zero_points {
                let zero_points = isa.load_u8(zero_points);
                for m in 0..MB {
                    let offset = isa.mul_i32(zero_points, isa.splat_i32(metas[m][group][1]));
                    sums[m] = isa.sub_i32(sums[m], offset);
                }
            }
            let scale = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
            let scale = isa.mul(scale, isa.splat(self.factor));
            for m in 0..MB {
                let x_scale = isa.splat(f32::from_bits(metas[m][group][0].cast_unsigned()));
                out[m][0] = isa.fma(isa.to_f32(sums[m]), isa.mul(x_scale, scale), out[m][0]);
            }
        }
        acc.store(isa, &places, &out);
        MB
    }
}

/// `low` plus the products of the shifted codes of one group, which begins at step `first` of `x`:
/// exact but for multiples of 2^32.
#[inline(always)]
fn group_sums<I: Isa, T: IntCodes, const MB: usize>(
    isa: I,
    mut low: [I::I32; MB],
    x: [&[[i32; 4]]; MB],
    w: &[[u8; 4 * LANES]],
    first: usize,
) -> [I::I32; MB] {
    let zero = isa.splat_i32(0);
    let mut high = [zero; MB];
    // One row leaves the multipliers waiting for its own sums, unless there are more of these.
    let (mut more_high, mut more_low) = (zero, zero);
    let table = isa.splat_table(&const { shifted::<T>() });
    let nibble = isa.splat_i32(0x0f0f_0f0f);
    for (s, codes) in w.iter().enumerate() {
        let codes = isa.load_bytes(codes);
        let mut even = isa.and(codes, nibble);
        let mut odd = isa.and(isa.shr::<4>(codes), nibble);
        if const { !is_identity::<T>() } {
            even = isa.lookup(table, even);
            odd = isa.lookup(table, odd);
        }
        for m in 0..MB {
            let words = &x[m][first + s];
            high[m] = isa.dot4(high[m], even, isa.splat_i32(words[0]));
            low[m] = isa.dot4(low[m], even, isa.splat_i32(words[2]));
            if MB == 1 {
                more_high = isa.dot4(more_high, odd, isa.splat_i32(words[1]));
                more_low = isa.dot4(more_low, odd, isa.splat_i32(words[3]));
            } else {
                high[m] = isa.dot4(high[m], odd, isa.splat_i32(words[1]));
                low[m] = isa.dot4(low[m], odd, isa.splat_i32(words[3]));
            }
        }
    }
    let mut sums = [zero; MB];
    for m in 0..MB {
        sums[m] = isa.add_i32(isa.shl::<8>(high[m]), low[m]);
    }
    if MB == 1 {
        sums[0] = isa.add_i32(sums[0], isa.add_i32(isa.shl::<8>(more_high), more_low));
    }
    sums
}
