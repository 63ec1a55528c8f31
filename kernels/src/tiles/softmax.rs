//! Softmax over keys that arrive in blocks, with the weighted sum of their values.
//!
//! Scores are transposed, keys by queries: a block of keys is then a plain left side of one dot
//! and a plain right side of the other, and the maximum runs down the columns.

use tessera_kernel_dsl::prelude::*;

/// What was seen so far, for `q` queries and values of `d` elements.
#[derive(Debug, Clone, Copy, Carry)]
pub(super) struct Softmax {
    /// Largest score, `[1, q]`; `-inf` before any.
    max: Tile<f32>,
    /// Sum of `exp(score - max)`, `[1, q]`.
    sum: Tile<f32>,
    /// Sum of `exp(score - max) * value`, `[q, d]`.
    out: Tile<f32>,
}

impl Softmax {
    /// Nothing seen.
    #[track_caller]
    pub(super) fn new(queries: usize, size: usize) -> Self {
        Self {
            max: full([1, queries], f32::NEG_INFINITY),
            sum: zeros([1, queries]),
            out: zeros([queries, size]),
        }
    }
}

/// Takes scores `[keys, q]`, `-inf` for keys a query does not see, and values `[keys, d]` that
/// stand for `value * scale`, with scales `[keys, 1]`.
#[tile_fn]
pub(super) fn update(
    seen: Softmax,
    scores: Tile<f32>,
    values: Tile<f32>,
    scale: Tile<f32>,
) -> Softmax {
    let max_now = max(seen.max, scores.max(0));
    // Where nothing counted yet, so that `-inf - -inf` does not make NaN of it.
    let base = select(max_now == f32::NEG_INFINITY, 0.0, max_now);
    let weights = (scores - base).exp();
    let fade = (seen.max - base).exp();
    Softmax {
        max: max_now,
        sum: seen.sum * fade + weights.sum(0),
        out: dot((weights * scale).t(), values, seen.out * fade.t()),
    }
}

/// `new` for the queries of `chosen`, `[1, q]`, and `old` for the others, whatever `new` made of
/// them: a NaN value meets even a weight of 0.
#[tile_fn]
pub(super) fn choose(chosen: Tile<bool>, new: Softmax, old: Softmax) -> Softmax {
    let [_, queries] = chosen.ty().rows_cols();
    Softmax {
        max: select(chosen, new.max, old.max),
        sum: select(chosen, new.sum, old.sum),
        out: select(chosen.reshape([queries, 1]), new.out, old.out),
    }
}

/// Outputs `[q, d]` and log-sum-exps `[q]`: zeros and `-inf` where no key counted.
#[tile_fn]
pub(super) fn finish(seen: Softmax) -> (Tile<f32>, Tile<f32>) {
    let [_, queries] = seen.sum.ty().rows_cols();
    let total = seen.sum.t();
    let out = select(total == 0.0, 0.0, seen.out / total);
    (out, (seen.max + seen.sum.ln()).reshape([queries]))
}
