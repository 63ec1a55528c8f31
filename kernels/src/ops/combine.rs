//! Weighted sum of the experts' rows of each token, plus the shared expert.

use crate::launch::{BufferId, RowView};

/// `out[t] = shared[t] + sum_k topk_weights[t, k] * x[row of choice (t, k)]`, summed in the order
/// of `k` whatever the batch.
///
/// # Shapes
/// - `x`: f32 `[num_tokens * top_k, size]` in the order of `order` (see [`super::permute::Permute`])
/// - `topk_weights`: f32 `[num_tokens, top_k]`; `shared`, `out`: f32 `[num_tokens, size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Combine {
    pub x: RowView,
    pub order: BufferId,
    pub topk_weights: BufferId,
    pub top_k: usize,
    pub shared: Option<RowView>,
    pub out: RowView,
}
