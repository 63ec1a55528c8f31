//! Sixteen lanes, whatever the CPU: one register on AVX-512, two on AVX2, four on NEON, an array
//! elsewhere. Every operation has the same result on each, bit for bit.

use std::fmt;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod features;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub(crate) use features::{compiled_for, features};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use scalar::Scalar;

/// Lanes of every vector.
pub const LANES: usize = 16;

/// Rows of activations that [`Tiles`] multiply at most.
pub const TILE_ROWS: usize = 16;

/// Columns of activations in one block of [`Tiles`], and of the scale groups they multiply.
pub const TILE_BLOCK: usize = 32;

/// Scale groups, one block each, that [`Tiles`] multiply at a time.
pub const TILE_GROUPS: usize = 4;

/// Panels of sixteen outputs that [`Tiles`] multiply at a time.
pub const TILE_PANELS: usize = 2;

/// Codes of four bits of [`TILE_GROUPS`] groups of a panel, as packed weights have them.
pub type TileNibbles = [[u8; 4 * LANES]; TILE_GROUPS * TILE_BLOCK / 8];

/// What [`Tiles::decode`] makes of them: for each group and two of its columns, bfloat16 pairs of
/// sixteen outputs.
pub type TileCodes = [[[u16; 2 * LANES]; TILE_BLOCK / 2]; TILE_GROUPS];

/// A unit that multiplies tiles of bfloat16, set up for a number of rows. It adds to totals one step
/// later than it multiplies, so that both go on side by side.
pub trait Tiles {
    /// Codes as what the bfloat16 `values` say, which hold the sixteen twice. Columns 1 and 2 of
    /// every four change places, as they do in the blocks of the left side.
    fn decode(&self, codes: &TileNibbles, values: &[u16; 2 * LANES], out: &mut TileCodes);

    /// Multiplies `multiply`, and adds what the last step multiplied to the totals of `add`, for
    /// each row and group, in order: `total = fma(f32(sum), x_scale * w_scale, total)`, where the
    /// sum is that of all products of the group, exact. There are totals up to the next multiple of
    /// eight rows; what is not a row becomes anything.
    ///
    /// # Panics
    /// If there are fewer, or the left side does not have the rows.
    fn step(&mut self, multiply: Option<&TileOperands<'_>>, add: Option<TileTotals<'_>>);
}

/// What [`Tiles`] multiply.
#[derive(Debug, Clone, Copy)]
pub struct TileOperands<'a> {
    /// The first row from its first group on: for each group 32 bfloat16 that are 256 times the
    /// high bytes, then 32 that are the low bytes.
    pub left: &'a [i32],
    /// Words from a row to the next.
    pub stride: usize,
    /// The panels.
    pub right: &'a [TileCodes; TILE_PANELS],
    /// For each panel the first of 1 KiB that will be read soon. It is asked for meanwhile, and
    /// need not exist.
    pub soon: [*const u8; TILE_PANELS],
}

/// Where the sums of a step are added, and how.
#[derive(Debug)]
pub struct TileTotals<'a> {
    /// Of each panel and group of that step, the scales of the outputs.
    pub w_scales: &'a [[[f32; LANES]; TILE_GROUPS]; TILE_PANELS],
    /// Of each row, the scales of the groups.
    pub x_scales: &'a [[f32; TILE_GROUPS]; TILE_ROWS],
    /// For each row the outputs of both panels.
    pub totals: &'a mut [f32],
    /// Totals from a row to the next.
    pub stride: usize,
}

/// The tiles of instruction sets without any.
#[derive(Debug)]
pub enum NoTiles {}

impl Tiles for NoTiles {
    fn decode(&self, _: &TileNibbles, _: &[u16; 2 * LANES], _: &mut TileCodes) {
        match *self {}
    }

    fn step(&mut self, _: Option<&TileOperands<'_>>, _: Option<TileTotals<'_>>) {
        match *self {}
    }
}

/// An instruction set. A value exists only if the CPU has it (`detect`), which is what makes the
/// operations safe. All arithmetic is IEEE, round to nearest even; nothing flushes subnormals.
#[expect(missing_docs, reason = "elementwise operations are named after what they compute")]
pub trait Isa: Copy + Send + Sync + 'static {
    /// Name in manifests, logs and tests.
    const NAME: &'static str;
    /// Rows that micro-kernels multiply at a time: 1, 4 or 8, as the registers allow.
    const BLOCK_ROWS: usize;
    /// Sixteen f32.
    type F32: Copy;
    /// Sixteen 32-bit integers; signed or not is up to the operation.
    type I32: Copy;
    /// Sixteen truths.
    type Mask: Copy;
    /// What multiplies tiles.
    type Tiles: Tiles;

    /// The proof, if the CPU has this instruction set.
    fn detect() -> Option<Self>;
    /// The calling thread's tiles, set up for `rows` rows, at most [`TILE_ROWS`]; none if there is
    /// no such unit.
    #[inline(always)]
    fn tiles(self, rows: usize) -> Option<Self::Tiles> {
        let _ = rows;
        None
    }
    /// Runs `f` compiled for this instruction set, if it is `#[inline(always)]` all the way down.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;

    /// Asks for the cache line `bytes` after `near`, which will be read soon; it need not exist.
    #[inline(always)]
    fn prefetch<T>(self, near: &T, bytes: usize) {
        let _ = (near, bytes);
    }

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
    /// Arithmetic: copies of the sign come in.
    fn sra<const N: i32>(self, a: Self::I32) -> Self::I32;
    /// Sixty-four bytes as they are, four to a lane.
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::I32;
    /// The bytes of every lane.
    fn store_bytes(self, value: Self::I32, to: &mut [u8; 4 * LANES]);
    /// Byte `i` of the result is byte `idx[i]` of the lane group's `table`. `table` repeats sixteen
    /// bytes in each four lanes (see [`splat_table`]); bytes of `idx` are at most 15.
    fn lookup(self, table: Self::I32, idx: Self::I32) -> Self::I32;
    /// Lane `idx[i]` of `table`, for indices of at most 15.
    #[inline(always)]
    fn lookup_f32(self, table: Self::F32, idx: Self::I32) -> Self::F32 {
        let (mut from, mut at) = ([0.0; LANES], [0; LANES]);
        self.store(table, &mut from);
        self.store_i32(idx, &mut at);
        self.load(&at.map(|at| from[at.cast_unsigned() as usize % LANES]))
    }
    /// The eight codes of four bits of each word: byte `j` holds code `j` and, above it, `j + 4`.
    #[inline(always)]
    fn nibbles(self, words: [u32; 2]) -> Self::I32 {
        let codes =
            words.map(|word| [word, word >> 4].map(|word| (word & 0x0f0f_0f0f).to_le_bytes()));
        let (codes, _) = codes.as_flattened().as_flattened().as_chunks();
        self.load_u8(&codes[0])
    }
    /// `acc` plus, in each lane, the sum of four products of a byte of `u` and a signed byte of
    /// `s`; wraps. Bytes of `u` are at most 127, which keeps every instruction's intermediates
    /// exact.
    fn dot4(self, acc: Self::I32, u: Self::I32, s: Self::I32) -> Self::I32;
    fn eq_i32(self, a: Self::I32, b: Self::I32) -> Self::Mask;
    /// Signed.
    fn lt_i32(self, a: Self::I32, b: Self::I32) -> Self::Mask;
    fn select_i32(self, mask: Self::Mask, yes: Self::I32, no: Self::I32) -> Self::I32;
    #[expect(clippy::wrong_self_convention, reason = "`self` is the proof, not what is converted")]
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

    /// The largest lane, signed.
    #[inline(always)]
    fn most_i32(self, a: Self::I32) -> i32 {
        let mut lanes = [0; LANES];
        self.store_i32(a, &mut lanes);
        lanes.into_iter().fold(i32::MIN, i32::max)
    }
    /// The sum of the lanes; wraps.
    #[inline(always)]
    fn total_i32(self, a: Self::I32) -> i32 {
        let mut lanes = [0; LANES];
        self.store_i32(a, &mut lanes);
        lanes.into_iter().fold(0, i32::wrapping_add)
    }
    /// Lanes added in pairs: `i` and `i + 8`, then 4, 2, 1 apart.
    fn sum(self, a: Self::F32) -> f32;

    #[inline(always)]
    fn neg(self, a: Self::F32) -> Self::F32 {
        self.from_bits(self.xor(self.bits(a), self.splat_i32(i32::MIN)))
    }
    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        self.from_bits(self.and(self.bits(a), self.splat_i32(i32::MAX)))
    }
    /// The first lanes from `from`, at most [`LANES`]; zero in the others.
    #[inline(always)]
    fn load_first(self, from: &[f32]) -> Self::F32 {
        let mut lanes = [0.0; LANES];
        lanes[..from.len()].copy_from_slice(from);
        self.load(&lanes)
    }
    /// The first lanes to `to`, at most [`LANES`].
    #[inline(always)]
    fn store_first(self, value: Self::F32, to: &mut [f32]) {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

/// The bytes of the operand of [`Isa::lookup`] for a table.
pub const fn splat_table(table: [u8; 16]) -> [u8; 4 * LANES] {
    let mut bytes = [0; 4 * LANES];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = table[i % 16];
        i += 1;
    }
    bytes
}

/// Work that is written for every instruction set. `call` and all below it must be
/// `#[inline(always)]`, or it runs correctly but slowly.
pub trait WithIsa {
    /// What the work gives.
    type Output;
    /// The work.
    fn call<I: Isa>(self, isa: I) -> Self::Output;
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the proofs, each documented at its type")]
pub enum AnyIsa {
    Scalar(Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl AnyIsa {
    /// All that this CPU has, the slowest first.
    pub fn available() -> Vec<Self> {
        let mut list: Vec<Self> = Scalar::detect().map(Self::Scalar).into_iter().collect();
        #[cfg(target_arch = "x86_64")]
        {
            list.extend(Avx2::detect().map(Self::Avx2));
            let all = Avx512::detect();
            list.extend(all.map(|isa| Self::Avx512(isa.without_tiles())));
            list.extend(all.filter(|isa| isa.has_tiles()).map(Self::Avx512));
        }
        #[cfg(target_arch = "aarch64")]
        list.extend(Neon::detect().map(Self::Neon));
        list
    }

    /// The fastest that this CPU has.
    pub fn best() -> Self {
        Self::available().pop().expect("every CPU has the scalar instructions")
    }

    /// Name in manifests, logs and tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar(_) => Scalar::NAME,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Avx2::NAME,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) if isa.has_tiles() => "avx512-amx",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Avx512::NAME,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => Neon::NAME,
        }
    }

    /// Whether it has [`Tiles`].
    pub const fn has_tiles(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) => isa.has_tiles(),
            _ => false,
        }
    }

    /// Runs `work` compiled for this instruction set.
    #[inline]
    pub fn run<W: WithIsa>(self, work: W) -> W::Output {
        match self {
            Self::Scalar(isa) => run_in(isa, work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(isa) => run_in(isa, work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) => run_in(isa, work),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(isa) => run_in(isa, work),
        }
    }
}

impl fmt::Debug for AnyIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[inline]
fn run_in<I: Isa, W: WithIsa>(isa: I, work: W) -> W::Output {
    isa.run(
        #[inline(always)]
        || work.call(isa),
    )
}

/// Methods of [`Isa`] whose bodies run under target features: intrinsics are safe to call there,
/// and the one unsafe block is the entry.
macro_rules! under_features {
    ($features:literal; $(
        fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block
    )*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) $(-> $ret)? {
            #[inline]
            #[target_feature(enable = $features)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            // SAFETY: `self` exists only because `detect` saw the features that `body` enables.
            unsafe { body($($arg),*) }
        }
    )* };
}
use under_features;
