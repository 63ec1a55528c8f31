//! Attention of a chunk of new tokens, with keys and values expanded from the cached latents.
//!
//! Three launches: [`kv_gather`] decodes the cache entries of the sequences into rows, `w_gemm`
//! multiplies their latents with `kv_b`, and [`mla_prefill`] attends. A long context may come in
//! runs, each with its own rows and `first_token`, merged by `mla_merge`.

use super::paging::{Pages, lookup, seq_of};
use super::softmax::{Softmax, choose, finish, update};
use crate::formats::kv_formats;
use tessera_kernel_dsl::prelude::*;

/// Keys taken at once.
const KEYS: usize = 64;
/// Elements decoded at once.
const BLOCK: usize = 128;

/// Row `kv_starts[s] + i` of `entries` becomes the cache entry of token `first_token[s] + i` of
/// sequence `s`, and `damage` 0; or zeros and NaN where its page id is out of range.
#[kernel(grid = (KV_ROWS), formats(KV = kv_formats), class = exact)]
pub fn kv_gather<KV: Stored>(
    cache: &In<KV, { [SLOTS, ENTRY] }>,
    k_scale: &In<f32, { [PAGES] }>,
    page_size: i64,
    block_table: &In<i32, { [S, MAX_PAGES] }>,
    kv_starts: &In<i32, { [S + 1] }>,
    first_token: &In<i32, { [S] }>,
    entries: &mut Out<f32, { [KV_ROWS, ENTRY] }>,
    damage: &mut Out<f32, { [KV_ROWS] }>,
) {
    let row = program_id(0);
    let seq = seq_of(kv_starts, S, row);
    let start = kv_starts.at([seq]).to::<i64>();
    let token = first_token.at([seq]).to::<i64>() + row - start;
    assert_all(token < MAX_PAGES * page_size, "the block table covers every token");
    let pages = Pages { block_table, k_scale, num_pages: PAGES, page_size };
    let cached = lookup(pages, seq, token, token + 1, 1);
    let slot = cached.slot.reshape([]);
    let k_scale = select(slot < 0, 0.0, cached.k_scale.reshape([]));
    for c in range(0, ENTRY, BLOCK) {
        entries.store([row, c], cache.tile([slot, c], [BLOCK]).decode() * k_scale);
    }
    damage.store([row], select(slot < 0, f32::NAN, full::<f32, 0>([], 0.0)));
}

/// Causal attention over expanded keys and values: row `kv_starts[s] + i` of them is token
/// `first_token[s] + i` of sequence `s`. `damage` is added to every score of its token.
///
/// A NaN in a cached entry reaches every row of its sequence that shares a block with one that
/// sees it, and no row of another sequence.
///
/// `QUERIES` rows are a program's. `(DN, DR, DV)` are at least `(NOPE, ROPE, V)`: what a variant has too much reads as zeros.
#[kernel(
    grid = (cdiv(T, QUERIES), H),
    variants(
        cpu: (DN, DR, DV) = [(32, 32, 32), (128, 64, 128), (192, 64, 256)], QUERIES = [32];
        gpu: (DN, DR, DV, QUERIES, WARPS) =
            [(32, 32, 32, 32, 4), (128, 64, 128, 64, 8), (256, 64, 256, 32, 8)], STAGES = [2]
    ),
    class = bounded
)]
pub fn mla_prefill(
    q_nope: &In<f32, { [H, T, NOPE] }>,
    q_pe: &In<f32, { [H, T, ROPE] }>,
    k_nope: &In<f32, { [H, KV_ROWS, NOPE] }>,
    k_pe: &In<f32, { [KV_ROWS, ROPE] }>,
    v: &In<f32, { [H, KV_ROWS, V] }>,
    damage: &In<f32, { [KV_ROWS] }>,
    kv_starts: &In<i32, { [S + 1] }>,
    first_token: &In<i32, { [S] }>,
    seq_lens: &In<i32, { [S] }>,
    cu_seqlens_q: &In<i32, { [S + 1] }>,
    softmax_scale: f32,
    out: &mut Out<f32, { [H, T, V] }>,
    lse: &mut Out<f32, { [H, T] }>,
) {
    let fits = (NOPE <= DN) & (ROPE <= DR) & (V <= DV);
    assert_all(fits, "the variant holds queries and values");
    let (first, h) = (program_id(0) * QUERIES, program_id(1));
    let q_own = (q_nope.tile((h, first, 0), [QUERIES, DN]) * softmax_scale).t();
    let q_rope = (q_pe.tile((h, first, 0), [QUERIES, DR]) * softmax_scale).t();
    let row = (first + iota(QUERIES)).reshape([1, QUERIES]);
    let first_seq = seq_of(cu_seqlens_q, S, first);
    let last_seq = seq_of(cu_seqlens_q, S, min(first + QUERIES, T) - 1);
    let mut seen = Softmax::new(QUERIES, DV);
    for seq in range(first_seq, last_seq + 1, 1) {
        let start = cu_seqlens_q.at([seq]).to::<i64>();
        let stop = cu_seqlens_q.at([seq + 1]).to::<i64>();
        let own = (row >= start) & (row < stop);
        let base = kv_starts.at([seq]).to::<i64>();
        let count = kv_starts.at([seq + 1]).to::<i64>() - base;
        // Keys of this run that a row sees: itself and before, the last row being the last token.
        let shift = seq_lens.at([seq]).to::<i64>() - first_token.at([seq]).to::<i64>() - stop;
        let visible = shift + row + 1;
        let end = min(count, shift + min(first + QUERIES, stop));
        for j in range(0, end, KEYS) {
            let key = (j + iota(KEYS)).reshape([KEYS, 1]);
            let at = base + j;
            let rope = dot(k_pe.tile((at, 0), [KEYS, DR]), q_rope, zeros([KEYS, QUERIES]));
            let scores = dot(k_nope.tile((h, at, 0), [KEYS, DN]), q_own, rope);
            let scores = scores + damage.tile([at], [KEYS]).reshape([KEYS, 1]);
            let sees = own & (key < visible) & (key < count);
            let scores = select(sees, scores, f32::NEG_INFINITY);
            // Rows past `count` are another sequence's: not even its NaN may pass.
            let values = select(key < count, v.tile((h, at, 0), [KEYS, DV]), 0.0);
            let next = update(seen, scores, values, full([KEYS, 1], 1.0));
            seen = choose(own, next, seen);
        }
    }
    let (result, log_sum) = finish(seen);
    out.store((h, first, 0), result);
    lse.store((h, first), log_sum);
}
