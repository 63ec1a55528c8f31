//! What a model is, read from `config.json`; nothing here is a default that a config could state.

use tessera_kernels::ops::rope::RopeParameters;
pub use tessera_kernels::ops::rope::YarnParameters as YarnSpec;

/// A decoder of multi-head latent attention and mixture-of-experts layers.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of config.json")]
pub struct ModelSpec {
    pub model_type: String,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub num_layers: usize,
    pub attention: MlaSpec,
    pub rope: RopeSpec,
    pub intermediate_size: usize,
    /// Layers before this one have a dense feed-forward part.
    pub first_k_dense_replace: usize,
    pub moe: MoeSpec,
    pub rms_norm_eps: f32,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_ids: Vec<u32>,
    /// Multi-token-prediction layers at the end of the checkpoint (not served yet).
    pub num_nextn_predict_layers: usize,
}

/// Multi-head latent attention.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of config.json")]
pub struct MlaSpec {
    pub num_heads: usize,
    /// `None`: queries are projected at full rank.
    pub q_lora_rank: Option<usize>,
    pub kv_lora_rank: usize,
    pub qk_nope_head_dim: usize,
    pub qk_rope_head_dim: usize,
    pub v_head_dim: usize,
    /// `(nope + rope)^-0.5`, times YaRN's squared `mscale_all_dim` factor.
    pub softmax_scale: f32,
    /// Epsilon of the norms on the two latents. The reference implementation builds them with 1e-6
    /// whatever `rms_norm_eps` says, so that is the value here; a config that states
    /// `latent_norm_eps` (a key of ours) overrides it.
    pub latent_norm_eps: f32,
}

/// Rotary embedding.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of config.json")]
pub struct RopeSpec {
    pub theta: f64,
    pub interleaved: bool,
    pub scaling: Option<YarnSpec>,
}

impl RopeSpec {
    /// What the frequencies of `dim` rotating elements are computed from.
    pub fn parameters(&self, dim: usize) -> RopeParameters {
        RopeParameters { dim, theta: self.theta, yarn: self.scaling }
    }
}

/// Mixture of experts with sigmoid scores.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of config.json")]
pub struct MoeSpec {
    pub n_routed_experts: usize,
    pub num_experts_per_tok: usize,
    pub n_shared_experts: usize,
    pub moe_intermediate_size: usize,
    pub n_group: usize,
    pub topk_group: usize,
    pub norm_topk_prob: bool,
    pub routed_scaling_factor: f32,
}
