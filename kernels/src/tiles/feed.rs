//! Token ids from what an earlier step sampled.

use tessera_kernel_dsl::prelude::*;

/// `ids[t]` is the token sampled in row `source[t]`, 0 if that has none; a negative `source[t]` is
/// the token `-1 - source[t]`.
#[kernel(grid = (T), class = exact)]
pub fn feed_tokens(
    sampled: &In<i32, { [R] }>,
    source: &In<i32, { [T] }>,
    ids: &mut Out<i32, { [T] }>,
) {
    let t = program_id(0);
    let row = source.at([t]).to::<i64>();
    assert_all(row < R, "`source` names rows that were sampled");
    // What lies outside of `sampled` reads as 0, and is not taken.
    let token = max(sampled.at([max(row, 0)]).to::<i64>(), 0);
    ids.store([t], select(row < 0, -1 - row, token).to::<i32>());
}
