//! A model of random weights, of any size, for benchmarks: its text means nothing, its bytes and
//! operations are those of a real one.

use tessera_kernels::formats::{Format, PackedMatrix, format};
use tessera_runtime::model::{
    GatedMlp, LayerWeights, MlaSpec, MlaWeights, Mlp, ModelSpec, ModelWeights, MoeSpec,
    QueryWeights, RopeSpec,
};

/// A DeepSeek-V3 style model of 0.2 G parameters: its INT4 experts alone are 113 MB, several times
/// a last-level cache.
pub fn spec() -> ModelSpec {
    ModelSpec {
        model_type: "deepseek_v3".to_owned(),
        vocab_size: 2048,
        hidden_size: 512,
        num_layers: 9,
        attention: MlaSpec {
            num_heads: 8,
            q_lora_rank: Some(256),
            kv_lora_rank: 128,
            qk_nope_head_dim: 64,
            qk_rope_head_dim: 32,
            v_head_dim: 64,
            softmax_scale: 96f32.powf(-0.5),
            latent_norm_eps: 1e-6,
        },
        rope: RopeSpec { theta: 50000.0, interleaved: true, scaling: None },
        intermediate_size: 1024,
        first_k_dense_replace: 1,
        moe: MoeSpec {
            n_routed_experts: 32,
            num_experts_per_tok: 2,
            n_shared_experts: 1,
            moe_intermediate_size: 512,
            n_group: 1,
            topk_group: 1,
            norm_topk_prob: true,
            routed_scaling_factor: 2.5,
        },
        rms_norm_eps: 1e-6,
        max_position_embeddings: 4096,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_ids: Vec::new(),
        num_nextn_predict_layers: 0,
    }
}

/// Weights of `spec` from a seed, with routed experts in the format `experts` and other projections
/// in `projections`.
///
/// # Panics
/// If a format is unknown or does not fit the spec's sizes.
pub fn weights(spec: &ModelSpec, experts: &str, projections: &str) -> ModelWeights {
    let known = |name: &str| format(name).unwrap_or_else(|| panic!("no format is called {name}"));
    let mut make = Maker { spec, rng: 1, experts: known(experts), rest: known(projections) };
    let bf16 = known("bf16");
    let (hidden, vocab) = (spec.hidden_size, spec.vocab_size);
    ModelWeights {
        embed_tokens: make.matrix(bf16, vocab, hidden),
        layers: (0..spec.num_layers).map(|index| make.layer(index)).collect(),
        norm: vec![1.0; hidden],
        lm_head: make.matrix(bf16, vocab, hidden),
    }
}

struct Maker<'a> {
    spec: &'a ModelSpec,
    rng: u64,
    experts: &'static Format,
    rest: &'static Format,
}

impl Maker<'_> {
    fn layer(&mut self, index: usize) -> LayerWeights {
        let (spec, hidden) = (self.spec, self.spec.hidden_size);
        let (attn, moe, rest) = (&spec.attention, &spec.moe, self.rest);
        let q_rank = attn.q_lora_rank.unwrap_or(hidden);
        let qk = attn.qk_nope_head_dim + attn.qk_rope_head_dim;
        let kv_b_rows = attn.num_heads * (attn.qk_nope_head_dim + attn.v_head_dim);
        let attention = MlaWeights {
            query: QueryWeights::Latent {
                q_a_proj: self.matrix(rest, q_rank, hidden),
                q_a_layernorm: vec![1.0; q_rank],
                q_b_proj: self.matrix(rest, attn.num_heads * qk, q_rank),
            },
            kv_a_proj_with_mqa: self.matrix(
                rest,
                attn.kv_lora_rank + attn.qk_rope_head_dim,
                hidden,
            ),
            kv_a_layernorm: vec![1.0; attn.kv_lora_rank],
            kv_b_proj: self.matrix(rest, kv_b_rows, attn.kv_lora_rank),
            o_proj: self.matrix(rest, hidden, attn.num_heads * attn.v_head_dim),
        };
        let mlp = if index < spec.first_k_dense_replace {
            Mlp::Dense(self.gated(rest, spec.intermediate_size))
        } else {
            let bf16 = format("bf16").expect("bf16 is a format");
            Mlp::Moe {
                gate: self.matrix(bf16, moe.n_routed_experts, hidden),
                e_score_correction_bias: vec![0.0; moe.n_routed_experts],
                experts: (0..moe.n_routed_experts)
                    .map(|_| self.gated(self.experts, moe.moe_intermediate_size))
                    .collect(),
                shared: Some(self.gated(rest, moe.n_shared_experts * moe.moe_intermediate_size)),
            }
        };
        LayerWeights {
            input_layernorm: vec![1.0; hidden],
            attention,
            post_attention_layernorm: vec![1.0; hidden],
            mlp,
        }
    }

    fn gated(&mut self, format: &'static Format, width: usize) -> GatedMlp {
        let hidden = self.spec.hidden_size;
        GatedMlp {
            gate_proj: self.matrix(format, width, hidden),
            up_proj: self.matrix(format, width, hidden),
            down_proj: self.matrix(format, hidden, width),
        }
    }

    /// Uniform values of variance `1 / cols`, so that activations keep their size.
    fn matrix(&mut self, format: &'static Format, rows: usize, cols: usize) -> PackedMatrix {
        let half_width = (3.0 / cols as f32).sqrt();
        let values: Vec<f32> =
            (0..rows * cols).map(|_| half_width * (2.0 * self.uniform() - 1.0)).collect();
        PackedMatrix::encode(format, rows, cols, &values).expect("sizes fit the format")
    }

    /// xorshift64*: fast, seeded, good enough for weights that mean nothing.
    fn uniform(&mut self) -> f32 {
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        let bits = self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        bits as f32 / (1u32 << 24) as f32
    }
}
