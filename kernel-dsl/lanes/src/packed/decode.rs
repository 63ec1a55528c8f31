//! Out of panels: some columns of the sixteen rows of one, a scale group at a time.

use super::{PackedWeights, Panel, is_nibbles};
use crate::isa::{Isa, LANES};
use crate::micro::code_bytes;
use std::ops::Range;
use tessera_tile_ir::format::{ScaleType, read_code};

/// How many bytes of codes ahead memory is asked for: blocks that are decoded are narrow, and the
/// next one of the same rows often follows.
const AHEAD: usize = 512;

/// Some columns of a panel that share scales.
struct Group<'a> {
    panel: Panel<'a>,
    idx: usize,
    cols: Range<usize>,
    /// Scales of the sixteen rows, if there are any.
    scales: Option<[f32; LANES]>,
}

impl PackedWeights {
    /// Decodes columns of some lanes of a panel to rows of `out`: see
    /// [`PackedWeights::decode_block`].
    #[inline(always)]
    pub(super) fn decode_lanes<I: Isa>(
        &self,
        isa: I,
        (panel, lanes): (usize, Range<usize>),
        cols: Range<usize>,
        (out, stride): (&mut [f32], usize),
    ) {
        let panel = self.panel(panel);
        let (mut at, mut idx) = (cols.start, cols.start / self.plan.group);
        while at < cols.end {
            let end = (idx + 1).saturating_mul(self.plan.group).min(cols.end);
            let scales = self.scales(isa, &panel, idx);
            let group = Group { panel, idx, cols: at..end, scales };
            for (row, lane) in lanes.clone().enumerate() {
                let out = &mut out[row * stride + at - cols.start..][..end - at];
                if is_nibbles(self.plan.format) {
                    self.decode_nibbles(isa, &group, lane, out);
                } else {
                    self.decode_codes(&group, lane, out);
                }
            }
            (at, idx) = (end, idx + 1);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(&self, isa: I, panel: &Panel<'_>, idx: usize) -> Option<[f32; LANES]> {
        let tile = self.plan.format.scale_tile?;
        let mut scales = [0.0; LANES];
        let stored = if tile.scale == ScaleType::Bf16 {
            let codes = &panel.scales.as_chunks::<{ 2 * LANES }>().0[idx];
            isa.prefetch(codes, 4 * LANES);
            isa.from_bits(isa.shl::<16>(isa.load_u16(codes)))
        } else {
            for (lane, scale) in scales.iter_mut().enumerate() {
                *scale = tile.scale.read(panel.scales, idx * LANES + lane);
            }
            isa.load(&scales)
        };
        isa.store(isa.mul(stored, isa.splat(self.tensor_scale)), &mut scales);
        Some(scales)
    }

    #[inline(always)]
    fn decode_codes(&self, group: &Group<'_>, lane: usize, out: &mut [f32]) {
        let element = self.plan.format.element;
        let bytes = code_bytes(element.bits());
        let codes = group.panel.codes.chunks_exact(bytes).skip(group.cols.start * LANES + lane);
        let values = codes.step_by(LANES).map(|code| element.decode(read_code(code, 8 * bytes, 0)));
        match group.scales {
            None => values.zip(out).for_each(|(value, out)| *out = value),
            Some(scales) => values.zip(out).for_each(|(value, out)| *out = value * scales[lane]),
        }
    }

    /// Four-bit codes: they stand for one of sixteen values where the scale is the same, and count
    /// from their zero point, if they have one, instead of from the code of zero.
    #[inline(always)]
    fn decode_nibbles<I: Isa>(&self, isa: I, group: &Group<'_>, lane: usize, out: &mut [f32]) {
        let scale = group.scales.map_or(1.0, |scales| scales[lane]);
        let zero = group.panel.zero_points.get(group.idx * LANES + lane);
        let zero = zero.map_or(0.0, |zero| f32::from(*zero) - 8.0);
        let table = isa.sub(isa.load(&self.plan.values), isa.splat(zero));
        let table = isa.mul(table, isa.splat(scale));
        let steps = group.panel.nibbles();
        let word = |step: usize| u32::from_le_bytes(steps[step].as_chunks().0[lane]);
        let (start, mut done) = (group.cols.start, 0);
        while done < out.len() {
            let (step, idx) = ((start + done) / 8, (start + done) % 8);
            if lane == 0 {
                isa.prefetch(&steps[step], AHEAD);
            }
            if idx == 0
                && let Some(out) = out[done..].first_chunk_mut()
            {
                isa.store(isa.lookup_f32(table, isa.nibbles([word(step), word(step + 1)])), out);
                done += LANES;
            } else {
                let code = word(step) >> (idx % 4 * 8 + idx / 4 * 4) & 15;
                out[done] = (self.plan.values[code as usize] - zero) * scale;
                done += 1;
            }
        }
    }
}
