//! AVX2 with FMA: sixteen lanes are two registers, masks are registers of ones and zeros.
#![expect(unsafe_code, reason = "intrinsics; every block cites the token or the array it reads")]

use super::features::{compiled_for, detected, features};
use super::{Isa, LANES, NoTiles, under_features};
use std::arch::x86_64::*;

/// Proof of AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

type F32 = [__m256; 2];
type I32 = [__m256i; 2];

/// The operation on both halves.
macro_rules! two {
    ($op:path, $($arg:ident),*) => { [$op($($arg[0]),*), $op($($arg[1]),*)] };
}

/// A half that stands in memory; the caller's array has both.
macro_rules! load_half {
    ($from:expr) => {
        // SAFETY: the array that the slice was cut from has the 32 bytes; no alignment is asked.
        unsafe { _mm256_loadu_si256($from.as_ptr().cast()) }
    };
}

macro_rules! store_half {
    ($to:expr, $value:expr) => {
        // SAFETY: the array that the slice was cut from has the 32 bytes; no alignment is asked.
        unsafe { _mm256_storeu_si256($to.as_mut_ptr().cast(), $value) }
    };
}

macro_rules! compare {
    ($predicate:ident, $a:ident, $b:ident) => {
        [
            _mm256_castps_si256(_mm256_cmp_ps::<$predicate>($a[0], $b[0])),
            _mm256_castps_si256(_mm256_cmp_ps::<$predicate>($a[1], $b[1])),
        ]
    };
}

#[inline]
#[target_feature(enable = "avx2")]
fn min_half(a: __m256, b: __m256) -> __m256 {
    // The instruction gives `b` where either is NaN.
    _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
}

#[inline]
#[target_feature(enable = "avx2")]
fn max_half(a: __m256, b: __m256) -> __m256 {
    _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
}

#[inline]
#[target_feature(enable = "avx2")]
fn select_half(mask: __m256i, yes: __m256, no: __m256) -> __m256 {
    _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask))
}

#[inline]
#[target_feature(enable = "avx2")]
fn dot4_half(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
    // Pairs are at most 2 * 127 * 128 = 32512 in magnitude: they do not saturate.
    let pairs = _mm256_maddubs_epi16(u, s);
    _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// The low 16 bits of eight lanes and eight more, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn low_words(value: I32) -> __m256i {
    let words = _mm256_set1_epi32(0xffff);
    let packed =
        _mm256_packus_epi32(_mm256_and_si256(value[0], words), _mm256_and_si256(value[1], words));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
}

/// Asks for the cache line `bytes` after `near`.
#[inline(always)]
pub(super) fn prefetch<T>(near: &T, bytes: usize) {
    let line = std::ptr::from_ref(near).wrapping_byte_add(bytes);
    // SAFETY: the instruction is in every x86-64, and reads nothing a program could notice.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
}

impl Isa for Avx2 {
    const NAME: &'static str = "avx2";
    const BLOCK_ROWS: usize = 4;
    type F32 = F32;
    type I32 = I32;
    type Mask = I32;
    type Tiles = NoTiles;

    fn detect() -> Option<Self> {
        detected!(Avx2, is_x86_feature_detected).then_some(Self(()))
    }

    #[inline(always)]
    fn prefetch<T>(self, near: &T, bytes: usize) {
        prefetch(near, bytes);
    }

    #[inline(always)]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        compiled_for! { Avx2;
            fn body<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
        }
        // SAFETY: `self` exists only because `detect` saw these features.
        unsafe { body(f) }
    }

    under_features! { "avx2,fma";
        fn splat(value: f32) -> F32 { [_mm256_set1_ps(value); 2] }
        fn load(from: &[f32; LANES]) -> F32 {
            [_mm256_castsi256_ps(load_half!(from[..8])), _mm256_castsi256_ps(load_half!(from[8..]))]
        }
        fn store(value: F32, to: &mut [f32; LANES]) {
            store_half!(to[..8], _mm256_castps_si256(value[0]));
            store_half!(to[8..], _mm256_castps_si256(value[1]));
        }
        fn add(a: F32, b: F32) -> F32 { two!(_mm256_add_ps, a, b) }
        fn sub(a: F32, b: F32) -> F32 { two!(_mm256_sub_ps, a, b) }
        fn mul(a: F32, b: F32) -> F32 { two!(_mm256_mul_ps, a, b) }
        fn div(a: F32, b: F32) -> F32 { two!(_mm256_div_ps, a, b) }
        fn min(a: F32, b: F32) -> F32 { two!(min_half, a, b) }
        fn max(a: F32, b: F32) -> F32 { two!(max_half, a, b) }
        fn fma(a: F32, b: F32, c: F32) -> F32 { two!(_mm256_fmadd_ps, a, b, c) }
        fn sqrt(a: F32) -> F32 { two!(_mm256_sqrt_ps, a) }
        fn floor(a: F32) -> F32 { two!(_mm256_floor_ps, a) }
        fn round(a: F32) -> F32 {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            two!(_mm256_round_ps::<NEAREST>, a)
        }
        fn eq(a: F32, b: F32) -> I32 { compare!(_CMP_EQ_OQ, a, b) }
        fn lt(a: F32, b: F32) -> I32 { compare!(_CMP_LT_OQ, a, b) }
        fn le(a: F32, b: F32) -> I32 { compare!(_CMP_LE_OQ, a, b) }
        fn select(mask: I32, yes: F32, no: F32) -> F32 { two!(select_half, mask, yes, no) }
        fn bits(a: F32) -> I32 { two!(_mm256_castps_si256, a) }

        fn splat_i32(value: i32) -> I32 { [_mm256_set1_epi32(value); 2] }
        fn load_i32(from: &[i32; LANES]) -> I32 { [load_half!(from[..8]), load_half!(from[8..])] }
        fn store_i32(value: I32, to: &mut [i32; LANES]) {
            store_half!(to[..8], value[0]);
            store_half!(to[8..], value[1]);
        }
        fn load_u8(from: &[u8; LANES]) -> I32 {
            // SAFETY: the array has the 16 bytes that are read; no alignment is asked for.
            let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))]
        }
        fn load_u16(from: &[u8; 2 * LANES]) -> I32 {
            let words = load_half!(from);
            [
                _mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)),
                _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(words)),
            ]
        }
        fn store_u8(value: I32, to: &mut [u8; LANES]) {
            let words = _mm256_and_si256(low_words(value), _mm256_set1_epi16(0xff));
            let bytes = _mm_packus_epi16(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            // SAFETY: the array has the 16 bytes that are written; no alignment is asked for.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) }
        }
        fn store_u16(value: I32, to: &mut [u8; 2 * LANES]) { store_half!(to, low_words(value)) }
        fn add_i32(a: I32, b: I32) -> I32 { two!(_mm256_add_epi32, a, b) }
        fn sub_i32(a: I32, b: I32) -> I32 { two!(_mm256_sub_epi32, a, b) }
        fn mul_i32(a: I32, b: I32) -> I32 { two!(_mm256_mullo_epi32, a, b) }
        fn min_i32(a: I32, b: I32) -> I32 { two!(_mm256_min_epi32, a, b) }
        fn max_i32(a: I32, b: I32) -> I32 { two!(_mm256_max_epi32, a, b) }
        fn and(a: I32, b: I32) -> I32 { two!(_mm256_and_si256, a, b) }
        fn or(a: I32, b: I32) -> I32 { two!(_mm256_or_si256, a, b) }
        fn xor(a: I32, b: I32) -> I32 { two!(_mm256_xor_si256, a, b) }
        fn load_bytes(from: &[u8; 4 * LANES]) -> I32 {
            [load_half!(from[..32]), load_half!(from[32..])]
        }
        fn store_bytes(value: I32, to: &mut [u8; 4 * LANES]) {
            store_half!(to[..32], value[0]);
            store_half!(to[32..], value[1]);
        }
        fn lookup(table: I32, idx: I32) -> I32 { two!(_mm256_shuffle_epi8, table, idx) }
        fn lookup_f32(table: F32, idx: I32) -> F32 {
            let half = |idx: __m256i| {
                let [low, high] = table.map(|table| _mm256_permutevar8x32_ps(table, idx));
                _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(idx)))
            };
            idx.map(half)
        }
        fn dot4(acc: I32, u: I32, s: I32) -> I32 { two!(dot4_half, acc, u, s) }
        fn eq_i32(a: I32, b: I32) -> I32 { two!(_mm256_cmpeq_epi32, a, b) }
        fn lt_i32(a: I32, b: I32) -> I32 { two!(_mm256_cmpgt_epi32, b, a) }
        fn select_i32(mask: I32, yes: I32, no: I32) -> I32 {
            two!(_mm256_blendv_epi8, no, yes, mask)
        }
        fn from_bits(a: I32) -> F32 { two!(_mm256_castsi256_ps, a) }
        fn to_f32(a: I32) -> F32 { two!(_mm256_cvtepi32_ps, a) }
        fn to_i32(a: F32) -> I32 { two!(_mm256_cvttps_epi32, a) }

        fn and_mask(a: I32, b: I32) -> I32 { two!(_mm256_and_si256, a, b) }
        fn or_mask(a: I32, b: I32) -> I32 { two!(_mm256_or_si256, a, b) }
        fn not_mask(a: I32) -> I32 {
            let ones = [_mm256_set1_epi32(-1); 2];
            two!(_mm256_xor_si256, a, ones)
        }
        fn mask_bits(a: I32) -> u16 {
            let low = _mm256_movemask_ps(_mm256_castsi256_ps(a[0]));
            let high = _mm256_movemask_ps(_mm256_castsi256_ps(a[1]));
            let [low, ..] = low.to_le_bytes();
            let [high, ..] = high.to_le_bytes();
            u16::from_le_bytes([low, high])
        }
        fn mask_from_bits(bits: u16) -> I32 {
            let bits = _mm256_set1_epi32(bits.into());
            let low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let high = _mm256_slli_epi32::<8>(low);
            [
                _mm256_cmpeq_epi32(_mm256_and_si256(bits, low), low),
                _mm256_cmpeq_epi32(_mm256_and_si256(bits, high), high),
            ]
        }

        fn sum(a: F32) -> f32 {
            let half = _mm256_add_ps(a[0], a[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn body<const N: i32>(a: I32) -> I32 {
            two!(_mm256_slli_epi32::<N>, a)
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn body<const N: i32>(a: I32) -> I32 {
            two!(_mm256_srli_epi32::<N>, a)
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
    #[inline(always)]
    fn sra<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn body<const N: i32>(a: I32) -> I32 {
            two!(_mm256_srai_epi32::<N>, a)
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
}
