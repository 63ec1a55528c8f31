//! Which launches a decoder layer is.

use super::workspace::Views;
use super::{GatedMlp, LayerWeights, MlaWeights, Mlp, ModelSpec, QueryWeights};
use crate::device::{Device, DeviceError};
use std::sync::Arc;
use tessera_kernels::launch::{BufferId, CacheId, Launch, RowView, WeightId};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::combine::Combine;
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::linear::{GroupedLinear, Linear};
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::mla_prefill::MlaPrefill;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::rope::{Rope, Rotation};
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::swiglu::SwiGlu;

/// How a pool attends: both give the same function of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Keys and values are expanded from the latents: fewer operations for many new tokens.
    Expanded,
    /// Queries move into latent space: fewer bytes for one new token a sequence.
    Absorbed,
}

/// Where a layer runs: its place in which cache, and how it attends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) cache: CacheId,
    pub(super) layer: usize,
    pub(super) attention: Attention,
}

/// One layer's weights on the device.
#[derive(Debug)]
pub(super) struct LayerIds {
    input_layernorm: BufferId,
    attention: AttentionIds,
    post_attention_layernorm: BufferId,
    mlp: MlpIds,
}

#[derive(Debug)]
struct AttentionIds {
    query: QueryIds,
    kv_a_proj: WeightId,
    kv_a_layernorm: BufferId,
    kv_b_proj: WeightId,
    o_proj: WeightId,
}

#[derive(Debug)]
enum QueryIds {
    Latent { q_a: WeightId, norm: BufferId, q_b: WeightId },
    Direct(WeightId),
}

#[derive(Debug)]
enum MlpIds {
    Dense(GatedIds),
    Moe { gate: WeightId, bias: BufferId, experts: ExpertIds, shared: Option<GatedIds> },
}

#[derive(Debug)]
struct GatedIds {
    gate: WeightId,
    up: WeightId,
    down: WeightId,
    width: usize,
}

#[derive(Debug)]
struct ExpertIds {
    gate: Arc<[WeightId]>,
    up: Arc<[WeightId]>,
    down: Arc<[WeightId]>,
}

impl LayerIds {
    pub(super) fn load<D: Device>(
        device: &mut D,
        layer: LayerWeights,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            input_layernorm: vector(device, &layer.input_layernorm)?,
            attention: AttentionIds::load(device, layer.attention)?,
            post_attention_layernorm: vector(device, &layer.post_attention_layernorm)?,
            mlp: MlpIds::load(device, layer.mlp)?,
        })
    }

    /// The weight that attention in latent space absorbs.
    pub(super) const fn kv_b(&self) -> WeightId {
        self.attention.kv_b_proj
    }

    /// Appends the layer's launches, in order: `views.hidden` and `views.delta` in, the same out.
    ///
    /// The residual stream is `hidden + delta`; the first layer's `delta` does not exist yet.
    pub(super) fn push(
        &self,
        spec: &ModelSpec,
        views: &Views,
        place: Place,
        out: &mut Vec<Launch>,
    ) {
        let norm = |x, residual, weight| {
            Launch::RmsNorm(RmsNorm {
                x,
                residual,
                weight,
                eps: spec.rms_norm_eps,
                out: views.normed,
            })
        };
        out.push(match place.layer {
            0 => norm(views.hidden, None, self.input_layernorm),
            _ => norm(views.delta, Some(views.hidden), self.input_layernorm),
        });
        self.attention.project(spec, views, out);
        self.attention.attend(spec, views, place, out);
        out.push(linear(views.attended, self.attention.o_proj, views.delta));
        out.push(norm(views.delta, Some(views.hidden), self.post_attention_layernorm));
        self.mlp.push(spec, views, out);
    }
}

impl AttentionIds {
    fn load<D: Device>(device: &mut D, weights: MlaWeights) -> Result<Self, DeviceError> {
        let query = match weights.query {
            QueryWeights::Direct { q_proj } => QueryIds::Direct(device.load_weight(q_proj)?),
            QueryWeights::Latent { q_a_proj, q_a_layernorm, q_b_proj } => QueryIds::Latent {
                q_a: device.load_weight(q_a_proj)?,
                norm: vector(device, &q_a_layernorm)?,
                q_b: device.load_weight(q_b_proj)?,
            },
        };
        Ok(Self {
            query,
            kv_a_proj: device.load_weight(weights.kv_a_proj_with_mqa)?,
            kv_a_layernorm: vector(device, &weights.kv_a_layernorm)?,
            kv_b_proj: device.load_weight(weights.kv_b_proj)?,
            o_proj: device.load_weight(weights.o_proj)?,
        })
    }

    /// Queries and latents of the new tokens, rotated.
    fn project(&self, spec: &ModelSpec, views: &Views, out: &mut Vec<Launch>) {
        let eps = spec.attention.latent_norm_eps;
        match self.query {
            QueryIds::Direct(q_proj) => out.push(linear(views.normed, q_proj, views.q)),
            QueryIds::Latent { q_a, norm, q_b } => {
                out.push(linear(views.normed, q_a, views.q_latent));
                out.push(Launch::RmsNorm(RmsNorm {
                    x: views.q_latent,
                    residual: None,
                    weight: norm,
                    eps,
                    out: views.q_latent_normed,
                }));
                out.push(linear(views.q_latent_normed, q_b, views.q));
            }
        }
        let dims = views.dims;
        out.push(linear(views.normed, self.kv_a_proj, views.kv_a));
        out.push(Launch::RmsNorm(RmsNorm {
            x: views.kv_a.columns(0, dims.kv_lora_rank),
            residual: None,
            weight: self.kv_a_layernorm,
            eps,
            out: views.kv_latent,
        }));
        let q_pe = views.q.columns(dims.qk_nope_head_dim, views.q.cols - dims.qk_nope_head_dim);
        out.push(Launch::Rope(Rope {
            x: q_pe,
            num_heads: dims.num_heads,
            head_stride: dims.qk_nope_head_dim + dims.qk_rope_head_dim,
            rope_dim: dims.qk_rope_head_dim,
            rotation: rotation(spec, views),
        }));
    }

    fn attend(&self, spec: &ModelSpec, views: &Views, place: Place, out: &mut Vec<Launch>) {
        let Place { cache, layer, attention } = place;
        let (dims, batch, lse) = (views.dims, views.batch, views.lse);
        let (kv_b, softmax_scale) = (self.kv_b_proj, spec.attention.softmax_scale);
        out.push(Launch::KvWrite(KvWrite {
            latent: views.kv_latent,
            k_pe: k_pe(views),
            rotation: rotation(spec, views),
            slot_mapping: views.slot_mapping,
            cache,
            layer,
            saturated: views.saturated,
        }));
        match attention {
            Attention::Expanded => out.push(Launch::MlaPrefill(MlaPrefill {
                dims,
                q: views.q,
                kv_b,
                cache,
                layer,
                batch,
                softmax_scale,
                out: views.attended,
                lse,
            })),
            Attention::Absorbed => {
                let (ql_nope, latent) = (views.ql_nope, views.latent_out);
                out.push(Launch::AbsorbQuery(AbsorbQuery { dims, q: views.q, kv_b, ql_nope }));
                out.push(Launch::MlaDecode(MlaDecode {
                    dims,
                    ql_nope,
                    q: views.q,
                    cache,
                    layer,
                    batch,
                    softmax_scale,
                    out: latent,
                    lse,
                }));
                out.push(Launch::AbsorbValue(AbsorbValue {
                    dims,
                    latent,
                    kv_b,
                    out: views.attended,
                }));
            }
        }
    }
}

impl MlpIds {
    fn load<D: Device>(device: &mut D, mlp: Mlp) -> Result<Self, DeviceError> {
        Ok(match mlp {
            Mlp::Dense(dense) => Self::Dense(GatedIds::load(device, dense)?),
            Mlp::Moe { gate, e_score_correction_bias, experts, shared } => Self::Moe {
                gate: device.load_weight(gate)?,
                bias: vector(device, &e_score_correction_bias)?,
                experts: ExpertIds::load(device, experts)?,
                shared: shared.map(|shared| GatedIds::load(device, shared)).transpose()?,
            },
        })
    }

    fn push(&self, spec: &ModelSpec, views: &Views, out: &mut Vec<Launch>) {
        match self {
            Self::Dense(dense) => dense.push(views, views.delta, out),
            Self::Moe { gate, bias, experts, shared } => {
                out.push(linear(views.normed, *gate, views.router_logits));
                push_routing(spec, views, *bias, out);
                experts.push(spec, views, out);
                if let Some(shared) = shared {
                    shared.push(views, views.shared_out, out);
                }
                out.push(Launch::Combine(Combine {
                    x: views.expert_out,
                    order: views.order,
                    topk_weights: views.topk_weights,
                    top_k: spec.moe.num_experts_per_tok,
                    shared: shared.as_ref().map(|_| views.shared_out),
                    out: views.delta,
                }));
            }
        }
    }
}

impl GatedIds {
    fn load<D: Device>(device: &mut D, mlp: GatedMlp) -> Result<Self, DeviceError> {
        let width = mlp.gate_proj.rows;
        Ok(Self {
            gate: device.load_weight(mlp.gate_proj)?,
            up: device.load_weight(mlp.up_proj)?,
            down: device.load_weight(mlp.down_proj)?,
            width,
        })
    }

    fn push(&self, views: &Views, to: RowView, out: &mut Vec<Launch>) {
        let [gate, up, activated] = [views.gate, views.up, views.activated]
            .map(|buffer| RowView::contiguous(buffer, views.tokens, self.width));
        out.push(linear(views.normed, self.gate, gate));
        out.push(linear(views.normed, self.up, up));
        out.push(Launch::SwiGlu(SwiGlu { gate, up, out: activated }));
        out.push(linear(activated, self.down, to));
    }
}

impl ExpertIds {
    fn load<D: Device>(device: &mut D, experts: Vec<GatedMlp>) -> Result<Self, DeviceError> {
        let (mut gate, mut up, mut down) = (Vec::new(), Vec::new(), Vec::new());
        for expert in experts {
            gate.push(expert.gate_proj);
            up.push(expert.up_proj);
            down.push(expert.down_proj);
        }
        let mut load = |matrices| device.load_weights(matrices).map(Arc::from);
        Ok(Self { gate: load(gate)?, up: load(up)?, down: load(down)? })
    }

    fn push(&self, spec: &ModelSpec, views: &Views, out: &mut Vec<Launch>) {
        let rows = views.permuted.rows;
        let [gate, up, activated] = [views.gate, views.up, views.activated]
            .map(|buffer| RowView::contiguous(buffer, rows, spec.moe.moe_intermediate_size));
        let expert_offsets = views.expert_offsets;
        let grouped = |x, weights: &Arc<[WeightId]>, out| {
            Launch::GroupedLinear(GroupedLinear {
                x,
                weights: weights.clone(),
                expert_offsets,
                out,
            })
        };
        out.push(grouped(views.permuted, &self.gate, gate));
        out.push(grouped(views.permuted, &self.up, up));
        out.push(Launch::SwiGlu(SwiGlu { gate, up, out: activated }));
        out.push(grouped(activated, &self.down, views.expert_out));
    }
}

/// Elements the gate, up and activation buffers need for a step of `tokens` tokens.
pub(super) fn max_mlp_width(spec: &ModelSpec, tokens: usize) -> usize {
    let moe = &spec.moe;
    let shared = moe.n_shared_experts * moe.moe_intermediate_size;
    let routed = moe.num_experts_per_tok * moe.moe_intermediate_size;
    tokens * spec.intermediate_size.max(shared).max(routed)
}

fn push_routing(spec: &ModelSpec, views: &Views, bias: BufferId, out: &mut Vec<Launch>) {
    let moe = &spec.moe;
    out.push(Launch::Router(Router {
        logits: views.router_logits,
        bias,
        top_k: moe.num_experts_per_tok,
        num_groups: moe.n_group,
        topk_groups: moe.topk_group,
        norm_topk_prob: moe.norm_topk_prob,
        routed_scaling_factor: moe.routed_scaling_factor,
        topk_ids: views.topk_ids,
        topk_weights: views.topk_weights,
    }));
    out.push(Launch::Permute(Permute {
        x: views.normed,
        topk_ids: views.topk_ids,
        top_k: moe.num_experts_per_tok,
        num_experts: moe.n_routed_experts,
        out: views.permuted,
        order: views.order,
        expert_offsets: views.expert_offsets,
    }));
}

fn vector<D: Device>(device: &mut D, values: &[f32]) -> Result<BufferId, DeviceError> {
    let buffer = device.alloc_f32(values.len())?;
    device.write_f32(buffer, values)?;
    Ok(buffer)
}

fn linear(x: RowView, weight: WeightId, out: RowView) -> Launch {
    Launch::Linear(Linear { x, weight, out })
}

fn k_pe(views: &Views) -> RowView {
    views.kv_a.columns(views.dims.kv_lora_rank, views.dims.qk_rope_head_dim)
}

fn rotation(spec: &ModelSpec, views: &Views) -> Rotation {
    Rotation {
        positions: views.positions,
        inv_freq: views.inv_freq,
        magnitude: views.rope_magnitude,
        interleaved: spec.rope.interleaved,
    }
}
