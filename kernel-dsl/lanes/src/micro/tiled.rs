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

/// Groups that are multiplied where fewer are left.
const HALF: usize = TILE_GROUPS / 2;

/// Some groups of a panel: codes as signed bytes, and scales.
#[repr(align(64))]
struct Chunk {
    codes: [[[u8; 4 * LANES]; TILE_BLOCK / 4]; TILE_GROUPS],
    scales: [[f32; LANES]; TILE_GROUPS],
}

impl Job<'_> {
    /// Multiplies by tiles as many groups as make whole halves of what is multiplied at a time, and
    /// says which is the first that is left: all are, where the CPU has no tiles or vectors are as
    /// fast.
    #[inline(always)]
    pub(super) fn tiled<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) -> usize {
        let (all, start) = (self.x.rows(), self.groups.start);
        let end = start + self.groups.len() / HALF * HALF;
        let fits = self.x.group == TILE_BLOCK && self.x.cols.is_multiple_of(TILE_BLOCK);
        if all < LEAST_ROWS || !fits || end == start || self.w.has_zero_points() {
            return start;
        }
        // Whole multiples of eight rows are multiplied where they lie.
        let rows = all.div_ceil(all.div_ceil(TILE_ROWS)).next_multiple_of(8).min(all);
        let Some(mut tiles) = isa.tiles(rows) else { return start };
        let mut decoded: [Chunk; PANELS] = std::array::from_fn(|_| Chunk {
            codes: [[[0; 4 * LANES]; TILE_BLOCK / 4]; TILE_GROUPS],
            scales: [[0.0; LANES]; TILE_GROUPS],
        });
        for first_panel in (0..self.w.num_panels()).step_by(PANELS) {
            let panels = first_panel..(first_panel + PANELS).min(self.w.num_panels());
            for group in (start..end).step_by(TILE_GROUPS) {
                let groups = group..(group + TILE_GROUPS).min(end);
                for (panel, chunk) in panels.clone().zip(&mut decoded) {
                    self.decode::<I, T, S>(isa, panel, &groups, chunk);
                }
                for new in (0..all).step_by(rows) {
                    // The last tile may begin with rows that are there already.
                    let first = new.min(all - rows);
                    let x_scales = self.x_scales(first..first + rows, &groups);
                    let left = first * self.shape.stride + group * TILE_BLOCK / 2;
                    for (panel, chunk) in panels.clone().zip(&decoded) {
                        let operands = TileOperands {
                            left: &self.x.words[left..],
                            stride: self.shape.stride,
                            half: groups.len() == HALF,
                            x_scales: &x_scales,
                            right: &chunk.codes,
                            w_scales: &chunk.scales,
                            soon: self
                                .codes(panel, &groups)
                                .as_ptr()
                                .wrapping_byte_add(AHEAD)
                                .cast(),
                        };
                        let place = Place { panel, rows: first..first + rows, new };
                        add_tile(&mut tiles, &operands, &place, acc);
                    }
                }
            }
        }
        end
    }

    /// Codes of a panel as signed bytes, and what scales them.
    #[inline(always)]
    fn decode<I: Isa, T: IntCodes, S: Decode>(
        &self,
        isa: I,
        panel: usize,
        groups: &Range<usize>,
        chunk: &mut Chunk,
    ) {
        let w = self.w.panel(panel);
        let table = isa.load_bytes(const { &splat_table(signed::<T>()) });
        let nibble = isa.splat_i32(0x0f0f_0f0f);
        let codes = self.codes(panel, groups);
        let (out, _) = chunk.codes.as_flattened_mut().as_chunks_mut::<2>();
        for (codes, [even, odd]) in codes.iter().zip(out) {
            let codes = isa.load_bytes(codes);
            isa.store_bytes(isa.lookup(table, isa.and(codes, nibble)), even);
            isa.store_bytes(isa.lookup(table, isa.and(isa.shr::<4>(codes), nibble)), odd);
        }
        for (group, scale) in groups.clone().zip(&mut chunk.scales) {
            let decoded = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
            isa.store(isa.mul(decoded, isa.splat(self.factor)), scale);
        }
    }

    /// Codes of some groups of a panel.
    #[inline(always)]
    fn codes(&self, panel: usize, groups: &Range<usize>) -> &[[u8; 4 * LANES]] {
        let steps = TILE_BLOCK / 8;
        &self.w.panel(panel).nibbles()[groups.start * steps..groups.end * steps]
    }

    /// Scales of some groups of some rows.
    #[inline(always)]
    fn x_scales(
        &self,
        rows: Range<usize>,
        groups: &Range<usize>,
    ) -> [[f32; TILE_GROUPS]; TILE_ROWS] {
        let mut scales = [[0.0; TILE_GROUPS]; TILE_ROWS];
        for (row, scales) in rows.zip(&mut scales) {
            let bits = &self.x.row(&self.shape, row).scales[groups.clone()];
            for (scale, bits) in scales.iter_mut().zip(bits) {
                *scale = f32::from_bits(bits.cast_unsigned());
            }
        }
        scales
    }
}

/// One tile of rows of one panel, and the first that is not done yet.
struct Place {
    panel: usize,
    rows: Range<usize>,
    new: usize,
}

/// Adds to the outputs of a tile.
#[inline(always)]
fn add_tile(
    tiles: &mut impl ByteTiles,
    operands: &TileOperands<'_>,
    place: &Place,
    acc: &mut Acc<'_>,
) {
    let Place { panel, rows, new } = place;
    let (data, stride) = (&mut *acc.data, acc.stride);
    let at = move |row: usize| row * stride + panel * LANES;
    if *new == rows.start && rows.len().is_multiple_of(8) {
        tiles.add_groups(operands, &mut data[at(rows.start)..], stride);
        return;
    }
    // Neither rows that there are not nor those that are done may change.
    let mut totals = [[0.0; LANES]; TILE_ROWS];
    for (row, total) in rows.clone().zip(&mut totals) {
        *total = data[at(row)..at(row) + LANES].as_chunks().0[0];
    }
    tiles.add_groups(operands, totals.as_flattened_mut(), LANES);
    for (row, total) in rows.clone().zip(&totals) {
        if row >= *new {
            data[at(row)..at(row) + LANES].copy_from_slice(total);
        }
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
