//! Sixteen lanes, whatever the CPU: one register on AVX-512, two on AVX2, four on NEON, an array
//! elsewhere. Every operation has the same result on each, bit for bit.

/// Lanes of every vector.
pub const LANES: usize = 16;

/// An instruction set. A value exists only if the CPU has it (`detect`), which is what makes the
/// operations safe. All arithmetic is IEEE, round to nearest even; nothing flushes subnormals.
#[expect(missing_docs, reason = "elementwise operations are named after what they compute")]
pub trait Isa: Copy + Send + Sync + 'static {
    /// Name in manifests, logs and tests.
    const NAME: &'static str;
    /// Sixteen f32.
    type F32: Copy;
    /// Sixteen 32-bit integers; signed or not is up to the operation.
    type I32: Copy;
    /// Sixteen truths.
    type Mask: Copy;

    /// The proof, if the CPU has this instruction set.
    fn detect() -> Option<Self>;
    /// Runs `f` compiled for this instruction set, if it is `#[inline(always)]` all the way down.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &[f32; LANES]) -> Self::F32;
    fn store(self, value: Self::F32, to: &mut [f32; LANES]);
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// NaN if either is.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// NaN if either is.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    fn sqrt(self, a: Self::F32) -> Self::F32;
    fn floor(self, a: Self::F32) -> Self::F32;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F32) -> Self::F32;
    fn eq(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    fn lt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    fn le(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32;
    fn bits(self, a: Self::F32) -> Self::I32;

    fn splat_i32(self, value: i32) -> Self::I32;
    fn load_i32(self, from: &[i32; LANES]) -> Self::I32;
    fn store_i32(self, value: Self::I32, to: &mut [i32; LANES]);
    /// Sixteen bytes, each zero-extended.
    fn load_u8(self, from: &[u8; LANES]) -> Self::I32;
    /// Sixteen little-endian 16-bit words, each zero-extended.
    fn load_u16(self, from: &[u8; 2 * LANES]) -> Self::I32;
    /// The low byte of each lane.
    fn store_u8(self, value: Self::I32, to: &mut [u8; LANES]);
    /// The low 16 bits of each lane, little endian.
    fn store_u16(self, value: Self::I32, to: &mut [u8; 2 * LANES]);
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn sub_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn mul_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn min_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn xor(self, a: Self::I32, b: Self::I32) -> Self::I32;
    fn shl<const N: i32>(self, a: Self::I32) -> Self::I32;
    /// Logical.
    fn shr<const N: i32>(self, a: Self::I32) -> Self::I32;
    fn eq_i32(self, a: Self::I32, b: Self::I32) -> Self::Mask;
    /// Signed.
    fn lt_i32(self, a: Self::I32, b: Self::I32) -> Self::Mask;
    fn select_i32(self, mask: Self::Mask, yes: Self::I32, no: Self::I32) -> Self::I32;
    fn from_bits(self, a: Self::I32) -> Self::F32;
    /// Signed integers to the nearest f32.
    fn to_f32(self, a: Self::I32) -> Self::F32;
    /// Towards zero; what does not fit, and NaN, is `i32::MIN`.
    fn to_i32(self, a: Self::F32) -> Self::I32;

    fn and_mask(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn or_mask(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    fn not_mask(self, a: Self::Mask) -> Self::Mask;
    /// One bit a lane, lane 0 the lowest.
    fn mask_bits(self, a: Self::Mask) -> u16;
    fn mask_from_bits(self, bits: u16) -> Self::Mask;

    /// Lanes added in pairs: `i` and `i + 8`, then 4, 2, 1 apart.
    fn sum(self, a: Self::F32) -> f32;
}
