//! Quantizing write of this step's latents into the paged cache.

use crate::launch::{BufferId, CacheId, RowView};

/// Writes `latent | rope` of each token to its slot: `stored = encode(real / k_scale)`, where
/// `k_scale` is the scale of the slot's page in this layer.
///
/// # Shapes
/// - `latent`: f32 `[num_tokens, kv_lora_rank]`, normed; `rope`: f32 `[num_tokens, qk_rope_head_dim]`
/// - `slot_mapping`: i64 `[num_tokens]`; `-1` skips the token
/// - `saturated`: u32 `[num_tokens]`; the count of clamped elements is added
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvWrite {
    pub latent: RowView,
    pub rope: RowView,
    pub slot_mapping: BufferId,
    pub cache: CacheId,
    pub layer: usize,
    pub saturated: BufferId,
}
