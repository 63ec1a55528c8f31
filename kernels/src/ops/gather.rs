//! Picks rows, such as the last token of each sequence before the vocabulary projection.

use crate::launch::{BufferId, RowView};

/// `out[i] = x[rows[i]]`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, size]`; `rows`: i32 `[num_rows]`; `out`: f32 `[num_rows, size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct GatherRows {
    pub x: RowView,
    pub rows: BufferId,
    pub out: RowView,
}
