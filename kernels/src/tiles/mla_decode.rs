//! Attention in latent space over the paged cache, for decode steps: in parts, then merged.

use super::paging::{Pages, lookup, seq_of};
use super::softmax::{Softmax, finish, update};
use crate::formats::kv_formats;
use tessera_kernel_dsl::prelude::*;

/// Output elements merged at once.
const BLOCK: usize = 256;

/// Attention of each row over the tokens `part * split_tokens..` of its sequence, at most
/// `split_tokens` of them; the cache entry is key and value at once.
///
/// The parts depend on the sequence alone, never on the batch, and so do the bits. A part without
/// tokens gives zeros and `-inf`. With one part the result needs no [`mla_merge`].
///
/// `(DC, DR)` are at least `(RANK, ROPE)`: what a variant has too much reads as zeros. `KEYS` cached
/// tokens are taken at once, for `HEADS` heads: on a GPU, where shared memory has room for little
/// more than 1024 products a step, codes that are decoded for twice the heads are decoded half as
/// often.
#[kernel(
    grid = (T, cdiv(H, HEADS), PARTS),
    formats(KV = kv_formats),
    variants(
        cpu: (DC, DR) = [(64, 32), (512, 64)], KEYS = [32], HEADS = [16];
        gpu: (DC, DR, KEYS, HEADS, WARPS) = [(64, 32, 32, 16, 4), (512, 64, 32, 32, 8)], STAGES = [2]
    ),
    class = bounded
)]
pub fn mla_decode<KV: Stored>(
    ql_nope: &In<f32, { [T, H, RANK] }>,
    q_pe: &In<f32, { [T, H, ROPE] }>,
    ckv_cache: &In<KV, { [SLOTS, RANK] }>,
    kpe_cache: &In<KV, { [SLOTS, ROPE] }>,
    k_scale: &In<f32, { [PAGES] }>,
    page_size: i64,
    block_table: &In<i32, { [S, MAX_PAGES] }>,
    seq_lens: &In<i32, { [S] }>,
    cu_seqlens_q: &In<i32, { [S + 1] }>,
    split_tokens: i64,
    softmax_scale: f32,
    out: &mut Out<f32, { [PARTS, T, H, RANK] }>,
    lse: &mut Out<f32, { [PARTS, T, H] }>,
) {
    assert_all((RANK <= DC) & (ROPE <= DR), "the variant holds the latent and the rope part");
    let (t, head, part) = (program_id(0), program_id(1) * HEADS, program_id(2));
    let seq = seq_of(cu_seqlens_q, S, t);
    let len = seq_lens.at([seq]).to::<i64>();
    let covered = (len >= 0) & (len <= MAX_PAGES * page_size) & (len <= PARTS * split_tokens);
    assert_all(covered, "`seq_lens` are lengths that the block table and the parts cover");
    // A row sees itself and what came before; the last row is the sequence's last token.
    let visible = len + t + 1 - cu_seqlens_q.at([seq + 1]).to::<i64>();
    let start = part * split_tokens;
    let end = min(start + split_tokens, visible);

    let pages = Pages { block_table, k_scale, num_pages: PAGES, page_size };
    let q_latent = (ql_nope.tile((t, head, 0), [HEADS, DC]) * softmax_scale).t();
    let q_rope = (q_pe.tile((t, head, 0), [HEADS, DR]) * softmax_scale).t();
    let mut seen = Softmax::new(HEADS, DC);
    for first in range(start, end, KEYS) {
        let cached = lookup(pages, seq, first, end, KEYS);
        let latent = ckv_cache.rows(cached.slot, 0, DC).decode();
        let rope = kpe_cache.rows(cached.slot, 0, DR).decode();
        let codes = dot(rope, q_rope, dot(latent, q_latent, zeros([KEYS, HEADS])));
        // The scale is applied to sums and not to elements: one product a key.
        let scores = select(cached.read, codes * cached.k_scale, f32::NEG_INFINITY);
        seen = update(seen, scores, latent, cached.k_scale);
    }
    let (result, log_sum) = finish(seen);
    out.store((part, t, head, 0), result);
    lse.store((part, t, head), log_sum);
}

/// Attention over all parts from the attention over each, in their order.
#[kernel(grid = (T, H), class = bounded)]
pub fn mla_merge(
    parts: &In<f32, { [PARTS, T, H, RANK] }>,
    part_lse: &In<f32, { [PARTS, T, H] }>,
    out: &mut Out<f32, { [T, H, RANK] }>,
    lse: &mut Out<f32, { [T, H] }>,
) {
    let (t, h) = (program_id(0), program_id(1));
    let mut largest = full::<f32, 0>([], f32::NEG_INFINITY);
    for p in range(0, PARTS, 1) {
        largest = max(largest, part_lse.at([p, t, h]));
    }
    let base = select(largest == f32::NEG_INFINITY, 0.0, largest);
    let mut sum = full::<f32, 0>([], 0.0);
    for p in range(0, PARTS, 1) {
        sum = sum + (part_lse.at([p, t, h]) - base).exp();
    }
    for c in range(0, RANK, BLOCK) {
        let mut total = zeros::<f32, 1>([BLOCK]);
        for p in range(0, PARTS, 1) {
            let weight = (part_lse.at([p, t, h]) - base).exp();
            total = fma(parts.tile([p, t, h, c], [BLOCK]), weight, total);
        }
        out.store([t, h, c], select(sum == 0.0, 0.0, total / sum));
    }
    lse.store([t, h], largest + sum.ln());
}
