//! What both attention ops share: who reads which tokens, the softmax, and merging of parts.

use super::cache::{CacheView, KvDecoder};
use super::check::Check;
use super::dot::{PARALLEL_MACS, add_scaled, dot};
use super::mla_prefill::PagedBatch;
use crate::launch::{BufferType, PlanError};
use rayon::prelude::*;

/// The index buffers of a [`PagedBatch`].
#[derive(Debug, Clone, Copy)]
pub struct BatchIndex<'a> {
    /// i32 `[num_seqs, max_pages_per_seq]`.
    pub block_table: &'a [i32],
    /// i32 `[num_seqs]`.
    pub seq_lens: &'a [i32],
    /// i32 `[num_seqs + 1]`.
    pub cu_seqlens_q: &'a [i32],
    /// Extents of the above.
    pub batch: PagedBatch,
}

/// One sequence of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seq<'a> {
    /// Its first row.
    pub(super) first_row: usize,
    /// Its rows.
    pub(super) num_rows: usize,
    /// Its tokens in the cache, this step's included.
    pub(super) len: usize,
    /// Its pages.
    pub(super) pages: &'a [i32],
}

impl<'a> BatchIndex<'a> {
    /// The sequences of a step of `num_tokens` rows.
    ///
    /// # Errors
    /// [`PlanError::Value`] if the row starts do not rise from 0 to `num_tokens`, or a length is
    /// negative or past the block table.
    pub(super) fn seqs(
        &self,
        op: &'static str,
        num_tokens: usize,
        page_size: usize,
    ) -> Result<Vec<Seq<'a>>, PlanError> {
        let value = |arg, got: i32, want| PlanError::Value { op, arg, got: got.to_string(), want };
        let PagedBatch { num_seqs, max_pages_per_seq, .. } = self.batch;
        let starts = &self.cu_seqlens_q[..=num_seqs];
        let mut seqs = Vec::with_capacity(num_seqs);
        let mut row = 0;
        for s in 0..num_seqs {
            let end =
                usize::try_from(starts[s + 1]).ok().filter(|end| (row..=num_tokens).contains(end));
            let starts_at = usize::try_from(starts[s]).ok() == Some(row);
            let end = end.filter(|_| starts_at).ok_or_else(|| {
                value("cu_seqlens_q", starts[s + 1], "row starts that rise from 0 to `num_tokens`")
            })?;
            let len = usize::try_from(self.seq_lens[s]).ok();
            let len = len.filter(|len| len.div_ceil(page_size) <= max_pages_per_seq);
            let want = "a length that the block table covers";
            let len = len.ok_or_else(|| value("seq_lens", self.seq_lens[s], want))?;
            let pages = &self.block_table[s * max_pages_per_seq..][..len.div_ceil(page_size)];
            seqs.push(Seq { first_row: row, num_rows: end - row, len, pages });
            row = end;
        }
        if row != num_tokens {
            let want = "row starts that rise from 0 to `num_tokens`";
            return Err(value("cu_seqlens_q", starts[num_seqs], want));
        }
        Ok(seqs)
    }
}

impl Seq<'_> {
    /// Tokens that row `row` of this sequence attends to: itself and those before it.
    pub(super) fn visible(&self, row: usize) -> usize {
        (self.len + row + 1).saturating_sub(self.num_rows)
    }

    /// The sequence's cache entries in one layer as f32 `[len, entry]`.
    ///
    /// An entry whose page id is out of range is NaN: such a table fails the tag check, and until
    /// then the damage must show, in this sequence and in no other.
    pub(super) fn gather(
        &self,
        cache: &CacheView<'_>,
        decoder: &KvDecoder,
        layer: usize,
    ) -> Vec<f32> {
        let (entry, page_size) = (cache.spec.entry, cache.spec.page_size);
        let mut out = vec![0.0; self.len * entry];
        let fill = |(p, out): (usize, &mut [f32])| {
            let page = usize::try_from(self.pages[p]).ok().filter(|&p| p < cache.spec.num_pages);
            let Some(page) = page else {
                out.fill(f32::NAN);
                return;
            };
            for (i, out) in out.chunks_mut(entry).enumerate() {
                cache.decode(decoder, layer, page * page_size + i, out);
            }
        };
        let chunk = (page_size * entry).max(1);
        if out.len() < PARALLEL_MACS {
            out.chunks_mut(chunk).enumerate().for_each(fill);
        } else {
            out.par_chunks_mut(chunk).enumerate().for_each(fill);
        }
        out
    }
}

/// Checks the index buffers of a batch.
pub(super) fn check_batch(check: &Check<'_>, batch: &PagedBatch) -> Result<(), PlanError> {
    let table = batch.num_seqs.saturating_mul(batch.max_pages_per_seq);
    check.array("block_table", batch.block_table, BufferType::I32, table)?;
    check.array("seq_lens", batch.seq_lens, BufferType::I32, batch.num_seqs)?;
    check.array("cu_seqlens_q", batch.cu_seqlens_q, BufferType::I32, batch.num_seqs + 1)
}

/// Turns `scores` into weights that sum to one and returns their natural log-sum-exp.
///
/// No scores, or only `-inf`, give weights of zero and `-inf`.
pub(super) fn softmax(scores: &mut [f32]) -> f32 {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY && !scores.iter().any(|s| s.is_nan()) {
        scores.fill(0.0);
        return f32::NEG_INFINITY;
    }
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - max).exp();
        sum += *score;
    }
    let factor = 1.0 / sum;
    scores.iter_mut().for_each(|score| *score *= factor);
    max + sum.ln()
}

/// Weighted sum of rows of `values` (`stride` apart, as wide as `out`), in the order of the rows.
pub(super) fn weigh(weights: &[f32], values: &[f32], stride: usize, out: &mut [f32]) {
    out.fill(0.0);
    let width = out.len();
    for (weight, value) in weights.iter().zip(values.chunks(stride)) {
        add_scaled(out, *weight, &value[..width]);
    }
}

/// `scores[i] = scale * (dot(a, keys[i][..a.len()]) + dot(b, keys[i][a.len()..]))`.
pub(super) fn score(query: (&[f32], &[f32]), keys: &[f32], scale: f32, scores: &mut [f32]) {
    let (a, b) = query;
    let width = a.len() + b.len();
    for (score, key) in scores.iter_mut().zip(keys.chunks(width)) {
        let (key_a, key_b) = key.split_at(a.len());
        *score = scale * (dot(a, key_a) + dot(b, key_b));
    }
}

/// Attention of the same query over two disjoint sets of tokens, from the attention over each.
///
/// # Shapes
/// - `out`, `other_out`: f32 `[v_head_dim]`; the result replaces `out`
/// - `lse`, `other_lse`: natural log; `-inf` for a set without tokens, whose output counts nothing
///
/// Returns the log-sum-exp of the union.
pub fn merge(out: &mut [f32], lse: f32, other_out: &[f32], other_lse: f32) -> f32 {
    if other_lse == f32::NEG_INFINITY {
        return lse;
    }
    if lse == f32::NEG_INFINITY {
        out.copy_from_slice(other_out);
        return other_lse;
    }
    let max = lse.max(other_lse);
    let (weight, other_weight) = ((lse - max).exp(), (other_lse - max).exp());
    let sum = weight + other_weight;
    for (out, other) in out.iter_mut().zip(other_out) {
        *out = (*out * weight + other * other_weight) / sum;
    }
    max + sum.ln()
}
