//! Attention in latent space over the paged cache, for decode steps.

use super::mla_prefill::{MlaDims, PagedBatch};
use crate::launch::{CacheId, RowView};

/// Causal attention with absorbed queries: the cache entry is key and value at once.
///
/// # Shapes
/// - `ql_nope`: f32 `[num_tokens, num_heads * kv_lora_rank]`
/// - `q`: f32 `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]`; only rope is read
/// - `out`: f32 as `ql_nope`; `lse`: f32 `[num_tokens, num_heads]`, natural log
/// # Numerics
/// An empty sequence gives zeros and `lse = -inf`.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct MlaDecode {
    pub dims: MlaDims,
    pub ql_nope: RowView,
    pub q: RowView,
    pub cache: CacheId,
    pub layer: usize,
    pub batch: PagedBatch,
    pub softmax_scale: f32,
    pub out: RowView,
    pub lse: RowView,
}
