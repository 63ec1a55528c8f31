//! The integrity check that runs before a step reads the cache.

use tessera_kernel_dsl::prelude::*;

/// Table entries compared at once.
const BLOCK: usize = 64;
/// The same as an index: no entry.
const END: i64 = 64;

/// Compares the tag of each page of a sequence with the tag its reader holds. `mismatch` is the
/// first entry that differs or is no page, -1 if none; the sequence's own slots then become -1.
#[kernel(grid = (S), class = exact)]
pub fn page_tag_check(
    tags: &In<u64, { [PAGES] }>,
    block_table: &In<i32, { [S, MAX_PAGES] }>,
    expected: &In<u64, { [S, MAX_PAGES] }>,
    num_pages: &In<i32, { [S] }>,
    cu_seqlens_q: &In<i32, { [S + 1] }>,
    mismatch: &mut Out<i32, { [S] }>,
    slot_mapping: &mut Out<i64, { [T] }>,
) {
    let s = program_id(0);
    let pages = num_pages.at([s]).to::<i64>();
    assert_all((pages >= 0) & (pages <= MAX_PAGES), "`num_pages` is 0 to `max_pages_per_seq`");
    let mut first = full::<i64, 1>([1], i64::MAX);
    for j in range(0, pages, BLOCK) {
        let page = block_table.tile([s, j], [BLOCK]).to::<i64>();
        // What lies outside of `tags` reads as 0, which may be expected.
        let known = (page >= 0) & (page < PAGES);
        let agrees = known & (tags.gather([page]) == expected.tile([s, j], [BLOCK]));
        let bad = !agrees & (iota(BLOCK) < pages - j);
        let found = select(bad, iota(BLOCK), END).min(0);
        first = min(first, select(found < END, found + j, i64::MAX));
    }
    let any = first < i64::MAX;
    mismatch.store([s], select(any, first, -1).to::<i32>());
    if any {
        let start = cu_seqlens_q.at([s]).to::<i64>();
        let end = cu_seqlens_q.at([s + 1]).to::<i64>();
        let inside = (start >= 0) & (start <= end) & (end <= T);
        assert_all(inside, "`cu_seqlens_q` rises and is at most `num_tokens`");
        for t in range(start, end, BLOCK) {
            let row = t + iota(BLOCK);
            slot_mapping.scatter([select(row < end, row, -1)], -1);
        }
    }
}
