//! Who reads what: which sequence a row belongs to, which slots of the cache its tokens have.

use tessera_kernel_dsl::prelude::*;

/// Row starts compared at once.
const SEQS: usize = 16;

/// Index of the sequence that row `t` belongs to: how many of the ends lie at or below it.
///
/// The launch fails if the starts around it do not hold it, as starts that do not rise would not.
#[tile_fn]
pub(super) fn seq_of(starts: In<i32>, num_seqs: Tile<i64>, t: Tile<i64>) -> Tile<i64> {
    let mut before = zeros::<i64, 1>([1]);
    for s in range(0, num_seqs, SEQS) {
        let seq = s + iota(SEQS);
        let end = starts.tile([s + 1], [SEQS]).to::<i64>();
        let over = (seq < num_seqs) & (end <= t);
        before = before + select::<i64>(over, 1, 0).sum(0);
    }
    let seq = before.reshape([]);
    let start = starts.at([seq]).to::<i64>();
    let end = starts.at([seq + 1]).to::<i64>();
    assert_all((start <= t) & (t < end), "row starts rise from 0 to the number of rows");
    seq
}

/// The pages of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    pub(super) block_table: In<i32>,
    pub(super) k_scale: In<f32>,
    pub(super) num_pages: Tile<i64>,
    pub(super) page_size: Tile<i64>,
}

/// Where some tokens of a sequence are cached, a column `[n, 1]` each but for the slots, `[n]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cached {
    /// Slot of each token; -1, which reads as zeros, for those that are not read.
    pub(super) slot: Tile<i64>,
    /// Whether the token is one of those asked for.
    pub(super) read: Tile<bool>,
    /// Scale of the token's page; NaN where its page id is out of range, so that the damage shows
    /// in this sequence and in no other; 0 for tokens that are not read.
    pub(super) k_scale: Tile<f32>,
}

/// Looks up the `n` tokens of sequence `seq` from `first` on, of which those before `end` are read.
#[tile_fn]
pub(super) fn lookup(
    pages: Pages,
    seq: Tile<i64>,
    first: Tile<i64>,
    end: Tile<i64>,
    n: usize,
) -> Cached {
    let token = first + iota(n);
    let read = token < end;
    let entry = token / pages.page_size;
    let page = pages.block_table.gather([seq, entry]).to::<i64>();
    let known = (page >= 0) & (page < pages.num_pages);
    let slot = page * pages.page_size + token % pages.page_size;
    let k_scale = select(known, pages.k_scale.gather([page]), f32::NAN);
    Cached {
        slot: select(read & known, slot, -1),
        read: read.reshape([n, 1]),
        k_scale: select(read, k_scale, 0.0).reshape([n, 1]),
    }
}
