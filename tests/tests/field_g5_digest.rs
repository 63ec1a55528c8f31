//! Field case O-506: what the digest that travels with a page binds.

use tessera_kernels::formats::kv_format;
use tessera_kernels::launch::{BufferId, CacheId, CacheSpec};
use tessera_kernels::ops::cache::CacheView;
use tessera_kernels::ops::page_digest::{DigestKey, PageDigest, digest_layer};

const PAGE: usize = 16;
const ENTRY: usize = 24;

/// Codes of the valid tokens of a page, as a request's content would have them.
fn codes(seed: u8, valid_tokens: u32) -> Vec<u8> {
    (0..PAGE * ENTRY)
        .map(|i| u8::try_from(i * 7 % 251).expect("below 251") ^ seed)
        .take(valid_tokens as usize * ENTRY)
        .collect()
}

fn digests(key: &DigestKey, codes: &[u8]) -> [u64; 2] {
    [0, 1].map(|layer| digest_layer(key, layer, 0.5, codes))
}

#[test]
fn o_506_what_the_digest_binds() {
    let key = DigestKey { owner: 7, generation: 3, logical_page: 0, valid_tokens: 16 };
    let next = DigestKey { logical_page: 1, ..key };
    let (first, second) = (codes(1, 16), codes(2, 16));
    let sent = (digests(&key, &first), digests(&next, &second));
    // Any one bit.
    for bit in 0..first.len() * 8 {
        let mut flipped = first.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(digests(&key, &flipped), sent.0, "bit {bit}");
    }
    // Two pages of one request swapped, with their bytes and even with their digests.
    assert_ne!(digests(&key, &second), sent.0);
    assert_ne!(digests(&next, &first), sent.1);
    assert_ne!(digests(&key, &second), sent.1);
    // Another request's page put in with its digest; the same page of an earlier generation.
    let other = DigestKey { owner: 8, ..key };
    assert_ne!(digests(&key, &first), digests(&other, &first));
    let earlier = DigestKey { generation: 2, ..key };
    assert_ne!(digests(&key, &first), digests(&earlier, &first));
    // A layer in the place of another, and another scale for the same codes.
    assert_ne!(sent.0[0], sent.0[1]);
    assert_ne!(digest_layer(&key, 0, 0.25, &first), sent.0[0]);
}

#[test]
fn o_506_slots_and_junk_do_not_matter() {
    let format = kv_format("fp8_e4m3").unwrap();
    let (num_layers, num_pages, page_size, entry) = (2, 4, PAGE, ENTRY);
    let spec = CacheSpec { format, num_layers, num_pages, page_size, entry };
    let scales = [0.5; 8];
    let key = DigestKey { owner: 7, generation: 3, logical_page: 2, valid_tokens: 5 };
    let found = |slot: usize, junk: u8| {
        let mut data = vec![junk; spec.num_bytes().unwrap()];
        for layer in 0..num_layers {
            let codes = codes(1, key.valid_tokens);
            data[spec.page_offset(layer, slot)..][..codes.len()].copy_from_slice(&codes);
        }
        let page = u32::try_from(slot).unwrap();
        let op = PageDigest { cache: CacheId(0), page, key, digests: BufferId(0) };
        let mut digests = [0; 2];
        op.reference(&CacheView { spec, data: &data, scales: &scales }, &mut digests);
        digests
    };
    let sent = digests(&key, &codes(1, key.valid_tokens));
    for slot in 0..num_pages {
        // 0x7f is the NaN of the format.
        for junk in [0, 1, 0x7f, 0xff] {
            assert_eq!(found(slot, junk), sent, "slot {slot}, junk {junk:#x}");
        }
    }
    // But how many are valid is bound: junk cannot be taken for tokens, nor tokens for junk.
    for valid_tokens in [4, 6, 16] {
        let key = DigestKey { valid_tokens, ..key };
        assert_ne!(digests(&key, &codes(1, valid_tokens)), sent);
    }
}
