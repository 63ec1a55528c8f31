//! Sorts token copies by expert, so that each expert sees one run of rows.

use crate::launch::{BufferId, RowView};

/// Row `i` of `out` is `x[order[i] / top_k]`, where `order` sorts the `num_tokens * top_k` choices
/// by expert (stable).
///
/// # Shapes
/// - `x`: f32 `[num_tokens, size]`; `topk_ids`: i32 `[num_tokens, top_k]`
/// - `out`: f32 `[num_tokens * top_k, size]`; `order`: i32 `[num_tokens * top_k]`
/// - `expert_offsets`: i32 `[num_experts + 1]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Permute {
    pub x: RowView,
    pub topk_ids: BufferId,
    pub top_k: usize,
    pub num_experts: usize,
    pub out: RowView,
    pub order: BufferId,
    pub expert_offsets: BufferId,
}
