//! Attention of a chunk of new tokens, with keys and values expanded from the cached latents.

use crate::launch::{BufferId, CacheId, RowView, WeightId};

/// Which cached tokens each sequence of a batch may read.
///
/// # Shapes
/// - `block_table`: i32 `[num_seqs, max_pages_per_seq]`; entries past `seq_lens` are never read
/// - `seq_lens`: i32 `[num_seqs]`, this step's tokens included
/// - `cu_seqlens_q`: i32 `[num_seqs + 1]`, rows of each sequence; its last token is the sequence's last
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct PagedBatch {
    pub num_seqs: usize,
    pub max_pages_per_seq: usize,
    pub block_table: BufferId,
    pub seq_lens: BufferId,
    pub cu_seqlens_q: BufferId,
}

/// Sizes of multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the field's standard names")]
pub struct MlaDims {
    pub num_heads: usize,
    pub kv_lora_rank: usize,
    pub qk_nope_head_dim: usize,
    pub qk_rope_head_dim: usize,
    pub v_head_dim: usize,
}

/// Causal attention over the paged latent cache: `k = [latent * w_k | k_pe]`, `v = latent * w_v`.
///
/// # Shapes
/// - `q`: f32 `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]`, rotated
/// - `kv_b`: `[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]`
/// - `out`: f32 `[num_tokens, num_heads * v_head_dim]`; `lse`: f32 `[num_tokens, num_heads]`, natural log
/// # Source
/// arXiv 2405.04434, section 2.1; written from the description.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct MlaPrefill {
    pub dims: MlaDims,
    pub q: RowView,
    pub kv_b: WeightId,
    pub cache: CacheId,
    pub layer: usize,
    pub batch: PagedBatch,
    pub softmax_scale: f32,
    pub out: RowView,
    pub lse: RowView,
}
