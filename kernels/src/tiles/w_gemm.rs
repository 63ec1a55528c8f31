//! Linear layers with weights in any format: dense, and one weight an expert.

use crate::formats::weight_formats;
use tessera_kernel_dsl::prelude::*;

/// Columns of one step along `k`: a multiple of every format's scale group.
const STEP: usize = 128;
/// Rows of `x` taken at once where there are fewer than a chunk.
const FEW: usize = 8;

/// Rows of `x` of one program: few enough to stay in a near cache while all weights pass by.
const BLOCK: usize = 64;

/// `y = x * w^T`.
///
/// `ROWS` weight rows are a program's: on the CPU two panels of its layout. They meet `CHUNK` rows
/// of `x` at once: weights are read once a chunk. Where `M` is `LEAST` or more, a GPU's programs take
/// more of both.
#[kernel(
    grid = (cdiv(N, ROWS), cdiv(M, BLOCK)),
    formats(W = weight_formats),
    variants(
        cpu: ROWS = [32], CHUNK = [64], LEAST = [0];
        gpu: (ROWS, CHUNK, LEAST, WARPS, STAGES) = [(128, 64, 256, 8, 2), (64, 32, 0, 4, 3)]
    ),
    class = bounded
)]
pub fn w_gemm<W: Packed>(
    x: &In<f32, { [M, K] }>,
    w: &In<W, { [N, K] }>,
    y: &mut Out<f32, { [M, N] }>,
) {
    assert_all(M >= LEAST, "the variant is for as many rows");
    let first = program_id(0) * ROWS;
    let rows = Rows { w, expert: None, first, count: ROWS, k_end: K };
    let start = program_id(1) * BLOCK;
    multiply(rows, (x, y), (start, min(start + BLOCK, M)), CHUNK);
}

/// Rows `expert_offsets[e]..expert_offsets[e + 1]` of `x` times the weight of expert `e`; experts
/// without rows cost nothing. `LEAST` is of the rows that experts have on average.
#[kernel(
    grid = (cdiv(N, ROWS), E),
    formats(W = weight_formats),
    variants(
        cpu: ROWS = [32], CHUNK = [64], LEAST = [0];
        gpu: (ROWS, CHUNK, LEAST, WARPS, STAGES) = [(128, 64, 32, 8, 2), (64, 32, 0, 4, 3)]
    ),
    class = bounded
)]
pub fn w_gemm_grouped<W: Packed>(
    x: &In<f32, { [M, K] }>,
    w: &In<W, { [E, N, K] }>,
    expert_offsets: &In<i32, { [E + 1] }>,
    y: &mut Out<f32, { [M, N] }>,
) {
    assert_all(M >= E * LEAST, "the variant is for as many rows of an expert");
    let (first, expert) = (program_id(0) * ROWS, program_id(1));
    let start = expert_offsets.at([expert]).to::<i64>();
    let end = expert_offsets.at([expert + 1]).to::<i64>();
    let rising = (start >= 0) & (start <= end) & (end <= M);
    let from_zero = (expert > 0) | (start == 0);
    let to_all = (expert + 1 < E) | (end == M);
    assert_all(
        rising & from_zero & to_all,
        "`expert_offsets` rise from 0 to the number of rows of `x`",
    );
    let rows = Rows { w, expert: Some(expert), first, count: ROWS, k_end: K };
    multiply(rows, (x, y), (start, end), CHUNK);
}

/// The weight rows of one program.
#[derive(Debug, Clone, Copy)]
struct Rows<W> {
    w: In<W>,
    expert: Option<Tile<i64>>,
    first: Tile<i64>,
    count: usize,
    k_end: Tile<i64>,
}

impl<W: Packed> Rows<W> {
    #[track_caller]
    fn tile(self, k: Tile<i64>) -> Tile<W> {
        match self.expert {
            None => self.w.tile([self.first, k], [self.count, STEP]),
            Some(expert) => self.w.tile([expert, self.first, k], [self.count, STEP]),
        }
    }
}

/// Multiplies the rows `start..end` of `x`, in chunks of which the last is ragged: what is left of
/// less than [`FEW`] rows is left to the smaller size; rows that are not there cost nothing.
#[tile_fn]
fn multiply<W: Packed>(
    w: Rows<W>,
    (x, y): (In<f32>, Out<f32>),
    (start, end): (Tile<i64>, Tile<i64>),
    chunk: usize,
) {
    let (x, y) = (x.until(end), y.until(end));
    let mut next = start;
    for (rows, left) in [(chunk, FEW), (FEW, 0)] {
        for m in range(next, end - left, rows) {
            let mut acc = zeros::<f32, 2>([rows, w.count]);
            for k in range(0, w.k_end, STEP) {
                let x = x.tile([m, k], [rows, STEP]).quantize::<W::Activation>();
                acc = dot_scaled(x, w.tile(k), acc);
            }
            y.store([m, w.first], acc);
            next = m + rows;
        }
    }
}
