//! Fills a model's weights by a plan, each matrix in the format that a policy asks for.

use super::params::Param;
use super::plan::{MatrixSource, Plan};
use super::read::{planned, read_matrix, read_vector, stored_format, tensors};
use super::store::Store;
use super::{CheckpointError, LoadReport, Progress, Role, WeightPolicy};
use crate::model::{
    GatedMlp, LayerWeights, MlaWeights, Mlp, ModelSpec, ModelWeights, QueryWeights,
};
use std::collections::HashMap;
use tessera_kernels::formats::{Format, PackedMatrix, check_shape};

/// Every parameter, read.
#[derive(Default)]
struct Filled {
    matrices: HashMap<String, PackedMatrix>,
    vectors: HashMap<String, Vec<f32>>,
}

/// The format a matrix ends up in.
pub(crate) fn target_format(
    store: &Store,
    source: &MatrixSource,
    policy: &WeightPolicy,
    role: Role,
) -> &'static Format {
    policy.format(role).unwrap_or_else(|| stored_format(store, source))
}

/// Every matrix whose shape does not fit the format it is asked to be in, at once.
pub(crate) fn check_policy(
    store: &Store,
    plan: &Plan,
    policy: &WeightPolicy,
) -> Result<(), CheckpointError> {
    let mut problems = Vec::new();
    for param in &plan.params {
        let Param::Matrix { module, role, rows, cols } = param else { continue };
        let format = target_format(store, &plan.matrices[module], policy, *role);
        if let Err(why) = check_shape(format, *rows, *cols) {
            problems.push(format!("{module} [{rows}, {cols}]: {why}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(CheckpointError::Problems { problems }) }
}

/// Bytes that filling every parameter reads.
pub(crate) fn source_bytes(store: &Store, plan: &Plan) -> u64 {
    let bytes = plan.params.iter().map(|param| match param {
        Param::Vector { name, .. } => {
            planned(store, &format!("{}{name}", plan.prefix)).num_bytes() as u64
        }
        Param::Matrix { module, .. } => matrix_bytes(store, &plan.matrices[module]),
    });
    bytes.sum()
}

pub(crate) fn matrix_bytes(store: &Store, source: &MatrixSource) -> u64 {
    tensors(store, source).map(|t| t.num_bytes() as u64).sum()
}

/// One matrix in format `target`. Converting lets go of the source's pages, so that no more than
/// one matrix is resident twice.
pub(crate) fn convert(
    store: &Store,
    source: &MatrixSource,
    shape: [usize; 2],
    target: &'static Format,
) -> Result<PackedMatrix, CheckpointError> {
    let stored = read_matrix(store, source, shape)?;
    if stored.format.name == target.name {
        return Ok(stored);
    }
    let made = stored.requantize(target).map_err(|matrix| CheckpointError::Matrix {
        parameter: source.weight.clone(),
        source: matrix,
    })?;
    tensors(store, source).for_each(super::store::Tensor::drop_pages);
    Ok(made)
}

/// Reads everything.
pub(crate) fn fill(
    spec: &ModelSpec,
    store: &Store,
    plan: &Plan,
    policy: &WeightPolicy,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(ModelWeights, LoadReport), CheckpointError> {
    check_policy(store, plan, policy)?;
    let mut report = LoadReport {
        warnings: plan.warnings.clone(),
        ignored: plan.ignored.clone(),
        ..LoadReport::default()
    };
    let total_bytes = source_bytes(store, plan);
    let mut done_bytes = 0;
    let mut filled = Filled::default();
    for param in &plan.params {
        let name = match param {
            Param::Vector { name, .. } => {
                let tensor = planned(store, &format!("{}{name}", plan.prefix));
                filled.vectors.insert(name.clone(), read_vector(tensor));
                done_bytes += tensor.num_bytes() as u64;
                name
            }
            Param::Matrix { module, role, rows, cols } => {
                let source = &plan.matrices[module];
                let target = target_format(store, source, policy, *role);
                let matrix = convert(store, source, [*rows, *cols], target)?;
                if target.name == stored_format(store, source).name {
                    report.mapped_bytes += matrix.num_bytes() as u64;
                } else {
                    report.converted_bytes += matrix.num_bytes() as u64;
                }
                filled.matrices.insert(module.clone(), matrix);
                done_bytes += matrix_bytes(store, source);
                module
            }
        };
        progress(Progress { done_bytes, total_bytes, name });
    }
    Ok((filled.model(spec), report))
}

impl Filled {
    fn matrix(&mut self, module: &str) -> PackedMatrix {
        self.matrices.remove(module).expect("params lists every matrix of the model once")
    }

    fn vector(&mut self, name: &str) -> Vec<f32> {
        self.vectors.remove(name).expect("params lists every vector of the model once")
    }

    fn model(mut self, spec: &ModelSpec) -> ModelWeights {
        let embed_tokens = self.matrix("model.embed_tokens");
        let lm_head = match spec.tie_word_embeddings {
            true => embed_tokens.clone(),
            false => self.matrix("lm_head"),
        };
        let layers = (0..spec.num_layers).map(|layer| self.layer(spec, layer)).collect();
        ModelWeights { embed_tokens, layers, norm: self.vector("model.norm.weight"), lm_head }
    }

    fn layer(&mut self, spec: &ModelSpec, layer: usize) -> LayerWeights {
        let name = super::params::layer_name(layer);
        let mlp = format!("{name}.mlp");
        LayerWeights {
            input_layernorm: self.vector(&format!("{name}.input_layernorm.weight")),
            attention: self.attention(spec, &format!("{name}.self_attn")),
            post_attention_layernorm: self
                .vector(&format!("{name}.post_attention_layernorm.weight")),
            mlp: if layer < spec.first_k_dense_replace {
                Mlp::Dense(self.gated(&mlp))
            } else {
                self.moe(spec, &mlp)
            },
        }
    }

    fn attention(&mut self, spec: &ModelSpec, name: &str) -> MlaWeights {
        let query = match spec.attention.q_lora_rank {
            Some(_) => QueryWeights::Latent {
                q_a_proj: self.matrix(&format!("{name}.q_a_proj")),
                q_a_layernorm: self.vector(&format!("{name}.q_a_layernorm.weight")),
                q_b_proj: self.matrix(&format!("{name}.q_b_proj")),
            },
            None => QueryWeights::Direct { q_proj: self.matrix(&format!("{name}.q_proj")) },
        };
        MlaWeights {
            query,
            kv_a_proj_with_mqa: self.matrix(&format!("{name}.kv_a_proj_with_mqa")),
            kv_a_layernorm: self.vector(&format!("{name}.kv_a_layernorm.weight")),
            kv_b_proj: self.matrix(&format!("{name}.kv_b_proj")),
            o_proj: self.matrix(&format!("{name}.o_proj")),
        }
    }

    fn moe(&mut self, spec: &ModelSpec, name: &str) -> Mlp {
        let experts = 0..spec.moe.n_routed_experts;
        Mlp::Moe {
            gate: self.matrix(&format!("{name}.gate")),
            e_score_correction_bias: self.vector(&format!("{name}.gate.e_score_correction_bias")),
            experts: experts.map(|e| self.gated(&format!("{name}.experts.{e}"))).collect(),
            shared: (spec.moe.n_shared_experts > 0)
                .then(|| self.gated(&format!("{name}.shared_experts"))),
        }
    }

    fn gated(&mut self, name: &str) -> GatedMlp {
        GatedMlp {
            gate_proj: self.matrix(&format!("{name}.gate_proj")),
            up_proj: self.matrix(&format!("{name}.up_proj")),
            down_proj: self.matrix(&format!("{name}.down_proj")),
        }
    }
}
