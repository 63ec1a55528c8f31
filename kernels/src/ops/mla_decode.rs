//! Attention in latent space over the paged cache, for decode steps.

use super::attention::{BatchIndex, check_batch, score, softmax, weigh};
use super::cache::{CacheView, KvDecoder};
use super::check::Check;
use super::dot::PARALLEL_MACS;
use super::mla_prefill::{MlaDims, PagedBatch};
use super::{Rows, RowsMut};
use crate::launch::{CacheId, DeviceShapes, PlanError, RowView};
use rayon::prelude::*;

/// Causal attention with absorbed queries: the cache entry is key and value at once.
///
/// # Shapes
/// - `ql_nope`: f32 `[num_tokens, num_heads * kv_lora_rank]`
/// - `q`: f32 `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]`; only rope is read
/// - `out`: f32 as `ql_nope`; `lse`: f32 `[num_tokens, num_heads]`, natural log
/// # Numerics
/// An empty sequence gives zeros and `lse = -inf`.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct MlaDecode {
    pub dims: MlaDims,
    pub ql_nope: RowView,
    pub q: RowView,
    pub cache: CacheId,
    pub layer: usize,
    pub batch: PagedBatch,
    pub softmax_scale: f32,
    pub out: RowView,
    pub lse: RowView,
}

/// What [`MlaDecode::reference`] reads.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as the launch")]
pub struct DecodeInputs<'a> {
    pub ql_nope: Rows<'a>,
    pub q: Rows<'a>,
    pub cache: CacheView<'a>,
    pub index: BatchIndex<'a>,
}

impl MlaDecode {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "mla_decode", shapes };
        let (dims, tokens) = (&self.dims, self.q.rows);
        dims.check(&check)?;
        check.view("q", &self.q, [tokens, dims.num_heads * dims.qk_head_dim()])?;
        let latent = [tokens, dims.num_heads * dims.kv_lora_rank];
        check.view("ql_nope", &self.ql_nope, latent)?;
        check.view("out", &self.out, latent)?;
        check.view("lse", &self.lse, [tokens, dims.num_heads])?;
        check.apart("out", self.out.buffer, &[self.q.buffer, self.ql_nope.buffer])?;
        let inputs = [self.q.buffer, self.ql_nope.buffer, self.out.buffer];
        check.apart("lse", self.lse.buffer, &inputs)?;
        check.cache_layer(self.cache, self.layer, dims.entry())?;
        check_batch(&check, &self.batch)
    }

    /// Attends.
    ///
    /// # Errors
    /// [`PlanError::Value`] if the row starts or lengths make no batch.
    pub fn reference(
        &self,
        inputs: &DecodeInputs<'_>,
        out: RowsMut<'_>,
        lse: RowsMut<'_>,
    ) -> Result<(), PlanError> {
        let (dims, cache) = (&self.dims, &inputs.cache);
        let seqs = inputs.index.seqs("mla_decode", self.q.rows, cache.spec.page_size)?;
        let decoder = KvDecoder::new(cache.spec.format);
        let (mut out, mut lse) = (out.into_rows().into_iter(), lse.into_rows().into_iter());
        let tasks: Vec<_> = seqs
            .iter()
            .map(|seq| {
                let rows: Vec<_> =
                    out.by_ref().zip(lse.by_ref()).take(seq.num_rows).enumerate().collect();
                (seq, rows)
            })
            .collect();
        let rank = dims.kv_lora_rank;
        tasks.into_par_iter().for_each(|(seq, rows)| {
            let entries = seq.gather(cache, &decoder, self.layer);
            for (i, (out, lse)) in rows {
                let (t, keys) = (seq.first_row + i, &entries[..seq.visible(i) * dims.entry()]);
                let head = |(h, (out, lse)): (usize, (&mut [f32], &mut f32))| {
                    let ql_nope = &inputs.ql_nope.row(t)[h * rank..][..rank];
                    let (_, q_pe) = dims.head_query(inputs.q.row(t), h);
                    let mut weights = vec![0.0; seq.visible(i)];
                    score((ql_nope, q_pe), keys, self.softmax_scale, &mut weights);
                    *lse = softmax(&mut weights);
                    weigh(&weights, keys, dims.entry(), out);
                };
                if keys.len() * dims.num_heads < PARALLEL_MACS {
                    out.chunks_mut(rank).zip(lse.iter_mut()).enumerate().for_each(head);
                } else {
                    let heads = out.par_chunks_mut(rank).zip(lse.par_iter_mut()).enumerate();
                    heads.for_each(head);
                }
            }
        });
        Ok(())
    }
}
