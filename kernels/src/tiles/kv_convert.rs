//! Converts one cached page from one pool's KV format to another's.

use super::rope::beyond;
use crate::formats::kv_formats;
use tessera_kernel_dsl::prelude::*;

/// Elements converted at once.
const BLOCK: usize = 128;

/// Largest magnitude of the page's first `valid_tokens` tokens in each layer, folded into `amax`;
/// NaN if there is one.
#[kernel(grid = (LAYERS), formats(KV = kv_formats), class = exact)]
pub fn kv_amax<KV: Stored>(
    page: &In<KV, { [LAYERS, PAGE, ENTRY] }>,
    k_scale: &In<f32, { [LAYERS] }>,
    valid_tokens: i64,
    amax: &mut InOut<f32, { [LAYERS] }>,
) {
    let layer = program_id(0);
    let k_scale = k_scale.at([layer]);
    let mut largest = amax.at([layer]).reshape([1]);
    for token in range(0, min(valid_tokens, PAGE), 1) {
        for c in range(0, ENTRY, BLOCK) {
            let real = page.tile([layer, token, c], [BLOCK]).decode() * k_scale;
            largest = max(largest, real.abs().max(0));
        }
    }
    amax.store([layer], largest);
}

/// Re-encodes a page into another format: `stored' = encode(stored * k_scale / target_scale)`, and
/// zeros past `valid_tokens`. `saturated` counts clamped elements by layer and token.
#[kernel(
    grid = (LAYERS, PAGE),
    formats(KV = kv_formats, TO = kv_formats),
    class = exact
)]
pub fn kv_convert<KV: Stored, TO: Stored>(
    page: &In<KV, { [LAYERS, PAGE, ENTRY] }>,
    k_scale: &In<f32, { [LAYERS] }>,
    valid_tokens: i64,
    target_scales: &In<f32, { [LAYERS] }>,
    out: &mut Out<TO, { [LAYERS, PAGE, ENTRY] }>,
    saturated: &mut Out<u32, { [LAYERS, PAGE] }>,
) {
    let (layer, token) = (program_id(0), program_id(1));
    let k_scale = k_scale.at([layer]);
    let target_scale = checked(target_scales.at([layer]));
    let mut clamped = zeros::<u32, 1>([1]);
    for c in range(0, ENTRY, BLOCK) {
        let real = page.tile([layer, token, c], [BLOCK]).decode() * k_scale;
        let stored = select(token < valid_tokens, real / target_scale, 0.0);
        clamped = clamped + beyond(stored, TO::ELEMENT.max());
        out.store([layer, token, c], stored.encode::<TO>());
    }
    saturated.store([layer, token], clamped);
}

/// As [`kv_convert`] into the same format: a layer whose scale stays keeps its codes, NaN codes
/// included.
#[kernel(grid = (LAYERS, PAGE), formats(KV = kv_formats), class = exact)]
pub fn kv_rescale<KV: Stored>(
    page: &In<KV, { [LAYERS, PAGE, ENTRY] }>,
    k_scale: &In<f32, { [LAYERS] }>,
    valid_tokens: i64,
    target_scales: &In<f32, { [LAYERS] }>,
    out: &mut Out<KV, { [LAYERS, PAGE, ENTRY] }>,
    saturated: &mut Out<u32, { [LAYERS, PAGE] }>,
) {
    let (layer, token) = (program_id(0), program_id(1));
    let k_scale = k_scale.at([layer]);
    let target_scale = checked(target_scales.at([layer]));
    let valid = token < valid_tokens;
    let same = valid & (k_scale == target_scale);
    let mut clamped = zeros::<u32, 1>([1]);
    for c in range(0, ENTRY, BLOCK) {
        let codes = page.tile([layer, token, c], [BLOCK]);
        if same {
            out.store([layer, token, c], codes);
        } else {
            let stored = select(valid, codes.decode() * k_scale / target_scale, 0.0);
            clamped = clamped + beyond(stored, KV::ELEMENT.max());
            out.store([layer, token, c], stored.encode::<KV>());
        }
    }
    saturated.store([layer, token], clamped);
}

#[tile_fn]
fn checked(scale: Tile<f32>) -> Tile<f32> {
    let usable = (scale > 0.0) & (scale <= f32::MAX);
    assert_all(usable, "`target_scales` are finite and above 0");
    scale
}
