//! The two small products that move decode attention into latent space and back.

use super::mla_prefill::MlaDims;
use crate::launch::{RowView, WeightId};

/// `ql_nope[h] = q_nope[h] * w_k[h]`: queries carried into latent space.
///
/// # Shapes
/// - `q`: f32 `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]`; only nope is read
/// - `kv_b`: `[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]`
/// - `ql_nope`: f32 `[num_tokens, num_heads * kv_lora_rank]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct AbsorbQuery {
    pub dims: MlaDims,
    pub q: RowView,
    pub kv_b: WeightId,
    pub ql_nope: RowView,
}

/// `out[h] = w_v[h] * latent[h]`: attention output carried back from latent space.
///
/// # Shapes
/// - `latent`: f32 `[num_tokens, num_heads * kv_lora_rank]`
/// - `kv_b`: as in [`AbsorbQuery`]
/// - `out`: f32 `[num_tokens, num_heads * v_head_dim]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct AbsorbValue {
    pub dims: MlaDims,
    pub latent: RowView,
    pub kv_b: WeightId,
    pub out: RowView,
}
