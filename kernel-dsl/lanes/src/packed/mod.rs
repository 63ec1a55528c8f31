//! Weights as the micro-kernels read them: panels of sixteen rows, packed once when a weight is
//! loaded. What a row or column means, and which kernel reads it, is not known here.

mod decode;
mod pack;
#[cfg(test)]
mod tests;

use crate::isa::{Isa, LANES};
use crate::memory::{ALIGN, Arena, HugeBuffer, MemoryError};
use crate::micro::code_bytes;
use std::ops::Range;
use tessera_tile_ir::format::Format;

/// Largest scale group along a row for formats whose codes multiply as integers.
pub const MAX_INT_GROUP: usize = 4096;

/// A `[rows, cols]` weight as a checkpoint stores it, row-major:
///
/// ```text
/// codes        element (r, c) of b bits at bit c * b of row r, little endian; rows are padded to
///              whole bytes
/// scales       tile (i, j) at index i * tiles_across + j, little endian, in the scale type
/// zero_points  one u8 a tile, in the same order
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WeightParts<'a> {
    /// How to read the rest.
    pub format: &'static Format,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// Stored elements.
    pub codes: &'a [u8],
    /// Stored scales; empty where the format has none.
    pub scales: &'a [u8],
    /// Zero points; empty where the format has none.
    pub zero_points: &'a [u8],
    /// Scale of the whole tensor; 1 where the format has none.
    pub tensor_scale: f32,
}

/// Why a weight cannot be packed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum PackError {
    #[error("{format} [{rows}, {cols}]: {part} has {got} bytes, needs {want}")]
    Bytes {
        format: &'static str,
        rows: usize,
        cols: usize,
        part: &'static str,
        got: usize,
        want: usize,
    },
    #[error(
        "{format}: {group} columns share a scale, packed integer codes want a multiple of 8 \
         up to {MAX_INT_GROUP}"
    )]
    Group { format: &'static str, group: usize },
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A weight in panels of sixteen rows, each contiguous; rows beyond the last stand for zeros.
///
/// ```text
/// panel p, rows 16 p .. 16 p + 16, three parts, each padded to 64 bytes:
///   scales              for each group of columns the stored scales of sixteen rows
///   zero points         for each group of columns sixteen bytes, if the format has them
///   codes of 4 bits     64 bytes for each 8 columns from k: row r has bytes 4 r .. 4 r + 4, byte j
///                       of these is code(k + j) | code(k + 4 + j) << 4
///   codes of more bits  for each column the codes of sixteen rows, 1, 2 or 4 bytes each
/// ```
///
/// Scales come first, so that what asks for codes ahead has asked for them, too.
#[derive(Debug)]
pub struct PackedWeights {
    plan: Plan,
    tensor_scale: f32,
    data: HugeBuffer,
}

/// Where everything is in a panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) format: &'static Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Columns that share a scale.
    pub(crate) group: usize,
    /// Bytes of a stored scale; 0 if there are none.
    pub(crate) scale_bytes: usize,
    /// What codes of four bits stand for.
    values: [f32; LANES],
    /// Offset of the zero points, which follow the scales.
    zero_points: usize,
    /// Offset of the codes.
    codes: usize,
    /// Bytes of a panel.
    pub(crate) bytes: usize,
}

impl Plan {
    fn new(format: &'static Format, rows: usize, cols: usize) -> Result<Self, PackError> {
        let whole = cols.max(1);
        let group = format.scale_tile.map_or(whole, |tile| tile.cols.min(whole));
        let nibbles = is_nibbles(format);
        if nibbles && (group > MAX_INT_GROUP || group < cols && !group.is_multiple_of(8)) {
            return Err(PackError::Group { format: format.name, group });
        }
        let groups = cols.div_ceil(group);
        let mut values = [0.0; LANES];
        for (code, value) in (0..).zip(&mut values) {
            *value = format.element.decode(code);
        }
        let scale_bytes = format.scale_tile.map_or(0, |tile| tile.scale.bytes());
        let zero_bytes = usize::from(format.zero_point);
        let code_part = if nibbles {
            cols.div_ceil(8) * 4 * LANES
        } else {
            cols * code_bytes(format.element.bits()) * LANES
        };
        let zero_points = (groups * scale_bytes * LANES).next_multiple_of(ALIGN);
        let codes = zero_points + (groups * zero_bytes * LANES).next_multiple_of(ALIGN);
        let bytes = codes + code_part.next_multiple_of(ALIGN);
        Ok(Self { format, rows, cols, group, scale_bytes, values, zero_points, codes, bytes })
    }

    pub(crate) const fn groups(&self) -> usize {
        self.cols.div_ceil(self.group)
    }

    const fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }
}

/// Whether codes are four-bit ones that multiply as integers.
pub(crate) const fn is_nibbles(format: &Format) -> bool {
    format.element.bits() == 4
}

/// One panel, its parts apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub(crate) codes: &'a [u8],
    pub(crate) scales: &'a [u8],
    pub(crate) zero_points: &'a [u8],
}

impl<'a> Panel<'a> {
    /// Codes of formats of four bits, eight columns at a time.
    #[inline(always)]
    pub(crate) const fn nibbles(&self) -> &'a [[u8; 4 * LANES]] {
        self.codes.as_chunks().0
    }
}

impl PackedWeights {
    /// Packs a weight.
    ///
    /// # Errors
    /// [`PackError`] if a part has the wrong size, the groups of the format do not fit the panels,
    /// or there is no memory.
    pub fn pack(parts: &WeightParts<'_>, arena: &Arena) -> Result<Self, PackError> {
        Self::pack_by(parts, arena, |data, panel_bytes, pack_panel| {
            for (idx, panel) in data.chunks_mut(panel_bytes).enumerate() {
                pack_panel(idx, panel);
            }
        })
    }

    /// Packs a weight in parallel: `run` gets all bytes, the bytes of a panel, and what packs one
    /// panel, by its index, into its bytes; it must do so for each.
    ///
    /// # Errors
    /// As [`PackedWeights::pack`].
    pub fn pack_by(
        parts: &WeightParts<'_>,
        arena: &Arena,
        run: impl FnOnce(&mut [u8], usize, &(dyn Fn(usize, &mut [u8]) + Sync)),
    ) -> Result<Self, PackError> {
        parts.check()?;
        let plan = Plan::new(parts.format, parts.rows, parts.cols)?;
        let mut data = arena.take((plan.panels() * plan.bytes).max(ALIGN))?;
        if plan.panels() * plan.bytes > 0 {
            let bytes = &mut data[..plan.panels() * plan.bytes];
            run(bytes, plan.bytes, &|idx, panel| pack::pack_panel(&plan, parts, idx, panel));
        }
        Ok(Self { plan, tensor_scale: parts.tensor_scale, data })
    }

    /// A copy of some rows, if they begin with a panel.
    ///
    /// # Errors
    /// [`PackError::Memory`] if there is no memory.
    pub fn copy_rows(&self, rows: Range<usize>, arena: &Arena) -> Result<Option<Self>, PackError> {
        if !rows.start.is_multiple_of(LANES) || rows.end > self.plan.rows {
            return Ok(None);
        }
        let plan = Plan { rows: rows.len(), ..self.plan };
        let mut data = arena.take((plan.panels() * plan.bytes).max(ALIGN))?;
        let len = plan.panels() * plan.bytes;
        data[..len].copy_from_slice(&self.data[rows.start / LANES * plan.bytes..][..len]);
        Ok(Some(Self { plan, tensor_scale: self.tensor_scale, data }))
    }

    /// How it was stored.
    pub const fn format(&self) -> &'static Format {
        self.plan.format
    }

    /// Output features.
    pub const fn rows(&self) -> usize {
        self.plan.rows
    }

    /// Input features.
    pub const fn cols(&self) -> usize {
        self.plan.cols
    }

    /// Bytes held, padding included.
    pub const fn num_bytes(&self) -> usize {
        self.plan.panels() * self.plan.bytes
    }

    /// Rows `rows` by columns `cols`, for a micro-kernel; what lies beyond the weight is left out.
    ///
    /// # Panics
    /// If the first row is not a multiple of sixteen.
    #[inline]
    pub fn slab(&self, rows: Range<usize>, cols: Range<usize>) -> Slab<'_> {
        assert!(rows.start.is_multiple_of(LANES), "a slab begins with a panel");
        let panels = self.plan.panels();
        let first = (rows.start / LANES).min(panels);
        let end = rows.end.div_ceil(LANES).clamp(first, panels);
        let cols = cols.start.min(self.plan.cols)..cols.end.min(self.plan.cols);
        Slab { weights: self, panels: first..end, cols }
    }

    /// Decodes columns `cols` of each of `rows` into a row of `out`, `stride` apart; zeros where
    /// there is no such row or column. Bit for bit what the stored weight decodes to.
    ///
    /// # Panics
    /// If `out` is too small.
    #[inline(always)]
    pub fn decode_block<I: Isa>(
        &self,
        isa: I,
        [rows, cols]: [Range<usize>; 2],
        out: &mut [f32],
        stride: usize,
    ) {
        let there = [rows.end.min(self.plan.rows), cols.end.min(self.plan.cols)];
        let width = there[1].saturating_sub(cols.start);
        for (i, row) in rows.clone().enumerate() {
            let filled = if row < there[0] { width } else { 0 };
            out[i * stride..][filled..cols.len()].fill(0.0);
        }
        let mut row = rows.start;
        while row < there[0] {
            let (panel, lane) = (row / LANES, row % LANES);
            let lanes = lane..LANES.min(lane + there[0] - row);
            let next = row + lanes.len();
            let out = (&mut out[(row - rows.start) * stride..], stride);
            self.decode_lanes(isa, (panel, lanes), cols.start..there[1], out);
            row = next;
        }
    }

    #[inline]
    fn panel(&self, idx: usize) -> Panel<'_> {
        let plan = &self.plan;
        let panel = &self.data[idx * plan.bytes..(idx + 1) * plan.bytes];
        let groups = plan.groups() * LANES;
        Panel {
            codes: &panel[plan.codes..],
            scales: &panel[..groups * plan.scale_bytes],
            zero_points: &panel[plan.zero_points..][..groups * usize::from(plan.format.zero_point)],
        }
    }
}

/// Part of a weight: some of its panels, some of its columns.
#[derive(Debug, Clone)]
pub struct Slab<'a> {
    weights: &'a PackedWeights,
    panels: Range<usize>,
    pub(crate) cols: Range<usize>,
}

impl<'a> Slab<'a> {
    /// Number of panels.
    #[inline]
    pub fn num_panels(&self) -> usize {
        self.panels.len()
    }

    #[inline(always)]
    pub(crate) fn panel(&self, idx: usize) -> Panel<'a> {
        self.weights.panel(self.panels.start + idx)
    }

    /// Bytes from a panel to the next.
    #[inline(always)]
    pub(crate) const fn panel_bytes(&self) -> usize {
        self.weights.plan.bytes
    }

    #[inline(always)]
    pub(crate) const fn group(&self) -> usize {
        self.weights.plan.group
    }

    #[inline(always)]
    pub(crate) const fn has_zero_points(&self) -> bool {
        self.weights.plan.format.zero_point
    }

    #[inline(always)]
    pub(crate) const fn tensor_scale(&self) -> f32 {
        self.weights.tensor_scale
    }

    /// The scale groups of the columns, for activations of this width and grouping.
    #[inline(always)]
    pub(crate) fn whole_groups(&self, x_cols: usize, x_group: usize) -> Range<usize> {
        let (cols, group) = (self.weights.plan.cols, self.group());
        assert_eq!(x_cols, cols, "activations are as wide as the weight");
        assert_eq!(x_group.min(cols.max(1)), group, "activations share scales as the weight does");
        let whole = |col: usize| col.is_multiple_of(group) || col == cols;
        assert!(whole(self.cols.start) && whole(self.cols.end), "columns are whole scale groups");
        self.cols.start.div_ceil(group)..self.cols.end.div_ceil(group)
    }
}
