//! The gated activation of the feed-forward layers.

use crate::launch::RowView;

/// `out = silu(gate) * up`, elementwise on f32 `[num_rows, size]`.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see the summary")]
pub struct SwiGlu {
    pub gate: RowView,
    pub up: RowView,
    pub out: RowView,
}
