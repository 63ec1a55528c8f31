//! The weights of a model on the host, each matrix in the format its pool keeps it in.

use tessera_kernels::formats::PackedMatrix;

/// All weights of one pool's model.
#[derive(Debug, Clone)]
pub struct ModelWeights {
    /// `[vocab_size, hidden_size]`.
    pub embed_tokens: PackedMatrix,
    /// In order.
    pub layers: Vec<LayerWeights>,
    /// `[hidden_size]`.
    pub norm: Vec<f32>,
    /// `[vocab_size, hidden_size]`.
    pub lm_head: PackedMatrix,
}

impl ModelWeights {
    /// Bytes of all matrices and vectors.
    pub fn num_bytes(&self) -> usize {
        let layers = self.layers.iter().map(LayerWeights::num_bytes).sum::<usize>();
        let ends = self.embed_tokens.num_bytes() + self.lm_head.num_bytes();
        ends + layers + size_of_val(self.norm.as_slice())
    }
}

impl LayerWeights {
    fn num_bytes(&self) -> usize {
        let vectors = [&self.input_layernorm, &self.post_attention_layernorm];
        let attention = &self.attention;
        let query = match &attention.query {
            QueryWeights::Direct { q_proj } => q_proj.num_bytes(),
            QueryWeights::Latent { q_a_proj, q_a_layernorm, q_b_proj } => {
                q_a_proj.num_bytes() + size_of_val(q_a_layernorm.as_slice()) + q_b_proj.num_bytes()
            }
        };
        let matrices = [&attention.kv_a_proj_with_mqa, &attention.kv_b_proj, &attention.o_proj];
        let mlp = match &self.mlp {
            Mlp::Dense(dense) => dense.num_bytes(),
            Mlp::Moe { gate, e_score_correction_bias, experts, shared } => {
                gate.num_bytes()
                    + size_of_val(e_score_correction_bias.as_slice())
                    + experts.iter().chain(shared).map(GatedMlp::num_bytes).sum::<usize>()
            }
        };
        vectors.iter().map(|v| size_of_val(v.as_slice())).sum::<usize>()
            + size_of_val(attention.kv_a_layernorm.as_slice())
            + matrices.iter().map(|matrix| matrix.num_bytes()).sum::<usize>()
            + query
            + mlp
    }
}

/// One decoder layer.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names of the checkpoint")]
pub struct LayerWeights {
    pub input_layernorm: Vec<f32>,
    pub attention: MlaWeights,
    pub post_attention_layernorm: Vec<f32>,
    pub mlp: Mlp,
}

/// Multi-head latent attention.
#[derive(Debug, Clone)]
pub struct MlaWeights {
    /// Query projection.
    pub query: QueryWeights,
    /// `[kv_lora_rank + qk_rope_head_dim, hidden_size]`.
    pub kv_a_proj_with_mqa: PackedMatrix,
    /// `[kv_lora_rank]`.
    pub kv_a_layernorm: Vec<f32>,
    /// `[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]`.
    pub kv_b_proj: PackedMatrix,
    /// `[hidden_size, num_heads * v_head_dim]`.
    pub o_proj: PackedMatrix,
}

/// Query projection, through a latent or direct.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names of the checkpoint")]
pub enum QueryWeights {
    /// `[q_lora_rank, hidden_size]`, `[q_lora_rank]`, `[num_heads * qk_head_dim, q_lora_rank]`.
    Latent { q_a_proj: PackedMatrix, q_a_layernorm: Vec<f32>, q_b_proj: PackedMatrix },
    /// `[num_heads * qk_head_dim, hidden_size]`.
    Direct { q_proj: PackedMatrix },
}

/// Feed-forward part of a layer.
#[derive(Debug, Clone)]
pub enum Mlp {
    /// One gated network.
    Dense(GatedMlp),
    /// Routed experts and, beside them, shared ones fused into one network.
    Moe {
        /// `[n_routed_experts, hidden_size]`.
        gate: PackedMatrix,
        /// `[n_routed_experts]`: selects, does not weigh.
        e_score_correction_bias: Vec<f32>,
        /// One an expert.
        experts: Vec<GatedMlp>,
        /// Runs on every token.
        shared: Option<GatedMlp>,
    },
}

/// `down(silu(gate(x)) * up(x))`.
#[derive(Debug, Clone)]
pub struct GatedMlp {
    /// `[intermediate, hidden_size]`.
    pub gate_proj: PackedMatrix,
    /// `[intermediate, hidden_size]`.
    pub up_proj: PackedMatrix,
    /// `[hidden_size, intermediate]`.
    pub down_proj: PackedMatrix,
}

impl GatedMlp {
    fn num_bytes(&self) -> usize {
        self.gate_proj.num_bytes() + self.up_proj.num_bytes() + self.down_proj.num_bytes()
    }
}
