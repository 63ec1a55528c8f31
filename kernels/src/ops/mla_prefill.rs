//! Attention of a chunk of new tokens, with keys and values expanded from the cached latents.

use super::attention::{BatchIndex, Seq, check_batch, score, softmax, weigh};
use super::cache::{CacheView, KvDecoder};
use super::check::Check;
use super::dot::dot;
use super::{Rows, RowsMut};
use crate::formats::PackedMatrix;
use crate::launch::{BufferId, CacheId, DeviceShapes, PlanError, RowView, WeightId};
use rayon::prelude::*;

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

impl MlaDims {
    /// Elements of one head's query.
    pub const fn qk_head_dim(&self) -> usize {
        self.qk_nope_head_dim + self.qk_rope_head_dim
    }

    /// Elements of one token's cache entry in one layer.
    pub const fn entry(&self) -> usize {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    /// Rows of `kv_b` that belong to one head: its `w_k`, then its `w_v`.
    pub const fn kv_b_head_rows(&self) -> usize {
        self.qk_nope_head_dim + self.v_head_dim
    }

    pub(super) fn check(&self, check: &Check<'_>) -> Result<(), PlanError> {
        for (name, size) in [
            ("num_heads", self.num_heads),
            ("kv_lora_rank", self.kv_lora_rank),
            ("qk_nope_head_dim", self.qk_nope_head_dim),
            ("v_head_dim", self.v_head_dim),
        ] {
            check.ensure(size > 0, name, size, "at least 1")?;
        }
        Ok(())
    }

    /// Shape of `kv_b`.
    pub const fn kv_b_shape(&self) -> [usize; 2] {
        [self.num_heads * self.kv_b_head_rows(), self.kv_lora_rank]
    }

    /// The two halves of one head's query.
    pub(super) fn head_query<'a>(&self, q: &'a [f32], head: usize) -> (&'a [f32], &'a [f32]) {
        let size = self.qk_head_dim();
        q[head * size..][..size].split_at(self.qk_nope_head_dim)
    }

    /// Rows `start..start + count` of a head's part of `kv_b`, dequantized, row-major.
    pub(super) fn head_weight(
        &self,
        kv_b: &PackedMatrix,
        head: usize,
        start: usize,
        count: usize,
    ) -> Vec<f32> {
        let mut out = vec![0.0; count * self.kv_lora_rank];
        let first = head * self.kv_b_head_rows() + start;
        for (i, row) in out.chunks_mut(self.kv_lora_rank).enumerate() {
            kv_b.decode_row(first + i, row);
        }
        out
    }
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

/// What [`MlaPrefill::reference`] reads.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as the launch")]
pub struct PrefillInputs<'a> {
    pub q: Rows<'a>,
    pub kv_b: &'a PackedMatrix,
    pub cache: CacheView<'a>,
    pub index: BatchIndex<'a>,
}

/// Output of one head for the rows of every sequence: values `[num_tokens, v_head_dim]` and lse.
struct HeadOutput {
    values: Vec<f32>,
    lse: Vec<f32>,
}

impl MlaPrefill {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "mla_prefill", shapes };
        let (dims, tokens) = (&self.dims, self.q.rows);
        dims.check(&check)?;
        check.view("q", &self.q, [tokens, dims.num_heads * dims.qk_head_dim()])?;
        check.view("out", &self.out, [tokens, dims.num_heads * dims.v_head_dim])?;
        check.view("lse", &self.lse, [tokens, dims.num_heads])?;
        check.apart("out", self.out.buffer, &[self.q.buffer])?;
        check.apart("lse", self.lse.buffer, &[self.q.buffer, self.out.buffer])?;
        check.weight("kv_b", self.kv_b, dims.kv_b_shape())?;
        check.cache_layer(self.cache, self.layer, dims.entry())?;
        check_batch(&check, &self.batch)
    }

    /// Attends: one task a head, each with its part of `kv_b` decoded once.
    ///
    /// # Errors
    /// [`PlanError::Value`] if the row starts or lengths make no batch.
    pub fn reference(
        &self,
        inputs: &PrefillInputs<'_>,
        mut out: RowsMut<'_>,
        mut lse: RowsMut<'_>,
    ) -> Result<(), PlanError> {
        let (dims, cache) = (&self.dims, &inputs.cache);
        let seqs = inputs.index.seqs("mla_prefill", self.q.rows, cache.spec.page_size)?;
        let decoder = KvDecoder::new(cache.spec.format);
        for seq in seqs.iter().filter(|seq| seq.num_rows > 0) {
            let entries = seq.gather(cache, &decoder, self.layer);
            let heads: Vec<HeadOutput> = (0..dims.num_heads)
                .into_par_iter()
                .map(|head| self.head(inputs, seq, &entries, head))
                .collect();
            for (h, head) in heads.iter().enumerate() {
                for (i, values) in head.values.chunks(dims.v_head_dim).enumerate() {
                    let t = seq.first_row + i;
                    out.row_mut(t)[h * dims.v_head_dim..][..dims.v_head_dim]
                        .copy_from_slice(values);
                    lse.row_mut(t)[h] = head.lse[i];
                }
            }
        }
        Ok(())
    }

    fn head(
        &self,
        inputs: &PrefillInputs<'_>,
        seq: &Seq<'_>,
        entries: &[f32],
        head: usize,
    ) -> HeadOutput {
        let dims = &self.dims;
        let (nope, rank) = (dims.qk_nope_head_dim, dims.kv_lora_rank);
        let w_k = dims.head_weight(inputs.kv_b, head, 0, nope);
        let w_v = dims.head_weight(inputs.kv_b, head, nope, dims.v_head_dim);
        let mut keys = vec![0.0; seq.len * dims.qk_head_dim()];
        let mut values = vec![0.0; seq.len * dims.v_head_dim];
        let tokens = entries.chunks(dims.entry());
        let expanded = keys.chunks_mut(dims.qk_head_dim()).zip(values.chunks_mut(dims.v_head_dim));
        for (entry, (key, value)) in tokens.zip(expanded) {
            let (latent, k_pe) = entry.split_at(rank);
            project(latent, &w_k, &mut key[..nope]);
            key[nope..].copy_from_slice(k_pe);
            project(latent, &w_v, value);
        }
        let mut out = HeadOutput {
            values: vec![0.0; seq.num_rows * dims.v_head_dim],
            lse: Vec::with_capacity(seq.num_rows),
        };
        let mut weights = vec![0.0; seq.len];
        for (i, out_row) in out.values.chunks_mut(dims.v_head_dim).enumerate() {
            let query = dims.head_query(inputs.q.row(seq.first_row + i), head);
            let weights = &mut weights[..seq.visible(i)];
            score(query, &keys, self.softmax_scale, weights);
            out.lse.push(softmax(weights));
            weigh(weights, &values, dims.v_head_dim, out_row);
        }
        out
    }
}

/// `out = weight * x`, weight row-major `[out.len(), x.len()]`.
pub(super) fn project(x: &[f32], weight: &[f32], out: &mut [f32]) {
    for (out, row) in out.iter_mut().zip(weight.chunks(x.len())) {
        *out = dot(row, x);
    }
}
