//! Rows of the embedding table by token id.

use crate::launch::{BufferId, RowView, WeightId};

/// `out[t] = table[ids[t]]`.
///
/// # Shapes
/// - `ids`: i32 `[num_tokens]`, each in `0..vocab_size`
/// - `table`: `[vocab_size, hidden_size]`
/// - `out`: f32 `[num_tokens, hidden_size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Embedding {
    pub ids: BufferId,
    pub table: WeightId,
    pub out: RowView,
}
