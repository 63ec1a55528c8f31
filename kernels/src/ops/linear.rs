//! Dense and grouped (per expert) linear layers with weights in any format.

use crate::launch::{BufferId, RowView, WeightId};

/// `out = x * weight^T`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, in_features]`
/// - `weight`: `[out_features, in_features]`
/// - `out`: f32 `[num_tokens, out_features]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Linear {
    pub x: RowView,
    pub weight: WeightId,
    pub out: RowView,
}

/// Rows `expert_offsets[e]..expert_offsets[e + 1]` of `x` times the weight of expert `e`.
///
/// # Shapes
/// - `x`: f32 `[num_rows, in_features]`, sorted by expert
/// - `weights`: one `[out_features, in_features]` an expert
/// - `expert_offsets`: i32 `[num_experts + 1]`
/// - `out`: f32 `[num_rows, out_features]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct GroupedLinear {
    pub x: RowView,
    pub weights: std::sync::Arc<[WeightId]>,
    pub expert_offsets: BufferId,
    pub out: RowView,
}
