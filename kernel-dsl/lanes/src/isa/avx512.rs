//! AVX-512 with VNNI: sixteen lanes are one register, masks are mask registers.
#![expect(unsafe_code, reason = "intrinsics; every block cites the token or the array it reads")]

use super::amx::Amx;
use super::avx2::prefetch;
use super::features::{compiled_for, detected, features};
use super::{Isa, LANES, under_features};
use std::arch::x86_64::*;

/// Proof of AVX-512 F, BW, DQ, VL and VNNI, and of what those imply.
#[derive(Debug, Clone, Copy)]
pub struct Avx512 {
    /// Whether there is AMX beside it.
    tiles: bool,
}

impl Avx512 {
    /// Whether there are tiles, which are those of AMX.
    pub const fn has_tiles(self) -> bool {
        self.tiles
    }

    /// The vector instructions alone.
    pub const fn without_tiles(self) -> Self {
        Self { tiles: false }
    }
}

type F32 = __m512;
type I32 = __m512i;

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";
    const BLOCK_ROWS: usize = 8;
    type F32 = F32;
    type I32 = I32;
    type Mask = __mmask16;
    type Tiles = Amx;

    fn detect() -> Option<Self> {
        let all = detected!(Avx512, is_x86_feature_detected);
        all.then(|| Self { tiles: Amx::is_available() })
    }

    #[inline(always)]
    fn tiles(self, rows: usize) -> Option<Amx> {
        if self.tiles { Amx::begin(rows) } else { None }
    }

    #[inline(always)]
    fn prefetch<T>(self, near: &T, bytes: usize) {
        prefetch(near, bytes);
    }

    #[inline(always)]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        compiled_for! { Avx512;
            fn body<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
        }
        // SAFETY: `self` exists only because `detect` saw these features.
        unsafe { body(f) }
    }

    under_features! { "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni";
        fn splat(value: f32) -> F32 { _mm512_set1_ps(value) }
        fn load(from: &[f32; LANES]) -> F32 {
            // SAFETY: the array has the 64 bytes that are read; no alignment is asked for.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }
        fn store(value: F32, to: &mut [f32; LANES]) {
            // SAFETY: the array has the 64 bytes that are written; no alignment is asked for.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
        }
        fn add(a: F32, b: F32) -> F32 { _mm512_add_ps(a, b) }
        fn sub(a: F32, b: F32) -> F32 { _mm512_sub_ps(a, b) }
        fn mul(a: F32, b: F32) -> F32 { _mm512_mul_ps(a, b) }
        fn div(a: F32, b: F32) -> F32 { _mm512_div_ps(a, b) }
        fn min(a: F32, b: F32) -> F32 {
            // The instruction gives `b` where either is NaN.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            _mm512_mask_mov_ps(_mm512_min_ps(a, b), nan, a)
        }
        fn max(a: F32, b: F32) -> F32 {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            _mm512_mask_mov_ps(_mm512_max_ps(a, b), nan, a)
        }
        fn fma(a: F32, b: F32, c: F32) -> F32 { _mm512_fmadd_ps(a, b, c) }
        fn sqrt(a: F32) -> F32 { _mm512_sqrt_ps(a) }
        fn floor(a: F32) -> F32 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a)
        }
        fn round(a: F32) -> F32 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn eq(a: F32, b: F32) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
        fn lt(a: F32, b: F32) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
        fn le(a: F32, b: F32) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
        fn select(mask: __mmask16, yes: F32, no: F32) -> F32 { _mm512_mask_mov_ps(no, mask, yes) }
        fn bits(a: F32) -> I32 { _mm512_castps_si512(a) }

        fn splat_i32(value: i32) -> I32 { _mm512_set1_epi32(value) }
        fn load_i32(from: &[i32; LANES]) -> I32 {
            // SAFETY: the array has the 64 bytes that are read; no alignment is asked for.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        }
        fn store_i32(value: I32, to: &mut [i32; LANES]) {
            // SAFETY: the array has the 64 bytes that are written; no alignment is asked for.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
        }
        fn load_u8(from: &[u8; LANES]) -> I32 {
            // SAFETY: the array has the 16 bytes that are read; no alignment is asked for.
            _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(from.as_ptr().cast()) })
        }
        fn load_u16(from: &[u8; 2 * LANES]) -> I32 {
            // SAFETY: the array has the 32 bytes that are read; no alignment is asked for.
            _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
        }
        fn store_u8(value: I32, to: &mut [u8; LANES]) {
            let bytes = _mm512_cvtepi32_epi8(value);
            // SAFETY: the array has the 16 bytes that are written; no alignment is asked for.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) }
        }
        fn store_u16(value: I32, to: &mut [u8; 2 * LANES]) {
            let words = _mm512_cvtepi32_epi16(value);
            // SAFETY: the array has the 32 bytes that are written; no alignment is asked for.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) }
        }
        fn add_i32(a: I32, b: I32) -> I32 { _mm512_add_epi32(a, b) }
        fn sub_i32(a: I32, b: I32) -> I32 { _mm512_sub_epi32(a, b) }
        fn mul_i32(a: I32, b: I32) -> I32 { _mm512_mullo_epi32(a, b) }
        fn min_i32(a: I32, b: I32) -> I32 { _mm512_min_epi32(a, b) }
        fn max_i32(a: I32, b: I32) -> I32 { _mm512_max_epi32(a, b) }
        fn and(a: I32, b: I32) -> I32 { _mm512_and_si512(a, b) }
        fn or(a: I32, b: I32) -> I32 { _mm512_or_si512(a, b) }
        fn xor(a: I32, b: I32) -> I32 { _mm512_xor_si512(a, b) }
        fn load_bytes(from: &[u8; 4 * LANES]) -> I32 {
            // SAFETY: the array has the 64 bytes that are read; no alignment is asked for.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        }
        fn store_bytes(value: I32, to: &mut [u8; 4 * LANES]) {
            // SAFETY: the array has the 64 bytes that are written; no alignment is asked for.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
        }
        fn lookup(table: I32, idx: I32) -> I32 { _mm512_shuffle_epi8(table, idx) }
        fn lookup_f32(table: F32, idx: I32) -> F32 { _mm512_permutexvar_ps(idx, table) }
        fn nibbles(words: [u32; 2]) -> I32 {
            let places = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 0, 8, 16, 24, 4, 12, 20, 28);
            let [low, high] = words.map(|word| _mm512_set1_epi32(word.cast_signed()));
            let both = _mm512_mask_mov_epi32(low, 0xff00, high);
            _mm512_and_si512(_mm512_srlv_epi32(both, places), _mm512_set1_epi32(15))
        }
        fn dot4(acc: I32, u: I32, s: I32) -> I32 { _mm512_dpbusd_epi32(acc, u, s) }
        fn eq_i32(a: I32, b: I32) -> __mmask16 { _mm512_cmpeq_epi32_mask(a, b) }
        fn lt_i32(a: I32, b: I32) -> __mmask16 { _mm512_cmplt_epi32_mask(a, b) }
        fn select_i32(mask: __mmask16, yes: I32, no: I32) -> I32 {
            _mm512_mask_mov_epi32(no, mask, yes)
        }
        fn from_bits(a: I32) -> F32 { _mm512_castsi512_ps(a) }
        fn to_f32(a: I32) -> F32 { _mm512_cvtepi32_ps(a) }
        fn to_i32(a: F32) -> I32 { _mm512_cvttps_epi32(a) }

        fn and_mask(a: __mmask16, b: __mmask16) -> __mmask16 { a & b }
        fn or_mask(a: __mmask16, b: __mmask16) -> __mmask16 { a | b }
        fn not_mask(a: __mmask16) -> __mmask16 { !a }
        fn mask_bits(a: __mmask16) -> u16 { a }
        fn mask_from_bits(bits: u16) -> __mmask16 { bits }

        fn most_i32(a: I32) -> i32 { _mm512_reduce_max_epi32(a) }
        fn total_i32(a: I32) -> i32 { _mm512_reduce_add_epi32(a) }

        fn sum(a: F32) -> f32 {
            let half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn body<const N: i32>(a: I32) -> I32 {
            _mm512_sll_epi32(a, _mm_cvtsi32_si128(N))
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn body<const N: i32>(a: I32) -> I32 {
            _mm512_srl_epi32(a, _mm_cvtsi32_si128(N))
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
    #[inline(always)]
    fn sra<const N: i32>(self, a: I32) -> I32 {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn body<const N: i32>(a: I32) -> I32 {
            _mm512_sra_epi32(a, _mm_cvtsi32_si128(N))
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body::<N>(a) }
    }
}
