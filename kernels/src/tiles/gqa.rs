//! Grouped-query attention over a paged cache of keys and of values.

use super::paging::{Pages, lookup, seq_of};
use super::softmax::{Softmax, choose, finish, update};
use crate::formats::kv_formats;
use tessera_kernel_dsl::prelude::*;

/// Most query heads of a key head in a decode program.
const GROUP_HEADS: usize = 16;
/// Query rows of a prefill program.
const QUERIES: usize = 32;
/// Cached tokens taken at once.
const KEYS: usize = 32;

/// Causal attention of each row, all query heads of one key head in one program.
///
/// `k_cache` and `v_cache` are rows of `num_kv_heads` heads each. An empty sequence gives zeros
/// and `-inf`. `DH` is at least `D`.
#[kernel(
    grid = (T, KV_HEADS, cdiv(GROUP, GROUP_HEADS)),
    formats(KV = kv_formats),
    variants(cpu: DH = [128]; gpu: DH = [128], WARPS = [4], STAGES = [2]),
    class = bounded
)]
pub fn gqa_decode<KV: Stored>(
    q: &In<f32, { [T, KV_HEADS, GROUP, D] }>,
    k_cache: &In<KV, { [SLOTS, ENTRY] }>,
    v_cache: &In<KV, { [SLOTS, ENTRY] }>,
    k_scale: &In<f32, { [PAGES] }>,
    page_size: i64,
    block_table: &In<i32, { [S, MAX_PAGES] }>,
    seq_lens: &In<i32, { [S] }>,
    cu_seqlens_q: &In<i32, { [S + 1] }>,
    softmax_scale: f32,
    out: &mut Out<f32, { [T, KV_HEADS, GROUP, D] }>,
    lse: &mut Out<f32, { [T, KV_HEADS, GROUP] }>,
) {
    assert_all((D <= DH) & (ENTRY == KV_HEADS * D), "entries hold every head, the variant one");
    let (t, kv_head, member) = (program_id(0), program_id(1), program_id(2) * GROUP_HEADS);
    let seq = seq_of(cu_seqlens_q, S, t);
    let len = seq_lens.at([seq]).to::<i64>();
    assert_all((len >= 0) & (len <= MAX_PAGES * page_size), "`seq_lens` fit the block table");
    let visible = len + t + 1 - cu_seqlens_q.at([seq + 1]).to::<i64>();
    let pages = Pages { block_table, k_scale, num_pages: PAGES, page_size };
    let queries = (q.tile((t, kv_head, member, 0), [GROUP_HEADS, DH]) * softmax_scale).t();
    let mut seen = Softmax::new(GROUP_HEADS, DH);
    for first in range(0, visible, KEYS) {
        let cached = lookup(pages, seq, first, visible, KEYS);
        let keys = k_cache.rows(cached.slot, kv_head * D, DH).decode();
        let values = v_cache.rows(cached.slot, kv_head * D, DH).decode();
        // Columns past D are the next head's.
        let keys = keys.mask(|_, c| c < D, 0.0);
        let codes = dot(keys, queries, zeros([KEYS, GROUP_HEADS]));
        let scores = select(cached.read, codes * cached.k_scale, f32::NEG_INFINITY);
        seen = update(seen, scores, values, cached.k_scale);
    }
    let (result, log_sum) = finish(seen);
    out.store((t, kv_head, member, 0), result);
    lse.store((t, kv_head, member), log_sum);
}

/// As [`gqa_decode`], a block of rows of one query head in one program.
#[kernel(
    grid = (cdiv(T, QUERIES), H),
    formats(KV = kv_formats),
    variants(cpu: DH = [128]; gpu: DH = [128], WARPS = [8], STAGES = [2]),
    class = bounded
)]
pub fn gqa_prefill<KV: Stored>(
    q: &In<f32, { [H, T, D] }>,
    k_cache: &In<KV, { [SLOTS, ENTRY] }>,
    v_cache: &In<KV, { [SLOTS, ENTRY] }>,
    k_scale: &In<f32, { [PAGES] }>,
    page_size: i64,
    block_table: &In<i32, { [S, MAX_PAGES] }>,
    seq_lens: &In<i32, { [S] }>,
    cu_seqlens_q: &In<i32, { [S + 1] }>,
    group: i64,
    softmax_scale: f32,
    out: &mut Out<f32, { [H, T, D] }>,
    lse: &mut Out<f32, { [H, T] }>,
) {
    assert_all((D <= DH) & (ENTRY * group == H * D), "entries hold every head, the variant one");
    let (row_first, h) = (program_id(0) * QUERIES, program_id(1));
    let column = h / group * D;
    let pages = Pages { block_table, k_scale, num_pages: PAGES, page_size };
    let queries = (q.tile((h, row_first, 0), [QUERIES, DH]) * softmax_scale).t();
    let row = (row_first + iota(QUERIES)).reshape([1, QUERIES]);
    let first_seq = seq_of(cu_seqlens_q, S, row_first);
    let last_seq = seq_of(cu_seqlens_q, S, min(row_first + QUERIES, T) - 1);
    let mut seen = Softmax::new(QUERIES, DH);
    for seq in range(first_seq, last_seq + 1, 1) {
        let start = cu_seqlens_q.at([seq]).to::<i64>();
        let stop = cu_seqlens_q.at([seq + 1]).to::<i64>();
        let own = (row >= start) & (row < stop);
        let shift = seq_lens.at([seq]).to::<i64>() - stop;
        let end = shift + min(row_first + QUERIES, stop);
        assert_all(end <= MAX_PAGES * page_size, "`seq_lens` fit the block table");
        for first in range(0, end, KEYS) {
            let key = (first + iota(KEYS)).reshape([KEYS, 1]);
            let cached = lookup(pages, seq, first, end, KEYS);
            let keys = k_cache.rows(cached.slot, column, DH).decode();
            let values = v_cache.rows(cached.slot, column, DH).decode();
            let keys = keys.mask(|_, c| c < D, 0.0);
            let codes = dot(keys, queries, zeros([KEYS, QUERIES]));
            let sees = own & cached.read & (key < shift + row + 1);
            let scores = select(sees, codes * cached.k_scale, f32::NEG_INFINITY);
            // NaN in a scale that a row does not see must not reach it through its weight of 0.
            let value_scale = select(cached.k_scale.is_nan(), 0.0, cached.k_scale);
            let next = update(seen, scores, values, value_scale);
            seen = choose(own, next, seen);
        }
    }
    let (result, log_sum) = finish(seen);
    out.store((h, row_first, 0), result);
    lse.store((h, row_first), log_sum);
}
