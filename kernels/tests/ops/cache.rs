//! Ops on the paged cache: tag check, digest, amax, conversion.

use super::{kv, named};
use tessera_kernels::formats::KvFormat;
use tessera_kernels::launch::{BufferId, CacheId, CacheSpec, PlanError};
use tessera_kernels::ops::cache::CacheView;
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::page_digest::{DigestKey, PageDigest};
use tessera_kernels::ops::page_tag_check::{PageTagCheck, TagInputs};

/// Mismatches and slots afterwards, of up to five sequences with one new token each but for the
/// second, which has two.
fn tag_check(num_pages: &[i32]) -> Result<(Vec<i32>, Vec<i64>), PlanError> {
    let op = PageTagCheck {
        cache: CacheId(0),
        block_table: BufferId(0),
        expected: BufferId(1),
        num_pages: BufferId(2),
        num_seqs: num_pages.len(),
        max_pages_per_seq: 3,
        mismatch: BufferId(3),
        cu_seqlens_q: BufferId(4),
        num_tokens: 6,
        slot_mapping: BufferId(5),
    };
    let inputs = TagInputs {
        tags: &[100, 101, 102, 1 << 40 | 103],
        #[rustfmt::skip]
        block_table: &[
            0, 1, 2, // all agree
            2, 1, 0, // entry 1 is stale, entry 2 too
            3, 3, 9, // differs in the high half only, twice; the last page does not exist
            1, 4, 0, // page 4 does not exist
            -1, 0, 0, // neither does page -1
        ],
        expected: &[100, 101, 102, 102, 7, 7, 1 << 40 | 103, 103, 0, 101, 0, 0, 0, 100, 100],
        num_pages,
        cu_seqlens_q: &[0, 1, 3, 4, 5, 6],
    };
    // One more than there are sequences: past them nothing is written.
    let mut mismatch = vec![-7; num_pages.len() + 1];
    let mut slots = vec![10, 11, 12, 13, 14, 15];
    op.reference(&inputs, &mut mismatch, &mut slots)?;
    assert_eq!(mismatch.pop(), Some(-7));
    Ok((mismatch, slots))
}

#[test]
fn tag_check_finds_the_first_entry_that_differs() {
    let mismatches = |num_pages: &[i32]| tag_check(num_pages).unwrap().0;
    assert_eq!(mismatches(&[3, 3, 3, 3, 3]), [-1, 1, 1, 1, 0]);
    // Entries past a sequence's pages are not looked at.
    assert_eq!(mismatches(&[0, 1, 1, 1, 0]), [-1, -1, -1, -1, -1]);
    assert_eq!(mismatches(&[2, 2, 2, 2, 1]), [-1, 1, 1, 1, 0]);
    assert_eq!(mismatches(&[]), [0; 0]);
}

#[test]
fn a_flagged_sequence_loses_its_slots() {
    assert_eq!(tag_check(&[3, 3, 1, 1, 0]).unwrap().1, [10, -1, -1, 13, 14, 15]);
    assert_eq!(tag_check(&[3, 1, 1, 3, 1]).unwrap().1, [10, 11, 12, 13, -1, -1]);
    assert_eq!(tag_check(&[]).unwrap().1, [10, 11, 12, 13, 14, 15]);
}

#[test]
fn tag_check_refuses_rows_longer_than_the_table() {
    for bad in [-1, 4] {
        let error = tag_check(&[3, bad]).unwrap_err();
        assert_eq!(named(&error), ("page_tag_check", "num_pages"));
    }
}

/// Two layers of three pages of two tokens of `entry` elements.
fn spec(format: &'static KvFormat, entry: usize) -> CacheSpec {
    CacheSpec { format, num_layers: 2, num_pages: 3, page_size: 2, entry }
}

/// Scales of [`spec`]: page 1 has 0.5 in layer 0 and 2 in layer 1.
const SCALES: [f32; 6] = [1.0, 0.5, 1.0, 1.0, 2.0, 1.0];

fn digests(key: DigestKey, data: &[u8]) -> [u64; 2] {
    let cache = CacheView { spec: spec(kv("fp8_e4m3"), 3), data, scales: &SCALES };
    let op = PageDigest { cache: CacheId(0), page: 1, key, digests: BufferId(0) };
    let mut digests = [0; 2];
    op.reference(&cache, &mut digests);
    digests
}

#[test]
fn digests_are_those_of_another_implementation() {
    let key = DigestKey { owner: 7, generation: 1, logical_page: 3, valid_tokens: 1 };
    let data: Vec<u8> = (0..36).collect();
    assert_eq!(digests(key, &data), [0xb148_968b_88c1_dc34, 0x0d04_5e06_3ee1_12d5]);
    let whole = DigestKey { valid_tokens: 2, ..key };
    assert_eq!(digests(whole, &data), [0x22ce_7a35_3b6c_a55b, 0x9848_d491_88d9_c622]);
    let none = DigestKey { valid_tokens: 0, ..key };
    assert_eq!(digests(none, &data), [0x7a90_6acf_e51f_4e43, 0x8c0d_0b17_3994_19ab]);
}

#[test]
fn only_valid_tokens_of_its_own_page_count_in_a_digest() {
    let key = DigestKey { owner: 7, generation: 1, logical_page: 3, valid_tokens: 1 };
    let data: Vec<u8> = (0..36).collect();
    let want = digests(key, &data);
    for byte in 0..36 {
        let mut other = data.clone();
        other[byte] ^= 0x80;
        // Page 1 of a layer starts at its byte 6, and its first token has three.
        let bound = [(6..9).contains(&byte), (24..27).contains(&byte)];
        let got = digests(key, &other);
        assert_eq!([got[0] != want[0], got[1] != want[1]], bound, "byte {byte}");
    }
}

fn amax(format: &'static KvFormat, data: &[u8], valid_tokens: u32, start: f32) -> [f32; 2] {
    let spec = spec(format, data.len() / (12 * format.element_bytes()));
    let cache = CacheView { spec, data, scales: &SCALES };
    let op = KvAmax { cache: CacheId(0), page: 1, valid_tokens, amax: BufferId(0) };
    let mut amax = [start; 2];
    op.reference(&cache, &mut amax);
    amax
}

#[test]
fn amax_is_of_real_values_of_valid_tokens() {
    // E4M3 codes: 0x38 is 1, 0xc0 is -2, 0x7e is 448, 0x7f is NaN.
    let mut data = [0x7e; 12];
    data[2..4].copy_from_slice(&[0x38, 0xc0]);
    data[8..10].copy_from_slice(&[0xc0, 0x7e]);
    let e4m3 = kv("fp8_e4m3");
    assert_eq!(amax(e4m3, &data, 0, 0.0), [0.0, 0.0]);
    assert_eq!(amax(e4m3, &data, 1, 0.0), [0.5, 4.0]);
    assert_eq!(amax(e4m3, &data, 2, 0.0), [1.0, 896.0]);
    assert_eq!(amax(e4m3, &data, 2, 5.0), [5.0, 896.0]);
    data[8] = 0x7f;
    let got = amax(e4m3, &data, 2, 0.0);
    assert!(got[0] == 1.0 && got[1].is_nan(), "{got:?}");
}

/// Six bf16 values, and their e4m3 codes at scale 1 and 0.5, as ml_dtypes rounds them after a clamp
/// to 448: 0.30078125, -1.703125, 100, 2.5, -300, 0.010986328125.
const BF16: [u16; 6] = [0x3e9a, 0xbfda, 0x42c8, 0x4020, 0xc396, 0x3c34];
const E4M3: [u8; 6] = [0x2a, 0xbe, 0x6c, 0x42, 0xf9, 0x06];
const E4M3_HALF: [u8; 6] = [0x32, 0xc6, 0x74, 0x4a, 0xfe, 0x0b];

/// Converts page 1 of a cache of `entry` elements and checks that no byte past the output changes.
fn convert(
    cache: &CacheView<'_>,
    target: &'static KvFormat,
    valid_tokens: u32,
    target_scales: &[f32],
) -> Result<(Vec<u8>, u32), PlanError> {
    let op = KvConvert {
        cache: CacheId(0),
        page: 1,
        valid_tokens,
        target,
        target_scales: BufferId(0),
        out: BufferId(1),
        saturated: BufferId(2),
    };
    let bytes = CacheSpec { format: target, ..cache.spec }.page_bytes();
    // Junk that must go, but for one byte and one count that must stay.
    let counts = cache.spec.num_layers * cache.spec.page_size;
    let (mut out, mut saturated) = (vec![0xaa; bytes + 1], vec![10; counts + 1]);
    op.reference(cache, target_scales, &mut out, &mut saturated)?;
    assert_eq!((out.pop(), saturated.pop()), (Some(0xaa), Some(10)));
    Ok((out, saturated.iter().sum()))
}

#[test]
fn bf16_becomes_the_e4m3_of_ml_dtypes() {
    // Six elements a token; token 0 of page 1 holds the values in both layers, all else is NaN.
    let mut codes = [0x7fc0; 72];
    codes[12..18].copy_from_slice(&BF16);
    codes[48..54].copy_from_slice(&BF16);
    let data: Vec<u8> = codes.iter().flat_map(|code: &u16| code.to_le_bytes()).collect();
    let cache = CacheView { spec: spec(kv("bf16"), 6), data: &data, scales: &[1.0; 6] };
    let (out, saturated) = convert(&cache, kv("fp8_e4m3"), 1, &[1.0, 0.5]).unwrap();
    assert_eq!(out, [E4M3, [0; 6], E4M3_HALF, [0; 6]].concat());
    assert_eq!(saturated, 1, "-300 / 0.5 alone passes 448");
    assert_eq!(convert(&cache, kv("fp8_e4m3"), 0, &[1.0; 2]).unwrap(), (vec![0; 24], 0));
    let (nan, _) = convert(&cache, kv("fp8_e4m3"), 2, &[1.0; 2]).unwrap();
    assert_eq!(nan[6..12], [0x7f; 6], "NaN stays NaN");
}

#[test]
fn e4m3_changes_scale_and_format_as_ml_dtypes_does() {
    // 0.3125, -1.75, 96, 448, 2^-9, -0 at scale 0.5 in layer 0.
    let mut data = [0xff; 72];
    data[12..18].copy_from_slice(&[0x2a, 0xbe, 0x6c, 0x7e, 0x01, 0x80]);
    let layer_scales = |scale| [1.0, scale, 1.0, 1.0, 1.0, 1.0];
    let scales = layer_scales(0.5);
    let cache = CacheView { spec: spec(kv("fp8_e4m3"), 6), data: &data, scales: &scales };
    let (out, _) = convert(&cache, kv("bf16"), 1, &[1.0; 2]).unwrap();
    let want = [0x3e20u16, 0xbf60, 0x4240, 0x4360, 0x3a80, 0x8000];
    assert_eq!(out[..12], want.map(u16::to_le_bytes).concat());
    let scales = layer_scales(0.75);
    let cache = CacheView { scales: &scales, ..cache };
    let (out, saturated) = convert(&cache, kv("fp8_e4m3"), 1, &[0.5; 2]).unwrap();
    assert_eq!((&out[..6], saturated), (&[0x2f, 0xc2, 0x71, 0x7e, 0x02, 0x80][..], 1));
}

#[test]
fn the_same_format_and_scale_copies_codes() {
    // Every code once and again, NaNs of both signs included, which no decode would bring back.
    let data: Vec<u8> = (0..12 * 128).map(|i| (i % 256).try_into().unwrap()).collect();
    let cache = CacheView { spec: spec(kv("fp8_e4m3"), 128), data: &data, scales: &SCALES };
    let (out, saturated) = convert(&cache, kv("fp8_e4m3"), 2, &[0.5, 2.0]).unwrap();
    assert_eq!(out, [&data[256..512], &data[1024..1280]].concat());
    assert_eq!(saturated, 0);
    let (out, _) = convert(&cache, kv("fp8_e4m3"), 1, &[0.5, 2.0]).unwrap();
    assert_eq!(out, [&data[256..384], &[0; 128], &data[1024..1152], &[0; 128]].concat());
}

#[test]
fn conversion_refuses_scales_that_are_none() {
    let cache = CacheView { spec: spec(kv("fp8_e4m3"), 1), data: &[0; 12], scales: &SCALES };
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = convert(&cache, kv("fp8_e4m3"), 1, &[1.0, bad]).unwrap_err();
        assert_eq!(named(&error), ("kv_convert", "target_scales"));
    }
}
