//! The parameters of a model: the one list that loading, writing and inspecting share.

use super::Role;
use crate::model::ModelSpec;

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Param {
    /// A weight matrix: `<module>.weight` and companions, `[rows, cols]`.
    Matrix { module: String, role: Role, rows: usize, cols: usize },
    /// A vector, by its full name, `[len]`.
    Vector { name: String, len: usize },
}

impl Role {
    /// Whether quantization configs count it among the linear modules.
    pub(crate) fn is_linear(self) -> bool {
        !matches!(self, Self::Embed | Self::RouterGate)
    }
}

/// Name of layer `layer` in a checkpoint.
pub(crate) fn layer_name(layer: usize) -> String {
    format!("model.layers.{layer}")
}

struct List(Vec<Param>);

impl List {
    fn matrix(&mut self, module: String, role: Role, rows: usize, cols: usize) {
        self.0.push(Param::Matrix { module, role, rows, cols });
    }

    fn vector(&mut self, name: String, len: usize) {
        self.0.push(Param::Vector { name, len });
    }

    /// Gate, up and down projection of a feed-forward network.
    fn mlp(&mut self, prefix: &str, role: Role, hidden: usize, inner: usize) {
        self.matrix(format!("{prefix}.gate_proj"), role, inner, hidden);
        self.matrix(format!("{prefix}.up_proj"), role, inner, hidden);
        self.matrix(format!("{prefix}.down_proj"), role, hidden, inner);
    }

    fn attention(&mut self, prefix: &str, spec: &ModelSpec) {
        let (a, hidden, role) = (&spec.attention, spec.hidden_size, Role::Attention);
        let q_rows = a.num_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
        if let Some(rank) = a.q_lora_rank {
            self.matrix(format!("{prefix}.q_a_proj"), role, rank, hidden);
            self.vector(format!("{prefix}.q_a_layernorm.weight"), rank);
            self.matrix(format!("{prefix}.q_b_proj"), role, q_rows, rank);
        } else {
            self.matrix(format!("{prefix}.q_proj"), role, q_rows, hidden);
        }
        let kv_a = a.kv_lora_rank + a.qk_rope_head_dim;
        let kv_b = a.num_heads * (a.qk_nope_head_dim + a.v_head_dim);
        self.matrix(format!("{prefix}.kv_a_proj_with_mqa"), role, kv_a, hidden);
        self.vector(format!("{prefix}.kv_a_layernorm.weight"), a.kv_lora_rank);
        self.matrix(format!("{prefix}.kv_b_proj"), role, kv_b, a.kv_lora_rank);
        self.matrix(format!("{prefix}.o_proj"), role, hidden, a.num_heads * a.v_head_dim);
    }

    fn moe(&mut self, prefix: &str, spec: &ModelSpec) {
        let (moe, hidden) = (&spec.moe, spec.hidden_size);
        let inner = moe.moe_intermediate_size;
        self.matrix(format!("{prefix}.gate"), Role::RouterGate, moe.n_routed_experts, hidden);
        self.vector(format!("{prefix}.gate.e_score_correction_bias"), moe.n_routed_experts);
        for expert in 0..moe.n_routed_experts {
            let name = format!("{prefix}.experts.{expert}");
            self.mlp(&name, Role::RoutedExpert, hidden, inner);
        }
        if moe.n_shared_experts > 0 {
            let inner = inner * moe.n_shared_experts;
            self.mlp(&format!("{prefix}.shared_experts"), Role::SharedExpert, hidden, inner);
        }
    }
}

/// Every parameter, in the order of the model; names as DeepSeek-V3 checkpoints have them.
pub(crate) fn params(spec: &ModelSpec) -> Vec<Param> {
    let mut list = List(Vec::new());
    let hidden = spec.hidden_size;
    list.matrix("model.embed_tokens".into(), Role::Embed, spec.vocab_size, hidden);
    for layer in 0..spec.num_layers {
        let name = layer_name(layer);
        list.vector(format!("{name}.input_layernorm.weight"), hidden);
        list.attention(&format!("{name}.self_attn"), spec);
        list.vector(format!("{name}.post_attention_layernorm.weight"), hidden);
        let mlp = format!("{name}.mlp");
        if layer < spec.first_k_dense_replace {
            list.mlp(&mlp, Role::DenseMlp, hidden, spec.intermediate_size);
        } else {
            list.moe(&mlp, spec);
        }
    }
    list.vector("model.norm.weight".into(), hidden);
    if !spec.tie_word_embeddings {
        list.matrix("lm_head".into(), Role::LmHead, spec.vocab_size, hidden);
    }
    list.0
}
