//! NEON: sixteen lanes are four registers, masks are registers of ones and zeros.
#![expect(unsafe_code, reason = "intrinsics; every block cites the token or the array it reads")]

use super::features::{compiled_for, detected, features};
use super::{Isa, LANES, NoTiles, under_features};
use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

/// Proof of NEON, which every aarch64 CPU that runs Rust's standard library has.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

type F32 = [float32x4_t; 4];
type I32 = [int32x4_t; 4];
type Mask = [uint32x4_t; 4];

/// The operation on all four quarters.
macro_rules! four {
    ($op:path, $($arg:ident),*) => {
        [$op($($arg[0]),*), $op($($arg[1]),*), $op($($arg[2]),*), $op($($arg[3]),*)]
    };
}

#[inline]
#[target_feature(enable = "neon")]
fn min_quarter(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // Compared and chosen, not `fmin`, which orders the two zeros.
    let a_wins = vorrq_u32(vcltq_f32(a, b), vmvnq_u32(vceqq_f32(a, a)));
    vbslq_f32(a_wins, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn max_quarter(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    let a_wins = vorrq_u32(vcgtq_f32(a, b), vmvnq_u32(vceqq_f32(a, a)));
    vbslq_f32(a_wins, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn fma_quarter(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    vfmaq_f32(c, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn to_i32_quarter(a: float32x4_t) -> int32x4_t {
    // The instruction saturates and makes NaN zero.
    let limit = vdupq_n_f32(2_147_483_648.0);
    let fits = vandq_u32(vcgeq_f32(a, vnegq_f32(limit)), vcltq_f32(a, limit));
    vbslq_s32(fits, vcvtq_s32_f32(a), vdupq_n_s32(i32::MIN))
}

#[inline]
#[target_feature(enable = "neon")]
fn lookup_quarter(table: int32x4_t, idx: int32x4_t) -> int32x4_t {
    vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(idx)))
}

#[inline]
#[target_feature(enable = "neon")]
fn dot4_quarter(acc: int32x4_t, u: int32x4_t, s: int32x4_t) -> int32x4_t {
    // Bytes of `u` are at most 127, so they are signed bytes too.
    let (u, s) = (vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(s));
    let low = vpaddlq_s16(vmull_s8(vget_low_s8(u), vget_low_s8(s)));
    let high = vpaddlq_s16(vmull_high_s8(u, s));
    vaddq_s32(acc, vpaddq_s32(low, high))
}

#[inline]
#[target_feature(enable = "neon")]
fn bits_quarter(mask: uint32x4_t, weights: uint32x4_t) -> u32 {
    vaddvq_u32(vandq_u32(mask, weights))
}

/// Powers of two from `2^first`.
#[inline]
#[target_feature(enable = "neon")]
fn weights(first: i32) -> uint32x4_t {
    let powers = [1u32, 2, 4, 8];
    // SAFETY: the array has the 16 bytes that are read.
    let powers = unsafe { vld1q_u32(powers.as_ptr()) };
    vshlq_u32(powers, vdupq_n_s32(first))
}

#[inline]
#[target_feature(enable = "neon")]
fn narrow(value: I32) -> [uint16x8_t; 2] {
    let word = |v| vmovn_u32(vreinterpretq_u32_s32(v));
    [vcombine_u16(word(value[0]), word(value[1])), vcombine_u16(word(value[2]), word(value[3]))]
}

#[inline]
#[target_feature(enable = "neon")]
fn widen(low: uint16x8_t, high: uint16x8_t) -> I32 {
    [
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
        vreinterpretq_s32_u32(vmovl_high_u16(low)),
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
        vreinterpretq_s32_u32(vmovl_high_u16(high)),
    ]
}

macro_rules! load_quarter {
    ($load:ident, $from:expr) => {
        // SAFETY: the array that the slice was cut from has the 16 bytes that are read.
        unsafe { $load($from.as_ptr()) }
    };
}

macro_rules! store_quarter {
    ($store:ident, $to:expr, $value:expr) => {{
        let value = $value;
        // SAFETY: the array that the slice was cut from has the 16 bytes that are written.
        unsafe { $store($to.as_mut_ptr(), value) }
    }};
}

impl Isa for Neon {
    const NAME: &'static str = "neon";
    const BLOCK_ROWS: usize = 4;
    type F32 = F32;
    type I32 = I32;
    type Mask = Mask;
    type Tiles = NoTiles;

    fn detect() -> Option<Self> {
        detected!(Neon, is_aarch64_feature_detected).then_some(Self(()))
    }

    #[inline(always)]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        compiled_for! { Neon;
            fn body<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
        }
        // SAFETY: `self` exists only because `detect` saw the feature.
        unsafe { body(f) }
    }

    under_features! { "neon";
        fn splat(value: f32) -> F32 { [vdupq_n_f32(value); 4] }
        fn load(from: &[f32; LANES]) -> F32 {
            [
                load_quarter!(vld1q_f32, from[..4]),
                load_quarter!(vld1q_f32, from[4..8]),
                load_quarter!(vld1q_f32, from[8..12]),
                load_quarter!(vld1q_f32, from[12..]),
            ]
        }
        fn store(value: F32, to: &mut [f32; LANES]) {
            store_quarter!(vst1q_f32, to[..4], value[0]);
            store_quarter!(vst1q_f32, to[4..8], value[1]);
            store_quarter!(vst1q_f32, to[8..12], value[2]);
            store_quarter!(vst1q_f32, to[12..], value[3]);
        }
        fn add(a: F32, b: F32) -> F32 { four!(vaddq_f32, a, b) }
        fn sub(a: F32, b: F32) -> F32 { four!(vsubq_f32, a, b) }
        fn mul(a: F32, b: F32) -> F32 { four!(vmulq_f32, a, b) }
        fn div(a: F32, b: F32) -> F32 { four!(vdivq_f32, a, b) }
        fn min(a: F32, b: F32) -> F32 { four!(min_quarter, a, b) }
        fn max(a: F32, b: F32) -> F32 { four!(max_quarter, a, b) }
        fn fma(a: F32, b: F32, c: F32) -> F32 { four!(fma_quarter, a, b, c) }
        fn sqrt(a: F32) -> F32 { four!(vsqrtq_f32, a) }
        fn floor(a: F32) -> F32 { four!(vrndmq_f32, a) }
        fn round(a: F32) -> F32 { four!(vrndnq_f32, a) }
        fn eq(a: F32, b: F32) -> Mask { four!(vceqq_f32, a, b) }
        fn lt(a: F32, b: F32) -> Mask { four!(vcltq_f32, a, b) }
        fn le(a: F32, b: F32) -> Mask { four!(vcleq_f32, a, b) }
        fn select(mask: Mask, yes: F32, no: F32) -> F32 { four!(vbslq_f32, mask, yes, no) }
        fn bits(a: F32) -> I32 { four!(vreinterpretq_s32_f32, a) }

        fn splat_i32(value: i32) -> I32 { [vdupq_n_s32(value); 4] }
        fn load_i32(from: &[i32; LANES]) -> I32 {
            [
                load_quarter!(vld1q_s32, from[..4]),
                load_quarter!(vld1q_s32, from[4..8]),
                load_quarter!(vld1q_s32, from[8..12]),
                load_quarter!(vld1q_s32, from[12..]),
            ]
        }
        fn store_i32(value: I32, to: &mut [i32; LANES]) {
            store_quarter!(vst1q_s32, to[..4], value[0]);
            store_quarter!(vst1q_s32, to[4..8], value[1]);
            store_quarter!(vst1q_s32, to[8..12], value[2]);
            store_quarter!(vst1q_s32, to[12..], value[3]);
        }
        fn load_u8(from: &[u8; LANES]) -> I32 {
            let bytes = load_quarter!(vld1q_u8, from);
            widen(vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes))
        }
        fn load_u16(from: &[u8; 2 * LANES]) -> I32 {
            let low = vreinterpretq_u16_u8(load_quarter!(vld1q_u8, from[..16]));
            let high = vreinterpretq_u16_u8(load_quarter!(vld1q_u8, from[16..]));
            widen(low, high)
        }
        fn store_u8(value: I32, to: &mut [u8; LANES]) {
            let [low, high] = narrow(value);
            store_quarter!(vst1q_u8, to, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
        }
        fn store_u16(value: I32, to: &mut [u8; 2 * LANES]) {
            let [low, high] = narrow(value);
            store_quarter!(vst1q_u8, to[..16], vreinterpretq_u8_u16(low));
            store_quarter!(vst1q_u8, to[16..], vreinterpretq_u8_u16(high));
        }
        fn add_i32(a: I32, b: I32) -> I32 { four!(vaddq_s32, a, b) }
        fn sub_i32(a: I32, b: I32) -> I32 { four!(vsubq_s32, a, b) }
        fn mul_i32(a: I32, b: I32) -> I32 { four!(vmulq_s32, a, b) }
        fn min_i32(a: I32, b: I32) -> I32 { four!(vminq_s32, a, b) }
        fn max_i32(a: I32, b: I32) -> I32 { four!(vmaxq_s32, a, b) }
        fn and(a: I32, b: I32) -> I32 { four!(vandq_s32, a, b) }
        fn or(a: I32, b: I32) -> I32 { four!(vorrq_s32, a, b) }
        fn xor(a: I32, b: I32) -> I32 { four!(veorq_s32, a, b) }
        fn load_bytes(from: &[u8; 4 * LANES]) -> I32 {
            let quarters = [
                load_quarter!(vld1q_u8, from[..16]),
                load_quarter!(vld1q_u8, from[16..32]),
                load_quarter!(vld1q_u8, from[32..48]),
                load_quarter!(vld1q_u8, from[48..]),
            ];
            four!(vreinterpretq_s32_u8, quarters)
        }
        fn store_bytes(value: I32, to: &mut [u8; 4 * LANES]) {
            store_quarter!(vst1q_u8, to[..16], vreinterpretq_u8_s32(value[0]));
            store_quarter!(vst1q_u8, to[16..32], vreinterpretq_u8_s32(value[1]));
            store_quarter!(vst1q_u8, to[32..48], vreinterpretq_u8_s32(value[2]));
            store_quarter!(vst1q_u8, to[48..], vreinterpretq_u8_s32(value[3]));
        }
        fn lookup(table: I32, idx: I32) -> I32 { four!(lookup_quarter, table, idx) }
        fn dot4(acc: I32, u: I32, s: I32) -> I32 { four!(dot4_quarter, acc, u, s) }
        fn eq_i32(a: I32, b: I32) -> Mask { four!(vceqq_s32, a, b) }
        fn lt_i32(a: I32, b: I32) -> Mask { four!(vcltq_s32, a, b) }
        fn select_i32(mask: Mask, yes: I32, no: I32) -> I32 { four!(vbslq_s32, mask, yes, no) }
        fn from_bits(a: I32) -> F32 { four!(vreinterpretq_f32_s32, a) }
        fn to_f32(a: I32) -> F32 { four!(vcvtq_f32_s32, a) }
        fn to_i32(a: F32) -> I32 { four!(to_i32_quarter, a) }

        fn and_mask(a: Mask, b: Mask) -> Mask { four!(vandq_u32, a, b) }
        fn or_mask(a: Mask, b: Mask) -> Mask { four!(vorrq_u32, a, b) }
        fn not_mask(a: Mask) -> Mask { four!(vmvnq_u32, a) }
        fn mask_bits(a: Mask) -> u16 {
            let bits = bits_quarter(a[0], weights(0))
                | bits_quarter(a[1], weights(4))
                | bits_quarter(a[2], weights(8))
                | bits_quarter(a[3], weights(12));
            let [low, high, ..] = bits.to_le_bytes();
            u16::from_le_bytes([low, high])
        }
        fn mask_from_bits(bits: u16) -> Mask {
            let all = vdupq_n_u32(bits.into());
            [
                vtstq_u32(all, weights(0)),
                vtstq_u32(all, weights(4)),
                vtstq_u32(all, weights(8)),
                vtstq_u32(all, weights(12)),
            ]
        }

        fn sum(a: F32) -> f32 {
            let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, a: I32) -> I32 {
        self.shift(a, N)
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: I32) -> I32 {
        self.shift_unsigned(a, -N)
    }
    #[inline(always)]
    fn sra<const N: i32>(self, a: I32) -> I32 {
        self.shift(a, -N)
    }
}

impl Neon {
    under_features! { "neon";
        fn shift(a: I32, by: i32) -> I32 {
            let by = [vdupq_n_s32(by); 4];
            four!(vshlq_s32, a, by)
        }
        fn shift_unsigned(a: I32, by: i32) -> I32 {
            let by = [vdupq_n_s32(by); 4];
            let a = four!(vreinterpretq_u32_s32, a);
            let shifted = four!(vshlq_u32, a, by);
            four!(vreinterpretq_s32_u32, shifted)
        }
    }
}
