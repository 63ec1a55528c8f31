//! The products of [`super::integer`], many rows at a time, by a unit that multiplies tiles of
//! bytes. The integers are the same ones, and so are the bits of the outputs.

use super::integer::{IntCodes, Job};
use super::{AHEAD, Acc, Decode, load_codes};
use crate::isa::{
    ByteTiles, Isa, LANES, TILE_BLOCK, TILE_GROUPS, TILE_ROWS, TileOperands, splat_table,
};
use std::ops::Range;

/// Fewer rows are faster by vectors: a tile takes the same time for one row as for eight.
const LEAST_ROWS: usize = 5;

/// Panels that meet the scales of a tile's rows, which are gathered once for them.
const PANELS: usize = 2;

/// Eight groups of a panel: codes as signed bytes, and scales.
#[repr(align(64))]
struct Chunk {
    codes: [[[u8; 4 * LANES]; TILE_BLOCK / 4]; TILE_GROUPS],
    scales: [[f32; LANES]; TILE_GROUPS],
}

impl Job<'_> {
    /// The groups that tiles multiply: as many as make whole chunks of one block a group. None
    /// where the CPU has no tiles, or vectors are as fast.
    #[inline(always)]
    pub(super) fn tiled<I: Isa, T: IntCodes, S: Decode>(
        &self,
        isa: I,
        acc: &mut Acc<'_>,
    ) -> Range<usize> {
        let (all, start) = (self.x.rows(), self.groups.start);
        let chunks = self.groups.len() / TILE_GROUPS;
        let fits = self.x.group == TILE_BLOCK && self.x.cols.is_multiple_of(TILE_BLOCK);
        if all < LEAST_ROWS || !fits || chunks == 0 || self.w.has_zero_points() {
            return start..start;
        }
        let rows = all.div_ceil(all.div_ceil(TILE_ROWS));
        let Some(mut tiles) = isa.tiles(rows) else { return start..start };
        let mut decoded: [Chunk; PANELS] = std::array::from_fn(|_| Chunk {
            codes: [[[0; 4 * LANES]; TILE_BLOCK / 4]; TILE_GROUPS],
            scales: [[0.0; LANES]; TILE_GROUPS],
        });
        for first_panel in (0..self.w.num_panels()).step_by(PANELS) {
            let panels = first_panel..(first_panel + PANELS).min(self.w.num_panels());
            for chunk in 0..chunks {
                let group = start + chunk * TILE_GROUPS;
                for (panel, chunk) in panels.clone().zip(&mut decoded) {
                    self.decode::<I, T, S>(isa, panel, group, chunk);
                }
                for new in (0..all).step_by(rows) {
                    // The last tile may begin with rows that are there already.
                    let first = new.min(all - rows);
                    let x_scales = self.x_scales(first..first + rows, group);
                    let left = first * self.shape.stride + group * TILE_BLOCK / 2;
                    for (panel, chunk) in panels.clone().zip(&decoded) {
                        let operands = TileOperands {
                            left: &self.x.words[left..],
                            stride: self.shape.stride,
                            x_scales: &x_scales,
                            right: &chunk.codes,
                            w_scales: &chunk.scales,
                            soon: self.codes(panel, group).as_ptr().wrapping_byte_add(AHEAD).cast(),
                        };
                        let (data, stride) = (&mut *acc.data, acc.stride);
                        let at = move |row: usize| row * stride + panel * LANES;
                        if new == first && rows.is_multiple_of(8) {
                            tiles.add_groups(&operands, &mut data[at(first)..], stride);
                            continue;
                        }
                        // Neither rows that there are not nor those that are done may change.
                        let mut totals = [[0.0; LANES]; TILE_ROWS];
                        for (row, total) in (first..first + rows).zip(&mut totals) {
                            *total = data[at(row)..at(row) + LANES].as_chunks().0[0];
                        }
                        tiles.add_groups(&operands, totals.as_flattened_mut(), LANES);
                        for (row, total) in (first..first + rows).zip(&totals) {
                            if row >= new {
                                data[at(row)..at(row) + LANES].copy_from_slice(total);
                            }
                        }
                    }
                }
            }
        }
        start..start + chunks * TILE_GROUPS
    }

    /// Codes of a panel as signed bytes, and what scales them, from group `first` on.
    #[inline(always)]
    fn decode<I: Isa, T: IntCodes, S: Decode>(
        &self,
        isa: I,
        panel: usize,
        first: usize,
        chunk: &mut Chunk,
    ) {
        let w = self.w.panel(panel);
        let table = isa.load_bytes(const { &splat_table(signed::<T>()) });
        let nibble = isa.splat_i32(0x0f0f_0f0f);
        let codes = self.codes(panel, first);
        let (out, _) = chunk.codes.as_flattened_mut().as_chunks_mut::<2>();
        for (codes, [even, odd]) in codes.iter().zip(out) {
            let codes = isa.load_bytes(codes);
            isa.store_bytes(isa.lookup(table, isa.and(codes, nibble)), even);
            isa.store_bytes(isa.lookup(table, isa.and(isa.shr::<4>(codes), nibble)), odd);
        }
        for (group, scale) in (first..).zip(&mut chunk.scales) {
            let decoded = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
            isa.store(isa.mul(decoded, isa.splat(self.factor)), scale);
        }
    }

    /// Codes of eight groups of a panel, from group `first` on.
    #[inline(always)]
    fn codes(&self, panel: usize, first: usize) -> &[[u8; 4 * LANES]] {
        let steps = TILE_BLOCK / 8;
        &self.w.panel(panel).nibbles()[first * steps..(first + TILE_GROUPS) * steps]
    }

    /// Scales of eight groups of some rows.
    #[inline(always)]
    fn x_scales(&self, rows: Range<usize>, first: usize) -> [[f32; TILE_GROUPS]; TILE_ROWS] {
        let mut scales = [[0.0; TILE_GROUPS]; TILE_ROWS];
        for (row, scales) in rows.zip(&mut scales) {
            let bits = &self.x.row(&self.shape, row).scales[first..first + TILE_GROUPS];
            for (scale, bits) in scales.iter_mut().zip(bits) {
                *scale = f32::from_bits(bits.cast_unsigned());
            }
        }
        scales
    }
}

/// The integers of the codes, as bytes.
const fn signed<T: IntCodes>() -> [u8; 16] {
    let mut signed = [0; 16];
    let mut code = 0;
    while code < 16 {
        signed[code] = T::TABLE[code].cast_unsigned();
        code += 1;
    }
    signed
}
