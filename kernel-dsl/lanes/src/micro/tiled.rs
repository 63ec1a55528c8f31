//! The products of [`super::integer`], many rows at a time, by a unit that multiplies tiles. The
//! sums are the same integers, and so are the bits of the outputs.

use super::activations::LEAST_TILE_ROWS;
use super::integer::{IntCodes, Job};
use super::{AHEAD, Acc, Decode, load_codes};
use crate::isa::{
    Isa, LANES, TILE_BLOCK, TILE_GROUPS, TILE_PANELS, TILE_ROWS, TileCodes, TileNibbles,
    TileOperands, TileTotals, Tiles,
};

/// Scales of some groups of the panels of a step.
type Scales = [[[f32; LANES]; TILE_GROUPS]; TILE_PANELS];

/// Some groups of the panels of a step.
#[repr(align(64))]
struct Weights {
    codes: [TileCodes; TILE_PANELS],
    /// Those of the groups before are needed until their sums are added.
    scales: [Scales; 2],
    /// Which of them is of these groups.
    turn: usize,
}

/// A step whose sums are not added yet.
#[derive(Clone, Copy)]
struct Step<'a> {
    /// First panel, and how many.
    panels: (usize, usize),
    /// First row, and how many.
    rows: (usize, usize),
    /// The first row that is not done yet.
    new: usize,
    /// Which scales of the weights.
    turn: usize,
    /// Bits of the scales of its groups, from its first row on.
    x_scales: &'a [i32],
}

impl Job<'_> {
    /// Multiplies by tiles as many groups as make whole steps, and says which is the first that is
    /// left: all are, where the CPU has no tiles or vectors are as fast.
    #[inline(always)]
    pub(super) fn tiled<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) -> usize {
        let (all, start) = (self.x.rows(), self.groups.start);
        let end = start + self.groups.len() / TILE_GROUPS * TILE_GROUPS;
        let Some(first_block) = self.shape.tiles else { return start };
        if all < LEAST_TILE_ROWS || end == start || self.w.has_zero_points() {
            return start;
        }
        // Whole multiples of eight rows are multiplied where they lie.
        let rows = all.div_ceil(all.div_ceil(TILE_ROWS)).next_multiple_of(8).min(all);
        let Some(mut tiles) = isa.tiles(rows) else { return start };
        let mut weights = Weights {
            codes: [[[[0; 2 * LANES]; TILE_BLOCK / 2]; TILE_GROUPS]; TILE_PANELS],
            scales: [[[[0.0; LANES]; TILE_GROUPS]; TILE_PANELS]; 2],
            turn: 0,
        };
        let mut last = None;
        for first_panel in (0..self.w.num_panels()).step_by(TILE_PANELS) {
            let panels = (first_panel, TILE_PANELS.min(self.w.num_panels() - first_panel));
            for group in (start..end).step_by(TILE_GROUPS) {
                self.decode::<I, T, S>(isa, &tiles, (panels, group), &mut weights);
                let soon = self.soon(panels, group);
                for new in (0..all).step_by(rows) {
                    // The last tile may begin with rows that are there already.
                    let first = new.min(all - rows);
                    let row = &self.x.words[first * self.shape.stride..];
                    let operands = TileOperands {
                        left: &row[first_block + group * TILE_BLOCK..],
                        stride: self.shape.stride,
                        right: &weights.codes,
                        soon,
                    };
                    self.step(&mut tiles, Some(&operands), (last, &weights), acc);
                    let x_scales = &row[self.shape.scales + group..];
                    last = Some(Step {
                        panels,
                        rows: (first, rows),
                        new,
                        turn: weights.turn,
                        x_scales,
                    });
                }
            }
        }
        self.step(&mut tiles, None, (last, &weights), acc);
        end
    }

    /// Codes of groups from `group` of some panels as bfloat16, and what scales them.
    #[inline(always)]
    fn decode<I: Isa, T: IntCodes, S: Decode>(
        &self,
        isa: I,
        tiles: &I::Tiles,
        (panels, group): ((usize, usize), usize),
        out: &mut Weights,
    ) {
        out.turn = 1 - out.turn;
        let outs = out.codes.iter_mut().zip(&mut out.scales[out.turn]);
        for (panel, (codes, scales)) in (panels.0..panels.0 + panels.1).zip(outs) {
            tiles.decode(self.nibbles(panel, group), const { &bfloats::<T>() }, codes);
            let w = self.w.panel(panel);
            for (group, scale) in (group..).zip(scales) {
                let decoded = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
                isa.store(isa.mul(decoded, isa.splat(self.factor)), scale);
            }
        }
    }

    /// Codes of groups from `group` of a panel.
    #[inline(always)]
    fn nibbles(&self, panel: usize, group: usize) -> &TileNibbles {
        let steps = &self.w.panel(panel).nibbles()[group * TILE_BLOCK / 8..];
        steps.first_chunk().expect("whole groups of a panel")
    }

    /// What will be read of the panels soon: once they are done, that is those which follow all of
    /// them.
    #[inline(always)]
    fn soon(&self, panels: (usize, usize), group: usize) -> [*const u8; TILE_PANELS] {
        let codes_left =
            size_of_val(self.w.panel(panels.0).nibbles()) - group * TILE_BLOCK / 2 * LANES;
        let others = if codes_left > AHEAD { 0 } else { self.w.panel_bytes() };
        let ahead = |panel: usize| {
            self.nibbles(panel, group).as_ptr().cast::<u8>().wrapping_add(AHEAD + others)
        };
        [ahead(panels.0), ahead(panels.0 + panels.1 - 1)]
    }

    /// Multiplies, and adds what was multiplied last to its outputs.
    #[inline(always)]
    fn step(
        &self,
        tiles: &mut impl Tiles,
        operands: Option<&TileOperands<'_>>,
        (last, weights): (Option<Step<'_>>, &Weights),
        acc: &mut Acc<'_>,
    ) {
        let Some(last) = last else { return tiles.step(operands, None) };
        let w_scales = &weights.scales[last.turn];
        let ((first, rows), (panel, panels)) = (last.rows, last.panels);
        let mut x_scales = [[0.0; TILE_GROUPS]; TILE_ROWS];
        let mut at = 0;
        for scales in &mut x_scales[..rows] {
            let bits: &[i32; TILE_GROUPS] =
                last.x_scales[at..].first_chunk().expect("groups of rows");
            *scales = bits.map(|bits| f32::from_bits(bits.cast_unsigned()));
            at += self.shape.stride;
        }
        let at = first * acc.stride + panel * LANES;
        if last.new == first && rows.is_multiple_of(8) && panels == TILE_PANELS {
            let (totals, stride) = (&mut acc.data[at..], acc.stride);
            let totals = TileTotals { w_scales, x_scales: &x_scales, totals, stride };
            return tiles.step(operands, Some(totals));
        }
        // Neither rows and panels that there are not nor those that are done may change.
        let mut totals = [[0.0; TILE_PANELS * LANES]; TILE_ROWS];
        let width = panels * LANES;
        for (row, totals) in totals[..rows].iter_mut().enumerate() {
            totals[..width].copy_from_slice(&acc.data[at + row * acc.stride..][..width]);
        }
        let (flat, stride) = (totals.as_flattened_mut(), TILE_PANELS * LANES);
        let copies = TileTotals { w_scales, x_scales: &x_scales, totals: flat, stride };
        tiles.step(operands, Some(copies));
        let skip = last.new - first;
        for (row, totals) in totals[..rows].iter().enumerate().skip(skip) {
            acc.data[at + row * acc.stride..][..width].copy_from_slice(&totals[..width]);
        }
    }
}

/// The integers of the codes as bfloat16, twice.
const fn bfloats<T: IntCodes>() -> [u16; 2 * LANES] {
    let mut values = [0; 2 * LANES];
    let mut code = 0;
    while code < values.len() {
        let integer = T::TABLE[code % 16];
        // Times 32 activations of 16 bits: below 2^24, whatever the order.
        assert!(integer.unsigned_abs() <= 16, "sums are exact in f32");
        let bits = (integer as f32).to_bits();
        assert!(bits << 16 == 0, "small integers are exact");
        values[code] = (bits >> 16) as u16;
        code += 1;
    }
    values
}
