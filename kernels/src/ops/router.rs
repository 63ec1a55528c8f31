//! Choice of experts: sigmoid scores, a bias that selects but does not weigh, group limits.

use crate::launch::{BufferId, RowView};

/// Picks `top_k` experts a token.
///
/// Scores are `sigmoid(logits)`. Choice is by `score + bias`, first of `topk_groups` groups (by
/// the sum of each group's two best), then of experts inside them; ties go to the lowest index.
/// Weights are the unbiased scores, divided by their sum (+1e-20) if `norm_topk_prob`, times
/// `routed_scaling_factor`.
///
/// # Shapes
/// - `logits`: f32 `[num_tokens, num_experts]`; `bias`: f32 `[num_experts]`
/// - `topk_ids`: i32, `topk_weights`: f32, both `[num_tokens, top_k]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Router {
    pub logits: RowView,
    pub bias: BufferId,
    pub top_k: usize,
    pub num_groups: usize,
    pub topk_groups: usize,
    pub norm_topk_prob: bool,
    pub routed_scaling_factor: f32,
    pub topk_ids: BufferId,
    pub topk_weights: BufferId,
}
