//! A content digest that travels with a page from pool to pool.

use tessera_kernel_dsl::prelude::*;

/// Digest of each layer of one page, as [`crate::ops::page_digest::digest_layer`] defines it.
///
/// `words` are the codes of the page as little-endian words of eight bytes, so a page takes a
/// multiple of eight bytes in each layer; bytes past `valid_bytes` do not count. `place` is
/// `logical_page << 32 | valid_tokens`.
#[kernel(grid = (LAYERS), class = exact)]
pub fn page_digest(
    words: &In<u64, { [LAYERS, WORDS] }>,
    k_scale: &In<f32, { [LAYERS] }>,
    owner: u64,
    generation: u64,
    place: u64,
    valid_bytes: i64,
    digests: &mut Out<u64, { [LAYERS] }>,
) {
    let layer = program_id(0);
    let scale_bits = k_scale.at([layer]).bits::<u32>().to::<u64>();
    let bytes = valid_bytes.to::<u64>();
    let mut state = full::<u64, 0>([], 0x243f_6a88_85a3_08d3_u64);
    let mut index = full::<u64, 0>([], 0_u64);
    for word in [owner, generation, place, layer.to::<u64>(), scale_bits, bytes] {
        state = fold(state, word, index);
        index = index + 1_u64;
    }
    for i in range(0, cdiv(valid_bytes, 8), 1) {
        let inside = min(valid_bytes - i * 8, 8);
        // Keeps the low `inside` bytes; a shift by 64 would not.
        let unused = ((-inside + 8) * 8).to::<u64>();
        let word = words.at([layer, i]) << unused >> unused;
        state = fold(state, word, index);
        index = index + 1_u64;
    }
    digests.store([layer], state);
}

#[tile_fn]
fn fold(state: Tile<u64>, word: Tile<u64>, index: Tile<u64>) -> Tile<u64> {
    mix(state ^ mix(word + index * 0x9e37_79b9_7f4a_7c15_u64))
}

/// As `mix` of the reference: a bijection in which every input bit reaches every output bit.
#[tile_fn]
fn mix(x: Tile<u64>) -> Tile<u64> {
    let x = x ^ (x >> 32_u64);
    let x = x * 0xd6e8_feb8_6659_fd93_u64;
    let x = x ^ (x >> 32_u64);
    let x = x * 0xd6e8_feb8_6659_fd93_u64;
    x ^ (x >> 32_u64)
}
