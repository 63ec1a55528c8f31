//! f32 activations times weights in panels of stored floats.
#![expect(
    clippy::needless_range_loop,
    reason = "register blocks: one constant index walks several arrays, and unrolls"
)]

use super::dot::add_rows;
use super::{AHEAD, Acc, Decode, Place, Rows, block_rows, load_codes};
use crate::isa::{Isa, LANES};
use crate::packed::{Panel, Slab};
use std::ops::Range;

/// Columns that are summed before their scale is applied, where a scale spans more.
pub const FLOAT_CHUNK: usize = 256;

/// Columns of a row of decoded weights in scratch: two panels.
const STAGED: usize = 2 * LANES;

/// `acc[m][n] += sum over k of x[m][k] * w[n][k]`, for the columns `k` and rows `n` of the slab;
/// `x` begins at the first of these columns.
///
/// Without scales: one fused multiply-add a product, in the order of `k`. With scales: so in each
/// chunk, from zero, and then `acc = fma(chunk, w_scale * tensor_scale, acc)`, chunks in order. A
/// chunk ends where the scale changes and at each multiple of [`FLOAT_CHUNK`].
///
/// # Panics
/// If `x` has fewer columns than the slab, or `acc` is smaller than the rows of `x` by the panels
/// of the slab.
pub fn dot_scaled_float<I: Isa, D: Decode, S: Decode>(
    isa: I,
    x: Rows<'_>,
    w: &Slab<'_>,
    acc: &mut Acc<'_>,
) {
    let job = Job { x, w, group: w.group(), factor: w.tensor_scale() };
    isa.run(
        #[inline(always)]
        || {
            if x.rows > I::BLOCK_ROWS {
                job.staged::<I, D, S>(isa, acc);
            } else if x.rows > 0 {
                job.streamed_all::<I, D, S>(isa, acc);
            }
        },
    );
}

struct Job<'a> {
    x: Rows<'a>,
    w: &'a Slab<'a>,
    /// Columns that share a scale.
    group: usize,
    factor: f32,
}

impl<'a> Job<'a> {
    /// The chunk that begins at column `col`.
    #[inline(always)]
    fn chunk(&self, col: usize) -> Range<usize> {
        let end = (col / self.group + 1).saturating_mul(self.group);
        let end = end.min((col / FLOAT_CHUNK + 1) * FLOAT_CHUNK);
        col..end.min(self.w.cols.end)
    }

    /// Columns `cols` of row `row` of the activations.
    #[inline(always)]
    fn x_row(&self, row: usize, cols: &Range<usize>) -> &'a [f32] {
        let at = row * self.x.stride + cols.start - self.w.cols.start;
        &self.x.data[at..at + cols.len()]
    }

    #[inline(always)]
    fn scale<I: Isa, S: Decode>(&self, isa: I, w: &Panel<'_>, col: usize) -> I::F32 {
        let scale = S::decode(isa, load_codes::<I, S>(isa, w.scales, col / self.group));
        isa.mul(scale, isa.splat(self.factor))
    }

    #[inline(always)]
    fn streamed_all<I: Isa, D: Decode, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) {
        let rows = self.x.rows;
        let mut panel = 0;
        while panel < self.w.num_panels() {
            let place = Place { row: 0, rows, panel };
            panel += match block_rows::<I>(rows) {
                8 => self.streamed::<I, D, S, 8, 2>(isa, place, acc),
                4 if I::BLOCK_ROWS > 4 => self.streamed::<I, D, S, 4, 4>(isa, place, acc),
                4 => self.streamed::<I, D, S, 4, 2>(isa, place, acc),
                _ if I::BLOCK_ROWS > 1 => self.streamed::<I, D, S, 1, 4>(isa, place, acc),
                _ => self.streamed::<I, D, S, 1, 1>(isa, place, acc),
            };
        }
    }

    /// `MB` rows by `NB` panels, all columns, weights decoded as they are read.
    #[inline(always)]
    fn streamed<I: Isa, D: Decode, S: Decode, const MB: usize, const NB: usize>(
        &self,
        isa: I,
        place: Place,
        acc: &mut Acc<'_>,
    ) -> usize {
        let block = place.blocks::<MB, NB>(self.w.num_panels());
        let mut out = acc.load::<I, MB, NB>(isa, &block);
        let mut w = [self.w.panel(place.panel); NB];
        for n in 1..NB {
            w[n] = self.w.panel(block.cols[n] / LANES);
        }
        let mut col = self.w.cols.start;
        while col < self.w.cols.end {
            let cols = self.chunk(col);
            let mut x = [self.x_row(block.rows[0], &cols); MB];
            for m in 1..MB {
                x[m] = self.x_row(block.rows[m], &cols);
            }
            if S::BITS == 0 {
                add_codes::<I, D, MB, NB>(isa, x, &w, &cols, &mut out);
            } else {
                let mut sums = [[isa.splat(0.0); NB]; MB];
                add_codes::<I, D, MB, NB>(isa, x, &w, &cols, &mut sums);
                for n in 0..NB {
                    let scale = self.scale::<I, S>(isa, &w[n], col);
                    for m in 0..MB {
                        out[m][n] = isa.fma(sums[m][n], scale, out[m][n]);
                    }
                }
            }
            col = cols.end;
        }
        acc.store(isa, &block, &out);
        NB
    }

    /// All rows; each chunk of two panels is decoded once, into the nearest cache.
    #[inline(always)]
    fn staged<I: Isa, D: Decode, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) {
        let mut scratch = [0.0; FLOAT_CHUNK * STAGED];
        let count = self.w.num_panels();
        for panel in (0..count).step_by(2) {
            let panels = [self.w.panel(panel), self.w.panel((panel + 1).min(count - 1))];
            let mut col = self.w.cols.start;
            while col < self.w.cols.end {
                let cols = self.chunk(col);
                decode_chunk::<I, D>(isa, &panels, &cols, &mut scratch);
                let b = Rows { data: &scratch, stride: STAGED, rows: cols.len() };
                let scales = [
                    self.scale::<I, S>(isa, &panels[0], col),
                    self.scale::<I, S>(isa, &panels[1], col),
                ];
                col = cols.end;
                let chunk = Chunk { b, scales, cols };
                let mut row = 0;
                while row < self.x.rows {
                    let place = Place { row, rows: self.x.rows, panel };
                    row += match block_rows::<I>(self.x.rows - row) {
                        8 => self.staged_block::<I, S, 8>(isa, place, &chunk, acc),
                        4 => self.staged_block::<I, S, 4>(isa, place, &chunk, acc),
                        _ => self.staged_block::<I, S, 1>(isa, place, &chunk, acc),
                    };
                }
            }
        }
    }

    #[inline(always)]
    fn staged_block<I: Isa, S: Decode, const MB: usize>(
        &self,
        isa: I,
        place: Place,
        chunk: &Chunk<'_, I::F32>,
        acc: &mut Acc<'_>,
    ) -> usize {
        let block = place.blocks::<MB, 2>(self.w.num_panels());
        let mut x = [self.x_row(block.rows[0], &chunk.cols); MB];
        for m in 1..MB {
            x[m] = self.x_row(block.rows[m], &chunk.cols);
        }
        let mut out = acc.load::<I, MB, 2>(isa, &block);
        if S::BITS == 0 {
            add_rows(isa, x, chunk.b, 0, &mut out);
        } else {
            let mut sums = [[isa.splat(0.0); 2]; MB];
            add_rows(isa, x, chunk.b, 0, &mut sums);
            for m in 0..MB {
                for n in 0..2 {
                    out[m][n] = isa.fma(sums[m][n], chunk.scales[n], out[m][n]);
                }
            }
        }
        acc.store(isa, &block, &out);
        MB
    }
}

/// A decoded chunk of two panels.
struct Chunk<'a, V> {
    b: Rows<'a>,
    scales: [V; 2],
    cols: Range<usize>,
}

/// Columns `cols` of the codes of a panel.
#[inline(always)]
fn chunk_codes<'a, D: Decode>(panel: &Panel<'a>, cols: &Range<usize>) -> &'a [u8] {
    let bytes = LANES * code_bytes(D::BITS);
    &panel.codes[cols.start * bytes..cols.end * bytes]
}

/// Bytes that a packed code takes.
pub(crate) const fn code_bytes(bits: usize) -> usize {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        _ => 4,
    }
}

#[inline(always)]
fn add_codes<I: Isa, D: Decode, const MB: usize, const NB: usize>(
    isa: I,
    x: [&[f32]; MB],
    w: &[Panel<'_>; NB],
    cols: &Range<usize>,
    sums: &mut [[I::F32; NB]; MB],
) {
    let len = cols.len();
    let mut rows = [&x[0][..len]; MB];
    for m in 1..MB {
        rows[m] = &x[m][..len];
    }
    let mut codes = [chunk_codes::<D>(&w[0], cols); NB];
    for n in 1..NB {
        codes[n] = chunk_codes::<D>(&w[n], cols);
    }
    let mut out = *sums;
    for k in 0..len {
        let mut right = [isa.splat(0.0); NB];
        for n in 0..NB {
            let at = k * LANES * code_bytes(D::BITS);
            if at.is_multiple_of(64) {
                isa.prefetch(&codes[n][at], AHEAD);
            }
            right[n] = D::decode(isa, load_codes::<I, D>(isa, codes[n], k));
        }
        for m in 0..MB {
            let left = isa.splat(rows[m][k]);
            for n in 0..NB {
                out[m][n] = isa.fma(left, right[n], out[m][n]);
            }
        }
    }
    *sums = out;
}

#[inline(always)]
fn decode_chunk<I: Isa, D: Decode>(
    isa: I,
    panels: &[Panel<'_>; 2],
    cols: &Range<usize>,
    out: &mut [f32; FLOAT_CHUNK * STAGED],
) {
    let (out, _) = out.as_chunks_mut::<STAGED>();
    let codes = [chunk_codes::<D>(&panels[0], cols), chunk_codes::<D>(&panels[1], cols)];
    for (k, out) in out.iter_mut().enumerate().take(cols.len()) {
        let (halves, _) = out.as_chunks_mut::<LANES>();
        for n in 0..2 {
            isa.store(D::decode(isa, load_codes::<I, D>(isa, codes[n], k)), &mut halves[n]);
        }
    }
}
