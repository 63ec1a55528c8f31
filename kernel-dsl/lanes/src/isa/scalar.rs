//! Lanes as arrays: the meaning of every operation, on any CPU.

use super::{Isa, LANES, NoTiles};
use std::array::from_fn;

/// Plain Rust. The others are held to its results.
#[derive(Debug, Clone, Copy)]
pub struct Scalar(());

type F32 = [f32; LANES];
type I32 = [i32; LANES];

#[inline(always)]
fn zip_f32(a: F32, b: F32, f: impl Fn(f32, f32) -> f32) -> F32 {
    from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn zip_i32(a: I32, b: I32, f: impl Fn(i32, i32) -> i32) -> I32 {
    from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn mask(f: impl Fn(usize) -> bool) -> u16 {
    (0..LANES).fold(0, |bits, i| bits | u16::from(f(i)) << i)
}

#[inline(always)]
fn choose<T: Copy>(mask: u16, yes: [T; LANES], no: [T; LANES]) -> [T; LANES] {
    from_fn(|i| if mask >> i & 1 == 1 { yes[i] } else { no[i] })
}

#[inline(always)]
fn bytes_of(a: I32) -> [u8; 4 * LANES] {
    from_fn(|i| a[i / 4].to_le_bytes()[i % 4])
}

#[inline(always)]
fn from_bytes(bytes: &[u8; 4 * LANES]) -> I32 {
    from_fn(|i| i32::from_le_bytes(from_fn(|j| bytes[4 * i + j])))
}

/// Most operations stay functions: inlined, their loops over the lanes would be most of the code of
/// every kernel, for the instruction set that is chosen last.
impl Isa for Scalar {
    const NAME: &'static str = "scalar";
    const BLOCK_ROWS: usize = 1;
    type F32 = F32;
    type I32 = I32;
    type Mask = u16;
    type Tiles = NoTiles;

    fn detect() -> Option<Self> {
        Some(Self(()))
    }
    #[inline(always)]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn splat(self, value: f32) -> F32 {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &F32) -> F32 {
        *from
    }
    #[inline(always)]
    fn store(self, value: F32, to: &mut F32) {
        *to = value;
    }
    #[inline(never)]
    fn add(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| a + b)
    }
    #[inline(never)]
    fn sub(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| a - b)
    }
    #[inline(never)]
    fn mul(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| a * b)
    }
    #[inline(never)]
    fn div(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| a / b)
    }
    #[inline(never)]
    fn min(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| if a < b || a.is_nan() { a } else { b })
    }
    #[inline(never)]
    fn max(self, a: F32, b: F32) -> F32 {
        zip_f32(a, b, |a, b| if a > b || a.is_nan() { a } else { b })
    }
    #[inline(never)]
    fn fma(self, a: F32, b: F32, c: F32) -> F32 {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(never)]
    fn sqrt(self, a: F32) -> F32 {
        a.map(f32::sqrt)
    }
    #[inline(never)]
    fn floor(self, a: F32) -> F32 {
        a.map(f32::floor)
    }
    #[inline(never)]
    fn round(self, a: F32) -> F32 {
        a.map(f32::round_ties_even)
    }
    #[inline(never)]
    fn eq(self, a: F32, b: F32) -> u16 {
        mask(|i| a[i] == b[i])
    }
    #[inline(never)]
    fn lt(self, a: F32, b: F32) -> u16 {
        mask(|i| a[i] < b[i])
    }
    #[inline(never)]
    fn le(self, a: F32, b: F32) -> u16 {
        mask(|i| a[i] <= b[i])
    }
    #[inline(never)]
    fn select(self, mask: u16, yes: F32, no: F32) -> F32 {
        choose(mask, yes, no)
    }
    #[inline(never)]
    fn bits(self, a: F32) -> I32 {
        a.map(|a| a.to_bits().cast_signed())
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> I32 {
        [value; LANES]
    }
    #[inline(always)]
    fn load_i32(self, from: &I32) -> I32 {
        *from
    }
    #[inline(always)]
    fn store_i32(self, value: I32, to: &mut I32) {
        *to = value;
    }
    #[inline(never)]
    fn load_u8(self, from: &[u8; LANES]) -> I32 {
        from.map(i32::from)
    }
    #[inline(never)]
    fn load_u16(self, from: &[u8; 2 * LANES]) -> I32 {
        from_fn(|i| u16::from_le_bytes([from[2 * i], from[2 * i + 1]]).into())
    }
    #[inline(never)]
    fn store_u8(self, value: I32, to: &mut [u8; LANES]) {
        *to = value.map(|v| v.to_le_bytes()[0]);
    }
    #[inline(never)]
    fn store_u16(self, value: I32, to: &mut [u8; 2 * LANES]) {
        *to = from_fn(|i| value[i / 2].to_le_bytes()[i % 2]);
    }
    #[inline(never)]
    fn add_i32(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, i32::wrapping_add)
    }
    #[inline(never)]
    fn sub_i32(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, i32::wrapping_sub)
    }
    #[inline(never)]
    fn mul_i32(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, i32::wrapping_mul)
    }
    #[inline(never)]
    fn min_i32(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, i32::min)
    }
    #[inline(never)]
    fn max_i32(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, i32::max)
    }
    #[inline(never)]
    fn and(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, |a, b| a & b)
    }
    #[inline(never)]
    fn or(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, |a, b| a | b)
    }
    #[inline(never)]
    fn xor(self, a: I32, b: I32) -> I32 {
        zip_i32(a, b, |a, b| a ^ b)
    }
    #[inline(never)]
    fn shl<const N: i32>(self, a: I32) -> I32 {
        a.map(|a| a << N)
    }
    #[inline(never)]
    fn shr<const N: i32>(self, a: I32) -> I32 {
        a.map(|a| (a.cast_unsigned() >> N).cast_signed())
    }
    #[inline(never)]
    fn sra<const N: i32>(self, a: I32) -> I32 {
        a.map(|a| a >> N)
    }
    #[inline(never)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> I32 {
        from_bytes(from)
    }
    #[inline(never)]
    fn store_bytes(self, value: I32, to: &mut [u8; 4 * LANES]) {
        *to = bytes_of(value);
    }
    #[inline(never)]
    fn lookup(self, table: I32, idx: I32) -> I32 {
        let (table, idx) = (bytes_of(table), bytes_of(idx));
        from_bytes(&from_fn(|i| table[i / 16 * 16 + usize::from(idx[i] & 15)]))
    }
    #[inline(never)]
    fn dot4(self, acc: I32, u: I32, s: I32) -> I32 {
        let (u, s) = (bytes_of(u), bytes_of(s));
        from_fn(|i| {
            (4 * i..4 * i + 4).fold(acc[i], |acc, j| {
                acc.wrapping_add(i32::from(u[j]) * i32::from(s[j].cast_signed()))
            })
        })
    }
    #[inline(never)]
    fn eq_i32(self, a: I32, b: I32) -> u16 {
        mask(|i| a[i] == b[i])
    }
    #[inline(never)]
    fn lt_i32(self, a: I32, b: I32) -> u16 {
        mask(|i| a[i] < b[i])
    }
    #[inline(never)]
    fn select_i32(self, mask: u16, yes: I32, no: I32) -> I32 {
        choose(mask, yes, no)
    }
    #[inline(never)]
    fn from_bits(self, a: I32) -> F32 {
        a.map(|a| f32::from_bits(a.cast_unsigned()))
    }
    #[inline(never)]
    #[expect(clippy::cast_precision_loss, reason = "rounds to the nearest, as documented")]
    fn to_f32(self, a: I32) -> F32 {
        a.map(|a| a as f32)
    }
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "only what fits is cast")]
    fn to_i32(self, a: F32) -> I32 {
        let limit = 2_147_483_648.0;
        a.map(|a| if (-limit..limit).contains(&a) { a as i32 } else { i32::MIN })
    }

    #[inline(always)]
    fn and_mask(self, a: u16, b: u16) -> u16 {
        a & b
    }
    #[inline(always)]
    fn or_mask(self, a: u16, b: u16) -> u16 {
        a | b
    }
    #[inline(always)]
    fn not_mask(self, a: u16) -> u16 {
        !a
    }
    #[inline(always)]
    fn mask_bits(self, a: u16) -> u16 {
        a
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u16) -> u16 {
        bits
    }

    #[inline(never)]
    fn sum(self, a: F32) -> f32 {
        let mut lanes = a;
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}
