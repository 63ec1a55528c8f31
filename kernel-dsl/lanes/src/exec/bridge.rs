//! Between lanes and scalars: what generated code calls where the instruction sets have no
//! operation of their own.

use crate::isa::{Isa, LANES};

/// Sixteen elements of a tile from `at`.
///
/// # Panics
/// If the tile ends before.
#[inline(always)]
pub fn lanes<T>(tile: &[T], at: usize) -> &[T; LANES] {
    tile[at..].first_chunk().expect("tiles are padded to whole vectors")
}

/// Sixteen elements of a tile from `at`, to write to.
///
/// # Panics
/// If the tile ends before.
#[inline(always)]
pub fn lanes_mut<T>(tile: &mut [T], at: usize) -> &mut [T; LANES] {
    tile[at..].first_chunk_mut().expect("tiles are padded to whole vectors")
}

/// The lanes as an array.
#[inline(always)]
pub fn array<I: Isa>(isa: I, value: I::F32) -> [f32; LANES] {
    let mut array = [0.0; LANES];
    isa.store(value, &mut array);
    array
}

/// The lanes as an array.
#[inline(always)]
pub fn array_i32<I: Isa>(isa: I, value: I::I32) -> [i32; LANES] {
    let mut array = [0; LANES];
    isa.store_i32(value, &mut array);
    array
}

/// Sixteen f32, one after the other.
#[inline(always)]
pub fn from_fn<I: Isa>(isa: I, lane: impl FnMut(usize) -> f32) -> I::F32 {
    isa.load(&std::array::from_fn(lane))
}

/// Sixteen 32-bit integers, one after the other.
#[inline(always)]
pub fn from_fn_i32<I: Isa>(isa: I, lane: impl FnMut(usize) -> i32) -> I::I32 {
    isa.load_i32(&std::array::from_fn(lane))
}

/// Sixteen truths, one after the other.
#[inline(always)]
pub fn from_fn_mask<I: Isa>(isa: I, mut lane: impl FnMut(usize) -> bool) -> I::Mask {
    let bits = (0..LANES).fold(0u16, |bits, i| bits | (u16::from(lane(i)) << i));
    isa.mask_from_bits(bits)
}

/// The first `count` lanes.
#[inline(always)]
pub fn first<I: Isa>(isa: I, count: usize) -> I::Mask {
    isa.mask_from_bits(first_bits(count))
}

/// One bit for each of the first `count` lanes.
#[inline(always)]
pub fn first_bits(count: usize) -> u16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

/// One truth in every lane.
#[inline(always)]
pub fn splat_mask<I: Isa>(isa: I, value: bool) -> I::Mask {
    isa.mask_from_bits(if value { u16::MAX } else { 0 })
}

/// Truths of a tile.
#[inline(always)]
pub fn load_mask<I: Isa>(isa: I, from: &[u8; LANES]) -> I::Mask {
    isa.not_mask(isa.eq_i32(isa.load_u8(from), isa.splat_i32(0)))
}

/// Truths to a tile.
#[inline(always)]
pub fn store_mask<I: Isa>(isa: I, mask: I::Mask, to: &mut [u8; LANES]) {
    isa.store_u8(isa.select_i32(mask, isa.splat_i32(1), isa.splat_i32(0)), to);
}

/// The truths as an array.
#[inline(always)]
pub fn array_mask<I: Isa>(isa: I, mask: I::Mask) -> [bool; LANES] {
    let bits = isa.mask_bits(mask);
    std::array::from_fn(|lane| bits >> lane & 1 == 1)
}

/// Lanes one at a time.
#[inline(always)]
pub fn map_i32<I: Isa>(isa: I, a: I::I32, f: impl Fn(i32) -> i32) -> I::I32 {
    isa.load_i32(&array_i32(isa, a).map(f))
}

/// Lanes one pair at a time.
#[inline(always)]
pub fn zip_i32<I: Isa>(isa: I, a: I::I32, b: I::I32, f: impl Fn(i32, i32) -> i32) -> I::I32 {
    let (a, b) = (array_i32(isa, a), array_i32(isa, b));
    from_fn_i32(isa, |lane| f(a[lane], b[lane]))
}

/// Floats to integers: towards zero, saturating, NaN to zero.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a cast of the kernel language saturates")]
pub fn to_i32<I: Isa>(isa: I, a: I::F32) -> I::I32 {
    isa.load_i32(&array(isa, a).map(|x| x as i32))
}

/// Floats to unsigned integers: towards zero, saturating, NaN to zero.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of the kernel language saturates"
)]
pub fn to_u32<I: Isa>(isa: I, a: I::F32) -> I::I32 {
    isa.load_i32(&array(isa, a).map(|x| (x as u32).cast_signed()))
}

/// Unsigned integers to the nearest floats.
#[inline(always)]
pub fn u32_to_f32<I: Isa>(isa: I, a: I::I32) -> I::F32 {
    isa.load(&array_i32(isa, a).map(|x| x.cast_unsigned() as f32))
}

/// One value through an operation on lanes, so that scalars have the bits of tiles.
#[inline(always)]
pub fn one<I: Isa>(isa: I, x: f32, f: impl FnOnce(I::F32) -> I::F32) -> f32 {
    array(isa, f(isa.splat(x)))[0]
}

/// The lanes combined, in pairs 8, 4, 2 and 1 apart.
#[inline(always)]
pub fn fold<I: Isa>(isa: I, value: I::F32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = array(isa, value);
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The smaller; NaN if either is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a.is_nan() || a < b { a } else { b }
}

/// The larger; NaN if either is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// Integer operations of the kernel language that differ from Rust's.
pub trait Int: Copy {
    /// Towards zero; by zero gives zero.
    fn div(self, by: Self) -> Self;
    /// With the sign of `self`; by zero gives zero.
    fn rem(self, by: Self) -> Self;
    /// Zero if `by` is not below the width.
    fn shl(self, by: Self) -> Self;
    /// As many copies of the sign (zeros, if unsigned) as the width allows.
    fn shr(self, by: Self) -> Self;
}

macro_rules! ints {
    ($($int:ty: $last:expr;)*) => {$(
        impl Int for $int {
            #[inline(always)]
            fn div(self, by: Self) -> Self {
                if by == 0 { 0 } else { self.wrapping_div(by) }
            }
            #[inline(always)]
            fn rem(self, by: Self) -> Self {
                if by == 0 { 0 } else { self.wrapping_rem(by) }
            }
            #[inline(always)]
            fn shl(self, by: Self) -> Self {
                u32::try_from(by).ok().and_then(|by| self.checked_shl(by)).unwrap_or(0)
            }
            #[inline(always)]
            fn shr(self, by: Self) -> Self {
                let by = u32::try_from(by).unwrap_or(u32::MAX);
                self.checked_shr(by).unwrap_or(($last)(self))
            }
        }
    )*};
}

ints! {
    i32: |x: i32| x >> 31;
    i64: |x: i64| x >> 63;
    u32: |_| 0;
    u64: |_| 0;
}
