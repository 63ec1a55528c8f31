//! The products of [`super::integer`], many rows at a time, by a unit that multiplies tiles of
//! bytes. The integers are the same ones, and so are the bits of the outputs.

use super::integer::{IntCodes, Job, shifted};
use super::{AHEAD, Acc, Decode, load_codes};
use crate::isa::{
    ByteTiles, Isa, LANES, TILE_BLOCK, TILE_ROWS, TILE_RUNS, TileOperands, TileSums, splat_table,
};
use std::ops::Range;

/// Fewer rows are faster by vectors: a tile takes the same time for one row as for eight.
const LEAST_ROWS: usize = 5;

/// Blocks of columns that are decoded before they are multiplied: what that takes stays in the
/// nearest cache, beside the activations.
const CHUNK: usize = TILE_RUNS;

/// One chunk of a panel: decoded codes and scales, and the sums of one tile of rows.
#[repr(align(64))]
struct Chunk<I: Isa> {
    codes: [[u8; 4 * LANES]; CHUNK * TILE_BLOCK / 4],
    sums: [TileSums; TILE_ROWS],
    scales: [I::F32; CHUNK],
    zero_points: [I::I32; CHUNK],
}

/// Rows of one tile by one panel: multiplied from `first` on, but those before `new` are there already.
#[derive(Clone, Copy)]
struct TileRows {
    panel: usize,
    first: usize,
    new: usize,
    end: usize,
}

impl Job<'_> {
    /// Whether tiles are worth it and can hold the groups.
    pub(super) const fn fits_tiles(&self) -> bool {
        let group = self.x.group;
        self.x.rows() >= LEAST_ROWS
            && group.is_multiple_of(TILE_BLOCK)
            && group <= CHUNK * TILE_BLOCK
            && self.x.cols.is_multiple_of(group)
    }

    /// All rows by all panels, where the CPU has tiles; else false, and nothing is done.
    #[inline(always)]
    pub(super) fn tiled<I: Isa, T: IntCodes, S: Decode>(&self, isa: I, acc: &mut Acc<'_>) -> bool {
        let rows = self.x.rows();
        let count = rows.div_ceil(TILE_ROWS);
        let tile_rows = rows.div_ceil(count);
        let Some(mut tiles) = isa.tiles(tile_rows) else { return false };
        let mut chunk = Chunk {
            codes: [[0; 4 * LANES]; CHUNK * TILE_BLOCK / 4],
            sums: [[[[0; LANES]; 2]; TILE_RUNS]; TILE_ROWS],
            scales: [isa.splat(0.0); CHUNK],
            zero_points: [isa.splat_i32(0); CHUNK],
        };
        let (stride, blocks) = (self.shape.stride, self.x.group / TILE_BLOCK);
        for panel in 0..self.w.num_panels() {
            for start in self.groups.clone().step_by(CHUNK / blocks) {
                let groups = start..(start + CHUNK / blocks).min(self.groups.end);
                self.decode::<I, T, S>(isa, panel, groups.clone(), &mut chunk);
                for tile in 0..count {
                    let new = tile * tile_rows;
                    let first = new.min(rows - tile_rows);
                    let operands = TileOperands {
                        left: &self.x.words[first * stride + start * blocks * TILE_BLOCK / 2..],
                        stride,
                        right: &chunk.codes[..groups.len() * blocks * TILE_BLOCK / 4],
                    };
                    tiles.multiply(operands, blocks, &mut chunk.sums[..tile_rows]);
                    let tile = TileRows { panel, first, new, end: first + tile_rows };
                    self.add(isa, (&chunk, groups.clone()), tile, acc);
                }
            }
        }
        true
    }

    /// Codes of a panel as signed bytes, and what scales them.
    #[inline(always)]
    fn decode<I: Isa, T: IntCodes, S: Decode>(
        &self,
        isa: I,
        panel: usize,
        groups: Range<usize>,
        chunk: &mut Chunk<I>,
    ) {
        let w = self.w.panel(panel);
        let zero_points = w.zero_points.as_chunks::<LANES>().0;
        // What a zero point is taken from is the code itself.
        let signed = const { &splat_table(signed::<T>()) };
        let shifted = const { &splat_table(shifted::<T>()) };
        let table = isa.load_bytes(if zero_points.is_empty() { signed } else { shifted });
        let nibble = isa.splat_i32(0x0f0f_0f0f);
        let steps = self.x.group / 8;
        let codes = &w.nibbles()[groups.start * steps..groups.end * steps];
        for (codes, out) in codes.iter().zip(chunk.codes.as_chunks_mut::<2>().0) {
            isa.prefetch(codes, AHEAD);
            let codes = isa.load_bytes(codes);
            let [even, odd] = [isa.and(codes, nibble), isa.and(isa.shr::<4>(codes), nibble)];
            isa.store_bytes(isa.lookup(table, even), &mut out[0]);
            isa.store_bytes(isa.lookup(table, odd), &mut out[1]);
        }
        for (i, group) in groups.enumerate() {
            let scale = S::decode(isa, load_codes::<I, S>(isa, w.scales, group));
            chunk.scales[i] = isa.mul(scale, isa.splat(self.factor));
            if let Some(zero_points) = zero_points.get(group) {
                chunk.zero_points[i] = isa.load_u8(zero_points);
            }
        }
    }

    /// Adds the scaled sums of one tile.
    #[inline(always)]
    fn add<I: Isa>(
        &self,
        isa: I,
        (chunk, groups): (&Chunk<I>, Range<usize>),
        tile: TileRows,
        acc: &mut Acc<'_>,
    ) {
        let zero_points = !self.w.panel(tile.panel).zero_points.is_empty();
        for row in tile.new..tile.end {
            let out = &mut acc.data[row * acc.stride + tile.panel * LANES..];
            let Some(out) = out.first_chunk_mut::<LANES>() else { return };
            let mut total = isa.load(out);
            let metas = &self.x.row(&self.shape, row).1[groups.clone()];
            let sums = &chunk.sums[row - tile.first];
            for i in 0..metas.len().min(CHUNK) {
                let ([x_scale, x_sum], [high, low]) = (metas[i], &sums[i]);
                let high = isa.shl::<8>(isa.load_i32(high));
                let mut sum = isa.add_i32(high, isa.load_i32(low));
                if zero_points {
                    let zeros = isa.mul_i32(chunk.zero_points[i], isa.splat_i32(x_sum));
                    sum = isa.sub_i32(sum, zeros);
                }
                let x_scale = isa.splat(f32::from_bits(x_scale.cast_unsigned()));
                total = isa.fma(isa.to_f32(sum), isa.mul(x_scale, chunk.scales[i]), total);
            }
            isa.store(total, out);
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
