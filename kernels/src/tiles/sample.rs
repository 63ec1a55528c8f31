//! What sampling needs of a row of logits: the likeliest token, the log of the sum, the top few.
//!
//! Penalties, filters and the draw stay with [`crate::ops::sample`]: they are sparse, seeded and
//! in f64.

use tessera_kernel_dsl::prelude::*;

/// Logits looked at together.
const BLOCK: usize = 512;

/// `argmax` is the likeliest token, the lowest of equals, or -1 where the row holds a NaN or a
/// +inf, or no finite value; `log_sum` is the natural log of the sum of exponentials.
#[kernel(grid = (R), class = bounded)]
pub fn logit_stats(
    logits: &In<f32, { [R, VOCAB] }>,
    argmax: &mut Out<i32, { [R] }>,
    log_sum: &mut Out<f32, { [R] }>,
) {
    let r = program_id(0);
    // Only the last block may end early.
    let whole = VOCAB / BLOCK * BLOCK;
    let parts = [(full::<i64, 0>([], 0), whole, false), (whole, VOCAB, true)];
    let mut largest = full::<f32, 1>([1], f32::NEG_INFINITY);
    let mut at = zeros::<i64, 1>([1]);
    for (start, end, ragged) in parts {
        for c in range(start, end, BLOCK) {
            let block_max = row_block(logits, (r, c), VOCAB, ragged).max(0);
            let higher = (block_max > largest) | block_max.is_nan();
            at = select(higher, c, at);
            largest = max(largest, block_max);
        }
    }
    let mut sum = zeros::<f32, 1>([BLOCK]);
    for (start, end, ragged) in parts {
        for c in range(start, end, BLOCK) {
            sum = sum + (row_block(logits, (r, c), VOCAB, ragged) - largest).exp();
        }
    }
    let at = at.reshape([]);
    let first = row_block(logits, (r, at), VOCAB, true).argmax(0) + at;
    let usable = (largest > f32::NEG_INFINITY) & (largest < f32::INFINITY);
    argmax.store([r], select(usable, first, -1).to::<i32>());
    log_sum.store([r], select(usable, largest + sum.sum(0).ln(), f32::NAN));
}

/// The `counts[r]` likeliest tokens and their log probabilities, likeliest first, lower ids first
/// among equals; -1 and `-inf` past them. Rows hold no NaN (see [`logit_stats`]).
#[kernel(grid = (R), class = bounded)]
pub fn top_logprobs(
    logits: &In<f32, { [R, VOCAB] }>,
    log_sum: &In<f32, { [R] }>,
    counts: &In<i32, { [R] }>,
    top_ids: &mut Out<i32, { [R, MAX_TOP] }>,
    top_logprobs: &mut Out<f32, { [R, MAX_TOP] }>,
) {
    let r = program_id(0);
    let count = min(counts.at([r]).to::<i64>(), VOCAB);
    let mut last = full::<f32, 1>([1], f32::INFINITY);
    let mut last_id = full::<i64, 1>([1], -1);
    for k in range(0, MAX_TOP, 1) {
        let mut best = full::<f32, 1>([1], f32::NEG_INFINITY);
        let mut best_id = full::<i64, 1>([1], i64::MAX);
        for c in range(0, VOCAB, BLOCK) {
            let logit = row_block(logits, (r, c), VOCAB, true);
            let id = c + iota(BLOCK);
            // Those after the last one found, in the order of the result.
            let after = (logit < last) | ((logit == last) & (id > last_id));
            let left = after & (id < VOCAB);
            let block_best = select(left, logit, f32::NEG_INFINITY).max(0);
            let block_id = select(left & (logit == block_best), id, i64::MAX).min(0);
            let higher = (block_best > best) | ((block_best == best) & (block_id < best_id));
            best = select(higher, block_best, best);
            best_id = select(higher, block_id, best_id);
        }
        let wanted = k < count;
        top_ids.store([r, k], select(wanted, best_id, -1).to::<i32>());
        let logprob = best - log_sum.at([r]);
        top_logprobs.store([r, k], select(wanted, logprob, f32::NEG_INFINITY));
        last = best;
        last_id = best_id;
    }
}

/// Logits of row `r` from column `c` on. A block that may be `ragged` has `-inf` past the vocabulary,
/// which counts nowhere.
#[tile_fn]
fn row_block(
    logits: In<f32>,
    (r, c): (Tile<i64>, Tile<i64>),
    vocab: Tile<i64>,
    ragged: bool,
) -> Tile<f32> {
    let logit = logits.tile([r, c], [BLOCK]);
    if ragged { select(c + iota(BLOCK) < vocab, logit, f32::NEG_INFINITY) } else { logit }
}
