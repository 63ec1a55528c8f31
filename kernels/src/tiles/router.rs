//! Choice of experts: sigmoid scores, a bias that selects but does not weigh, group limits.

use tessera_kernel_dsl::prelude::*;

/// Most experts.
const EXPERTS: usize = 512;
/// Most groups.
const GROUPS: usize = 64;
/// Most experts a token.
const CHOICES: usize = 32;

/// Picks `top_k` experts a token; see [`crate::ops::router::Router`] for the rule.
///
/// Choice orders numbers, then `-inf`, then NaN; of equals the lowest index is first.
#[kernel(grid = (T), class = bounded)]
pub fn router(
    logits: &In<f32, { [T, E] }>,
    bias: &In<f32, { [E] }>,
    num_groups: i64,
    topk_groups: i64,
    norm_topk_prob: i64,
    routed_scaling_factor: f32,
    topk_ids: &mut Out<i32, { [T, TOP_K] }>,
    topk_weights: &mut Out<f32, { [T, TOP_K] }>,
) {
    let holds = (E <= EXPERTS) & (num_groups <= GROUPS) & (TOP_K <= CHOICES);
    assert_all(holds, "at most 512 experts, 64 groups and 32 choices a token");
    let t = program_id(0);
    let expert = iota(EXPERTS);
    let group_size = E / num_groups;
    let scores = ((-logits.tile((t, 0), [EXPERTS])).exp() + 1.0).recip();
    let biased = scores + bias.tile([0], [EXPERTS]);

    let mut groups = full::<f32, 1>([GROUPS], f32::NEG_INFINITY);
    for g in range(0, num_groups, 1) {
        let member = (expert >= g * group_size) & (expert < (g + 1) * group_size);
        let mut left = select(member, key(biased), f32::NEG_INFINITY);
        let best = left.argmax(0);
        let best_value = pick(biased, expert == best);
        left = select(expert == best, f32::NEG_INFINITY, left);
        let second_value = pick(biased, expert == left.argmax(0));
        let sum = select(group_size < 2, best_value, best_value + second_value);
        groups = select(iota(GROUPS) == g, key(sum), groups);
    }

    let mut open = iota(EXPERTS) < 0;
    for _ in range(0, topk_groups, 1) {
        let best = groups.argmax(0);
        open = open | (expert / group_size == best);
        groups = select(iota(GROUPS) == best, f32::NEG_INFINITY, groups);
    }

    let closed = full::<f32, 1>([EXPERTS], f32::NEG_INFINITY);
    let mut left = select(expert < E, key(select(open, biased, closed)), f32::NEG_INFINITY);
    let mut ids = zeros::<i32, 1>([CHOICES]);
    let mut weights = zeros::<f32, 1>([CHOICES]);
    let mut sum = zeros::<f32, 1>([1]);
    for k in range(0, TOP_K, 1) {
        let best = left.argmax(0);
        let score = pick(scores, expert == best);
        ids = select(iota(CHOICES) == k, best.to::<i32>(), ids);
        weights = select(iota(CHOICES) == k, score, weights);
        sum = sum + score;
        left = select(expert == best, f32::NEG_INFINITY, left);
    }
    let norm = select(norm_topk_prob == 1, sum + 1e-20, 1.0);
    topk_ids.store((t, 0), ids);
    topk_weights.store((t, 0), weights / norm * routed_scaling_factor);
}

/// Values as the choice orders them, all above the `-inf` of what is taken already.
#[tile_fn]
fn key(value: Tile<f32>) -> Tile<f32> {
    let last = f32::MIN;
    let last_but_one = last.next_up();
    let number = select(value == f32::NEG_INFINITY, last_but_one, value);
    select(value.is_nan(), last, number)
}

/// The one value where `chosen` is true, `[1]`.
#[tile_fn]
fn pick(values: Tile<f32>, chosen: Tile<bool>) -> Tile<f32> {
    select(chosen, values, 0.0).sum(0)
}
