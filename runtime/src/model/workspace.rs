//! The buffers of a step, allocated once for the largest step a pool will run.

use super::forward::StepLimits;
use super::host::StepInputs;
use super::{ModelSpec, layers::max_mlp_width};
use crate::cache::{PageTracker, tracking};
use crate::device::{Device, DeviceError};
use tessera_kernels::formats::Element;
use tessera_kernels::launch::{BufferId, RowView};
use tessera_kernels::ops::mla_prefill::{MlaDims, PagedBatch};
use tessera_kernels::ops::rope::RopeTable;
use tessera_kernels::ops::sample::MAX_TOP_LOGPROBS;

/// What a workspace is sized for.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkspaceLimits {
    pub(super) step: StepLimits,
    pub(super) num_layers: usize,
    pub(super) page_size: usize,
    /// Cache elements of one token in one layer.
    pub(super) entry: usize,
}

/// Buffers by what they hold.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) limits: StepLimits,
    pub(super) ids: BufferId,
    /// Where the ids come from, if they are made on the device.
    pub(super) source: BufferId,
    positions: BufferId,
    pub(super) slot_mapping: BufferId,
    pub(super) cu_seqlens_q: BufferId,
    seq_lens: BufferId,
    pub(super) block_table: BufferId,
    pub(super) expected_tags: BufferId,
    pub(super) num_pages: BufferId,
    pub(super) mismatch: BufferId,
    pub(super) saturated: BufferId,
    hidden: BufferId,
    pub(super) normed: BufferId,
    delta: BufferId,
    q_latent: BufferId,
    q_latent_normed: BufferId,
    q: BufferId,
    kv_a: BufferId,
    kv_latent: BufferId,
    ql_nope: BufferId,
    latent_out: BufferId,
    attended: BufferId,
    lse: BufferId,
    router_logits: BufferId,
    topk_ids: BufferId,
    topk_weights: BufferId,
    order: BufferId,
    expert_offsets: BufferId,
    permuted: BufferId,
    expert_out: BufferId,
    gate: BufferId,
    up: BufferId,
    activated: BufferId,
    shared_out: BufferId,
    inv_freq: BufferId,
    rope_magnitude: f32,
    pub(super) picked_rows: BufferId,
    pub(super) picked: BufferId,
    pub(super) logits: BufferId,
    pub(super) sampled: BufferId,
    pub(super) sampled_logprob: BufferId,
    pub(super) top_ids: BufferId,
    pub(super) top_logprobs: BufferId,
    /// f32 `[num_layers]`: scales or magnitudes of one page.
    pub(super) page_layers: BufferId,
    /// u64 `[num_layers]`: digests of one page.
    pub(super) page_digests: BufferId,
    /// Bytes of one page in any format.
    pub(super) page_bytes: BufferId,
    /// u32 `[num_layers, page_size]`: clamped elements of one page's conversion.
    pub(super) page_saturated: BufferId,
}

impl Workspace {
    pub(super) fn new<D: Device>(
        device: &mut D,
        spec: &ModelSpec,
        limits: WorkspaceLimits,
    ) -> Result<Self, DeviceError> {
        let WorkspaceLimits { step: limits, num_layers, page_size, entry } = limits;
        let page_elements = num_layers * page_size * entry;
        let (t, s, rows) = (limits.tokens, limits.seqs, limits.logit_rows);
        let (attn, moe, hidden) = (&spec.attention, &spec.moe, spec.hidden_size);
        let heads = attn.num_heads;
        let q_rank = attn.q_lora_rank.unwrap_or(0);
        let choices = t * moe.num_experts_per_tok;
        let mlp = max_mlp_width(spec, t);
        let rope = RopeTable::new(&spec.rope.parameters(attn.qk_rope_head_dim));
        let inv_freq = device.alloc_f32(rope.inv_freq.len())?;
        device.write_f32(inv_freq, &rope.inv_freq)?;
        Ok(Self {
            limits,
            ids: device.alloc_i32(t)?,
            source: device.alloc_i32(t)?,
            positions: device.alloc_i32(t)?,
            slot_mapping: device.alloc_i64(t)?,
            cu_seqlens_q: device.alloc_i32(s + 1)?,
            seq_lens: device.alloc_i32(s)?,
            block_table: device.alloc_i32(s * limits.pages_per_seq)?,
            expected_tags: device.alloc_u64(s * limits.pages_per_seq)?,
            num_pages: device.alloc_i32(s)?,
            mismatch: device.alloc_i32(s)?,
            saturated: device.alloc_u32(t)?,
            hidden: device.alloc_f32(t * hidden)?,
            normed: device.alloc_f32(t * hidden)?,
            delta: device.alloc_f32(t * hidden)?,
            q_latent: device.alloc_f32(t * q_rank)?,
            q_latent_normed: device.alloc_f32(t * q_rank)?,
            q: device.alloc_f32(t * heads * (attn.qk_nope_head_dim + attn.qk_rope_head_dim))?,
            kv_a: device.alloc_f32(t * (attn.kv_lora_rank + attn.qk_rope_head_dim))?,
            kv_latent: device.alloc_f32(t * attn.kv_lora_rank)?,
            ql_nope: device.alloc_f32(t * heads * attn.kv_lora_rank)?,
            latent_out: device.alloc_f32(t * heads * attn.kv_lora_rank)?,
            attended: device.alloc_f32(t * heads * attn.v_head_dim)?,
            lse: device.alloc_f32(t * heads)?,
            router_logits: device.alloc_f32(t * moe.n_routed_experts)?,
            topk_ids: device.alloc_i32(choices)?,
            topk_weights: device.alloc_f32(choices)?,
            order: device.alloc_i32(choices)?,
            expert_offsets: device.alloc_i32(moe.n_routed_experts + 1)?,
            permuted: device.alloc_f32(choices * hidden)?,
            expert_out: device.alloc_f32(choices * hidden)?,
            gate: device.alloc_f32(mlp)?,
            up: device.alloc_f32(mlp)?,
            activated: device.alloc_f32(mlp)?,
            shared_out: device.alloc_f32(t * hidden)?,
            inv_freq,
            rope_magnitude: rope.magnitude,
            picked_rows: device.alloc_i32(rows)?,
            picked: device.alloc_f32(rows * hidden)?,
            logits: device.alloc_f32(rows * spec.vocab_size)?,
            sampled: device.alloc_i32(rows)?,
            sampled_logprob: device.alloc_f32(rows)?,
            top_ids: device.alloc_i32(rows * MAX_TOP_LOGPROBS as usize)?,
            top_logprobs: device.alloc_f32(rows * MAX_TOP_LOGPROBS as usize)?,
            page_layers: device.alloc_f32(num_layers)?,
            page_digests: device.alloc_u64(num_layers)?,
            page_bytes: device.alloc_bytes(page_elements * Element::F32.bits() / 8)?,
            page_saturated: device.alloc_u32(num_layers * page_size)?,
        })
    }

    /// Writes a step's inputs.
    pub(super) fn write_step<D: Device, T: PageTracker>(
        &self,
        device: &mut D,
        inputs: &StepInputs,
    ) -> Result<(), DeviceError> {
        let ids = if inputs.are_fed { self.source } else { self.ids };
        device.write_i32(ids, &inputs.ids)?;
        device.write_i32(self.positions, &inputs.positions)?;
        device.write_i64(self.slot_mapping, &inputs.slots)?;
        device.write_i32(self.cu_seqlens_q, &inputs.cu_seqlens_q)?;
        device.write_i32(self.seq_lens, &inputs.seq_lens)?;
        device.write_i32(self.block_table, &inputs.block_table)?;
        tracking! {
            if T::KEEPS_TAGS {
                device.write_u64(self.expected_tags, &inputs.expected_tags)?;
                device.write_i32(self.num_pages, &inputs.num_pages)?;
            }
        }
        device.write_i32(self.picked_rows, &inputs.last_rows)?;
        device.write_u32(self.saturated, &inputs.zeros)
    }

    /// The views of a step of that many tokens.
    pub(super) fn views(&self, spec: &ModelSpec, tokens: usize, num_seqs: usize) -> Views {
        let (attn, moe, hidden) = (&spec.attention, &spec.moe, spec.hidden_size);
        let rows = |buffer, cols| RowView::contiguous(buffer, tokens, cols);
        let choices =
            |buffer, cols| RowView::contiguous(buffer, tokens * moe.num_experts_per_tok, cols);
        let qk = attn.qk_nope_head_dim + attn.qk_rope_head_dim;
        Views {
            tokens,
            dims: mla_dims(spec),
            batch: PagedBatch {
                num_seqs,
                max_pages_per_seq: self.limits.pages_per_seq,
                block_table: self.block_table,
                seq_lens: self.seq_lens,
                cu_seqlens_q: self.cu_seqlens_q,
            },
            positions: self.positions,
            slot_mapping: self.slot_mapping,
            saturated: self.saturated,
            inv_freq: self.inv_freq,
            rope_magnitude: self.rope_magnitude,
            hidden: rows(self.hidden, hidden),
            normed: rows(self.normed, hidden),
            delta: rows(self.delta, hidden),
            q_latent: rows(self.q_latent, attn.q_lora_rank.unwrap_or(0)),
            q_latent_normed: rows(self.q_latent_normed, attn.q_lora_rank.unwrap_or(0)),
            q: rows(self.q, attn.num_heads * qk),
            kv_a: rows(self.kv_a, attn.kv_lora_rank + attn.qk_rope_head_dim),
            kv_latent: rows(self.kv_latent, attn.kv_lora_rank),
            ql_nope: rows(self.ql_nope, attn.num_heads * attn.kv_lora_rank),
            latent_out: rows(self.latent_out, attn.num_heads * attn.kv_lora_rank),
            attended: rows(self.attended, attn.num_heads * attn.v_head_dim),
            lse: rows(self.lse, attn.num_heads),
            router_logits: rows(self.router_logits, moe.n_routed_experts),
            topk_ids: self.topk_ids,
            topk_weights: self.topk_weights,
            order: self.order,
            expert_offsets: self.expert_offsets,
            permuted: choices(self.permuted, hidden),
            expert_out: choices(self.expert_out, hidden),
            gate: self.gate,
            up: self.up,
            activated: self.activated,
            shared_out: rows(self.shared_out, hidden),
        }
    }
}

/// The workspace as the launches of one step see it.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) tokens: usize,
    pub(super) dims: MlaDims,
    pub(super) batch: PagedBatch,
    pub(super) positions: BufferId,
    pub(super) slot_mapping: BufferId,
    pub(super) saturated: BufferId,
    pub(super) inv_freq: BufferId,
    pub(super) rope_magnitude: f32,
    pub(super) hidden: RowView,
    pub(super) normed: RowView,
    pub(super) delta: RowView,
    pub(super) q_latent: RowView,
    pub(super) q_latent_normed: RowView,
    pub(super) q: RowView,
    pub(super) kv_a: RowView,
    pub(super) kv_latent: RowView,
    pub(super) ql_nope: RowView,
    pub(super) latent_out: RowView,
    pub(super) attended: RowView,
    pub(super) lse: RowView,
    pub(super) router_logits: RowView,
    pub(super) topk_ids: BufferId,
    pub(super) topk_weights: BufferId,
    pub(super) order: BufferId,
    pub(super) expert_offsets: BufferId,
    pub(super) permuted: RowView,
    pub(super) expert_out: RowView,
    pub(super) gate: BufferId,
    pub(super) up: BufferId,
    pub(super) activated: BufferId,
    pub(super) shared_out: RowView,
}

/// The extents of attention.
pub(super) fn mla_dims(spec: &ModelSpec) -> MlaDims {
    let attn = &spec.attention;
    MlaDims {
        num_heads: attn.num_heads,
        kv_lora_rank: attn.kv_lora_rank,
        qk_nope_head_dim: attn.qk_nope_head_dim,
        qk_rope_head_dim: attn.qk_rope_head_dim,
        v_head_dim: attn.v_head_dim,
    }
}
