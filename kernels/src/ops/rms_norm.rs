//! Root-mean-square norm, with the residual added first where there is one.

use crate::launch::{BufferId, RowView};

/// `h = residual + x` (kept in `residual`) or `h = x`; `out = h / sqrt(mean(h^2) + eps) * weight`.
///
/// # Shapes
/// - `x`, `residual`, `out`: f32 `[num_tokens, size]`; `out` shares no buffer with the others
/// - `weight`: f32 `[size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct RmsNorm {
    pub x: RowView,
    pub residual: Option<RowView>,
    pub weight: BufferId,
    pub eps: f32,
    pub out: RowView,
}
