//! Picks rows: of activations, and of the embedding table by token id.

use crate::formats::weight_formats;
use tessera_kernel_dsl::prelude::*;

/// Elements of one program.
const BLOCK: usize = 512;

/// `out[i] = x[rows[i]]`.
#[kernel(grid = (R, cdiv(N, BLOCK)), class = exact)]
pub fn gather_rows(
    x: &In<f32, { [T, N] }>,
    rows: &In<i32, { [R] }>,
    out: &mut Out<f32, { [R, N] }>,
) {
    let (i, c) = (program_id(0), program_id(1) * BLOCK);
    let row = rows.at([i]).to::<i64>();
    assert_all((row >= 0) & (row < T), "`rows` are rows of `x`");
    out.store([i, c], x.tile([row, c], [BLOCK]));
}

/// `out[t] = table[ids[t]]`.
#[kernel(
    grid = (T, cdiv(HIDDEN, BLOCK)),
    formats(W = weight_formats),
    class = exact
)]
pub fn embedding<W: Packed>(
    ids: &In<i32, { [T] }>,
    table: &In<W, { [VOCAB, HIDDEN] }>,
    out: &mut Out<f32, { [T, HIDDEN] }>,
) {
    let (t, c) = (program_id(0), program_id(1) * BLOCK);
    let id = ids.at([t]).to::<i64>();
    assert_all((id >= 0) & (id < VOCAB), "`ids` are tokens of the vocabulary");
    out.store([t, c], table.tile([id, c], [1, BLOCK]).decode());
}
