//! Into panels, by the definition of the layout.

use super::{PackError, Plan, WeightParts, is_nibbles};
use crate::isa::LANES;
use crate::micro::code_bytes;
use tessera_tile_ir::format::read_code;

impl WeightParts<'_> {
    pub(super) fn check(&self) -> Result<(), PackError> {
        let &WeightParts { format, rows, cols, .. } = self;
        let tiles = format.tiles(rows, cols);
        let scale_bytes = format.scale_tile.map_or(0, |tile| tile.scale.bytes());
        for (part, got, want) in [
            ("codes", self.codes.len(), rows.saturating_mul(format.row_bytes(cols))),
            ("scales", self.scales.len(), tiles.saturating_mul(scale_bytes)),
            ("zero points", self.zero_points.len(), if format.zero_point { tiles } else { 0 }),
        ] {
            if got != want {
                return Err(PackError::Bytes { format: format.name, rows, cols, part, got, want });
            }
        }
        Ok(())
    }
}

/// The code that stands for zero.
fn zero_code(plan: &Plan) -> u8 {
    let element = plan.format.element;
    (0..=15u8).find(|code| element.decode(u32::from(*code)) == 0.0).unwrap_or(0)
}

/// Fills one panel, whose bytes are zero.
pub(super) fn pack_panel(plan: &Plan, parts: &WeightParts<'_>, idx: usize, panel: &mut [u8]) {
    let rows = idx * LANES..plan.rows.min((idx + 1) * LANES);
    let nibbles = is_nibbles(plan.format);
    if nibbles {
        panel[plan.codes..].fill(zero_code(plan) * 17);
    }
    let row_bytes = plan.format.row_bytes(plan.cols);
    for (lane, row) in rows.enumerate() {
        let codes = &parts.codes[row * row_bytes..][..row_bytes];
        if nibbles {
            pack_nibbles(plan, codes, lane, &mut panel[plan.codes..]);
        } else {
            pack_codes(plan, codes, lane, &mut panel[plan.codes..]);
        }
        pack_scales(plan, parts, (row, lane), panel);
    }
}

fn pack_nibbles(plan: &Plan, row: &[u8], lane: usize, out: &mut [u8]) {
    let (steps, _) = out.as_chunks_mut::<{ 4 * LANES }>();
    let last = u32::from(zero_code(plan)) * 0x1111_1111;
    for (s, (step, bytes)) in steps.iter_mut().zip(row.chunks(4)).enumerate() {
        let mut word = last.to_le_bytes();
        word[..bytes.len()].copy_from_slice(bytes);
        let mut word = u32::from_le_bytes(word);
        // The padding nibble of a row of odd length stands for zero, too.
        let left = plan.cols - 8 * s;
        if left < 8 {
            let keep = (1u32 << (4 * left)) - 1;
            word = word & keep | last & !keep;
        }
        let spread = |half: u32| {
            let half = (half | half << 8) & 0x00ff_00ff;
            (half | half << 4) & 0x0f0f_0f0f
        };
        let packed = spread(word & 0xffff) | spread(word >> 16) << 4;
        step[4 * lane..4 * lane + 4].copy_from_slice(&packed.to_le_bytes());
    }
}

fn pack_codes(plan: &Plan, row: &[u8], lane: usize, out: &mut [u8]) {
    let bits = plan.format.element.bits();
    let bytes = code_bytes(bits);
    let lanes = out.chunks_exact_mut(LANES * bytes).map(|out| &mut out[lane * bytes..][..bytes]);
    if bits == 8 * bytes {
        for (out, code) in lanes.zip(row.chunks_exact(bytes)) {
            out.copy_from_slice(code);
        }
        return;
    }
    for (idx, out) in lanes.take(plan.cols).enumerate() {
        out.copy_from_slice(&read_code(row, bits, idx).to_le_bytes()[..bytes]);
    }
}

/// Index of the stored scale of the first group of a row.
fn first_tile(plan: &Plan, row: usize) -> usize {
    plan.format.scale_tile.map_or(0, |tile| row / tile.rows * plan.groups())
}

fn pack_scales(plan: &Plan, parts: &WeightParts<'_>, (row, lane): (usize, usize), out: &mut [u8]) {
    let first = first_tile(plan, row);
    let bytes = plan.scale_bytes;
    let (scales, zero_points) = out.split_at_mut(plan.zero_points);
    for group in 0..plan.groups() {
        let at = (group * LANES + lane) * bytes;
        let from = &parts.scales[(first + group) * bytes..][..bytes];
        scales[at..at + bytes].copy_from_slice(from);
        if plan.format.zero_point {
            zero_points[group * LANES + lane] = parts.zero_points[first + group];
        }
    }
}
