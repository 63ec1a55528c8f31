//! Rotary position embedding: of queries in place, and of the cached key on its way to the cache.

use crate::formats::kv_formats;
use tessera_kernel_dsl::prelude::*;

/// Heads of one program.
const HEADS: usize = 8;
/// Pairs turned at once.
const PAIRS: usize = 32;
/// Latent elements encoded at once.
const BLOCK: usize = 128;

/// Turns pair `i` of every head by `position * inv_freq[i]`, scaled by `magnitude`.
///
/// A pair is the elements `i * pair_stride` and `i * pair_stride + pair_gap`: `(2, 1)` where pairs
/// are neighbours, `(1, HALF)` where they are halves. `x` views only what rotates.
#[kernel(grid = (T, cdiv(H, HEADS)), class = bounded)]
pub fn rope(
    x: &mut InOut<f32, { [T, H, HALF + HALF] }>,
    positions: &In<i32, { [T] }>,
    inv_freq: &In<f32, { [HALF] }>,
    magnitude: f32,
    pair_stride: i64,
    pair_gap: i64,
) {
    let (t, head) = (program_id(0), program_id(1) * HEADS + iota(HEADS));
    let head = head.reshape([HEADS, 1]);
    let position = positions.at([t]).to::<f32>();
    for i in range(0, HALF, PAIRS) {
        let (sin, cos) = turn(position, inv_freq.tile([i], [PAIRS]), magnitude);
        let (a, b) = pair(i, HALF, pair_stride, pair_gap);
        let (u, v) = (x.gather([t, head, a]), x.gather([t, head, b]));
        x.scatter([t, head, a], u * cos - v * sin);
        x.scatter([t, head, b], v * cos + u * sin);
    }
}

/// Writes `latent | rotated k_pe` of each token to its slot: `stored = encode(real / k_scale)`
/// with the scale of the slot's page; slot -1 writes nothing. Clamped elements are counted.
#[kernel(grid = (T), formats(KV = kv_formats), class = bounded)]
pub fn kv_write<KV: Stored>(
    latent: &In<f32, { [T, RANK] }>,
    k_pe: &In<f32, { [T, HALF + HALF] }>,
    positions: &In<i32, { [T] }>,
    inv_freq: &In<f32, { [HALF] }>,
    magnitude: f32,
    pair_stride: i64,
    pair_gap: i64,
    slot_mapping: &In<i64, { [T] }>,
    page_size: i64,
    k_scale: &In<f32, { [PAGES] }>,
    cache: &mut Out<KV, { [SLOTS, RANK + HALF + HALF] }>,
    saturated: &mut InOut<u32, { [T] }>,
) {
    let t = program_id(0);
    let slot = slot_mapping.at([t]);
    let known = (slot >= -1) & (slot < PAGES * page_size) & (slot < SLOTS);
    assert_all(known, "`slot_mapping` holds -1 or slots of the cache");
    if slot >= 0 {
        let k_scale = k_scale.at([slot / page_size]);
        let mut clamped = saturated.at([t]).reshape([1]);
        // The last block may reach into the columns of `k_pe`, which are written after it.
        for c in range(0, RANK, BLOCK) {
            let stored = latent.tile([t, c], [BLOCK]) / k_scale;
            clamped = clamped + beyond(stored, KV::ELEMENT.max());
            cache.store([slot, c], stored.encode::<KV>());
        }
        let position = positions.at([t]).to::<f32>();
        for i in range(0, HALF, PAIRS) {
            let (sin, cos) = turn(position, inv_freq.tile([i], [PAIRS]), magnitude);
            let (a, b) = pair(i, HALF, pair_stride, pair_gap);
            let (u, v) = (k_pe.gather([t, a]), k_pe.gather([t, b]));
            let x = (u * cos - v * sin) / k_scale;
            let y = (v * cos + u * sin) / k_scale;
            clamped = clamped + beyond(x, KV::ELEMENT.max()) + beyond(y, KV::ELEMENT.max());
            cache.scatter([slot, after(RANK, a)], x.encode::<KV>());
            cache.scatter([slot, after(RANK, b)], y.encode::<KV>());
        }
        saturated.store([t], clamped);
    }
}

/// Sine and cosine of each pair.
#[tile_fn]
fn turn(position: Tile<f32>, inv_freq: Tile<f32>, magnitude: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
    let angle = position * inv_freq;
    (sin(angle) * magnitude, cos(angle) * magnitude)
}

/// Indices of the two elements of the pairs from `first` on; -1, which is in no view, past the
/// last.
#[tile_fn]
fn pair(
    first: Tile<i64>,
    count: Tile<i64>,
    stride: Tile<i64>,
    gap: Tile<i64>,
) -> (Tile<i64>, Tile<i64>) {
    let i = first + iota(PAIRS);
    let a = i * stride;
    (select(i < count, a, -1), select(i < count, a + gap, -1))
}

/// `column` after `offset` others, or still nowhere.
#[tile_fn]
fn after(offset: Tile<i64>, column: Tile<i64>) -> Tile<i64> {
    select(column < 0, column, offset + column)
}

/// How many elements encoding will clamp, `[1]`.
#[tile_fn]
pub(super) fn beyond(stored: Tile<f32>, max: f32) -> Tile<u32> {
    select::<u32>(stored.abs() > max, 1, 0).sum(0)
}
