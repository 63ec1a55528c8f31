//! Sorts token copies by expert, and sums what the experts made of them.

use tessera_kernel_dsl::prelude::*;

/// Choices looked at together.
const CHOICES: usize = 64;
/// Elements copied or summed at once.
const BLOCK: usize = 512;

/// `order` sorts the choices by expert, stable; `row_of` is its inverse; the rows of expert `e` are
/// `expert_offsets[e]..expert_offsets[e + 1]`.
///
/// Each program counts for one expert, so no order depends on how programs run.
#[kernel(grid = (E), class = exact)]
pub fn permute_order(
    topk_ids: &In<i32, { [C] }>,
    order: &mut Out<i32, { [C] }>,
    row_of: &mut Out<i32, { [C] }>,
    expert_offsets: &mut Out<i32, { [E + 1] }>,
) {
    let expert = program_id(0);
    let mut before = zeros::<i64, 1>([1]);
    for c in range(0, C, CHOICES) {
        let choice = c + iota(CHOICES);
        let id = topk_ids.tile([c], [CHOICES]).to::<i64>();
        assert_all((id >= 0) & (id < E), "`topk_ids` are experts");
        before = before + select::<i64>((choice < C) & (id < expert), 1, 0).sum(0);
    }
    expert_offsets.store([expert], before.to::<i32>());
    if expert + 1 == E {
        expert_offsets.store([E], C.to::<i32>());
    }
    let mut next = before;
    for c in range(0, C, CHOICES) {
        let choice = c + iota(CHOICES);
        let id = topk_ids.tile([c], [CHOICES]).to::<i64>();
        let own = (choice < C) & (id == expert);
        let count = select::<i64>(own, 1, 0);
        let row = next + count.cumsum(0) - 1;
        order.scatter([select(own, row, -1)], choice.to::<i32>());
        row_of.scatter([select(own, choice, -1)], row.to::<i32>());
        next = next + count.sum(0);
    }
}

/// `out[i] = x[order[i] / top_k]`.
#[kernel(grid = (C, cdiv(N, BLOCK)), class = exact)]
pub fn permute_rows(
    x: &In<f32, { [T, N] }>,
    order: &In<i32, { [C] }>,
    top_k: i64,
    out: &mut Out<f32, { [C, N] }>,
) {
    let (i, c) = (program_id(0), program_id(1) * BLOCK);
    let row = order.at([i]).to::<i64>() / top_k;
    assert_all((row >= 0) & (row < T), "`order` holds choices");
    out.store([i, c], x.tile([row, c], [BLOCK]));
}

/// `out[t] = sum_k topk_weights[t, k] * x[row_of[t, k]]`, in the order of `k`.
#[kernel(grid = (T, cdiv(N, BLOCK)), class = bounded)]
pub fn combine(
    x: &In<f32, { [C, N] }>,
    row_of: &In<i32, { [T, TOP_K] }>,
    topk_weights: &In<f32, { [T, TOP_K] }>,
    out: &mut Out<f32, { [T, N] }>,
) {
    let (t, c) = (program_id(0), program_id(1) * BLOCK);
    let choices = Choices { x, row_of, topk_weights, top_k: TOP_K, num_rows: C };
    out.store([t, c], add_choices(choices, t, c, zeros([BLOCK])));
}

/// As [`combine`], added to `shared`.
#[kernel(grid = (T, cdiv(N, BLOCK)), class = bounded)]
pub fn combine_shared(
    x: &In<f32, { [C, N] }>,
    row_of: &In<i32, { [T, TOP_K] }>,
    topk_weights: &In<f32, { [T, TOP_K] }>,
    shared: &In<f32, { [T, N] }>,
    out: &mut Out<f32, { [T, N] }>,
) {
    let (t, c) = (program_id(0), program_id(1) * BLOCK);
    let choices = Choices { x, row_of, topk_weights, top_k: TOP_K, num_rows: C };
    out.store([t, c], add_choices(choices, t, c, shared.tile([t, c], [BLOCK])));
}

/// The rows that a token chose.
#[derive(Debug, Clone, Copy)]
struct Choices {
    x: In<f32>,
    row_of: In<i32>,
    topk_weights: In<f32>,
    top_k: Tile<i64>,
    num_rows: Tile<i64>,
}

#[tile_fn]
fn add_choices(choices: Choices, t: Tile<i64>, c: Tile<i64>, start: Tile<f32>) -> Tile<f32> {
    let mut total = start;
    for k in range(0, choices.top_k, 1) {
        let row = choices.row_of.at([t, k]).to::<i64>();
        assert_all((row >= 0) & (row < choices.num_rows), "`row_of` holds rows of `x`");
        let weight = choices.topk_weights.at([t, k]);
        total = fma(choices.x.tile([row, c], [BLOCK]), weight, total);
    }
    total
}
