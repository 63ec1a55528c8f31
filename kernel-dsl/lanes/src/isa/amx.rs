//! AMX: a unit beside the vector registers that multiplies tiles of bfloat16. Rust has no stable
//! intrinsics for it, and what the compiler makes of tile instructions between vector instructions
//! spills the sums, so this one loop is written out.
//!
//! Two planes of integers of eight bits, one worth 256 times the other, and weights that are small
//! integers are all exact in bfloat16, and so are their sums in f32: the tiles add both planes, and
//! the vectors find sums that need no conversion. Bytes would take two sums, a shift and a
//! conversion, and while tiles are busy, vectors of 512 bits have one port for floats, not two.
#![expect(unsafe_code, reason = "instructions; every block says what makes it sound")]

use super::{
    LANES, TILE_BLOCK, TILE_GROUPS, TILE_PANELS, TILE_ROWS, TileCodes, TileNibbles, TileOperands,
    TileTotals, Tiles,
};
use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The tiles of this thread, set up for a number of rows; handed back when dropped.
#[derive(Debug)]
pub struct Amx {
    rows: usize,
    /// Sums on their way from tiles to vectors: those of the last step and those of this one.
    sums: [MaybeUninit<Sums>; 2],
    /// Which of them this step writes.
    turn: usize,
    /// Tiles belong to a thread.
    thread: PhantomData<*const ()>,
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// For each group and panel the sums of each row with sixteen outputs. Only instructions read them,
/// and only what they wrote.
#[derive(Debug)]
#[repr(align(64))]
struct Sums {
    _groups: [[[[f32; LANES]; TILE_ROWS]; TILE_PANELS]; TILE_GROUPS],
}

/// Words of a block of the left side: a row of two tiles.
const BLOCK_WORDS: usize = TILE_BLOCK;

// What the instructions below count on.
const _: () = assert!(size_of::<Config>() == 64 && size_of::<Sums>() == 8192);
const _: () = assert!(TILE_BLOCK == 32 && LANES == 16 && TILE_ROWS == 16);
const _: () = assert!(TILE_GROUPS == 4 && TILE_PANELS == 2);
const _: () = assert!(size_of::<TileCodes>() == 4096);

impl Amx {
    /// Whether this CPU has tiles of bfloat16 and the system lets this process use them.
    pub(super) fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| has_instructions() && may_use())
    }

    /// Sets up the tiles of this thread, if there are any, for `rows` rows of the left side. The
    /// caller has seen AVX-512.
    #[inline]
    pub(super) fn begin(rows: usize) -> Option<Self> {
        if !Self::is_available() {
            return None;
        }
        let left =
            u8::try_from(rows).ok().filter(|rows| (1..=TILE_ROWS).contains(&(*rows).into()))?;
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        // 0 to 3 are sums, 4 and 5 the right sides of two panels, 6 and 7 planes of the left side.
        for tile in 0..8 {
            config.row_bytes[tile] = 64;
            config.rows[tile] = if tile == 4 || tile == 5 { 16 } else { left };
        }
        // SAFETY: the instruction exists (`is_available`) and reads the 64 bytes of `config`. The
        // state it sets is used by nothing but this type: no other code knows of tiles.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly));
        }
        let sums = [const { MaybeUninit::uninit() }; 2];
        Some(Self { rows, sums, turn: 0, thread: PhantomData })
    }
}

impl Drop for Amx {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the instruction exists, as there is an `Amx`; nothing else uses tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }
}

impl Tiles for Amx {
    #[inline]
    fn decode(&self, codes: &TileNibbles, values: &[u16; 32], out: &mut TileCodes) {
        #[target_feature(enable = "avx512f,avx512bw")]
        fn body(codes: &TileNibbles, values: &[u16; 32], out: &mut TileCodes) {
            // SAFETY: the arrays have the 64 bytes that are read and written.
            let load = |from: *const u8| unsafe { _mm512_loadu_si512(from.cast()) };
            let values = load(values.as_ptr().cast());
            for (codes, out) in codes.iter().zip(out.as_flattened_mut().as_chunks_mut::<4>().0) {
                let codes = load(codes.as_ptr());
                // Only the low five bits of an index count, and the values repeat after sixteen.
                let shifted = [
                    codes,
                    _mm512_srli_epi16::<8>(codes),
                    _mm512_srli_epi16::<4>(codes),
                    _mm512_srli_epi16::<12>(codes),
                ];
                for (idx, out) in shifted.into_iter().zip(out) {
                    let words = _mm512_permutexvar_epi16(idx, values);
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) }
                }
            }
        }
        // SAFETY: `Avx512`, which gave this out, is the proof of the features.
        unsafe { body(codes, values, out) }
    }

    #[inline]
    fn step(&mut self, multiply: Option<&TileOperands<'_>>, add: Option<TileTotals<'_>>) {
        let run = match (multiply.is_some(), add.is_some(), self.rows <= 8) {
            (false, false, _) => return,
            (true, false, _) => multiply_rows,
            (true, true, true) => multiply_and_add_8_rows,
            (true, true, false) => multiply_and_add_16_rows,
            (false, true, true) => add_8_rows,
            (false, true, false) => add_16_rows,
        };
        let mut memory = Memory {
            left: std::ptr::null(),
            stride: 0,
            right: std::ptr::null(),
            soon: [std::ptr::null(); TILE_PANELS],
            sums: self.sums[self.turn].as_mut_ptr(),
            last: self.sums[1 - self.turn].as_ptr(),
            w_scales: std::ptr::null(),
            x_scales: std::ptr::null(),
            totals: std::ptr::null_mut(),
            total_stride: 0,
        };
        if let Some(operands) = multiply {
            let words = (self.rows - 1) * operands.stride + TILE_GROUPS * BLOCK_WORDS;
            assert!(operands.left.len() >= words, "rows of the left side");
            memory.left = operands.left.as_ptr();
            memory.stride = operands.stride * size_of::<i32>();
            memory.right = operands.right;
            memory.soon = operands.soon;
        }
        if let Some(add) = add {
            let rows = self.rows.next_multiple_of(8);
            let width = TILE_PANELS * LANES;
            assert!(add.totals.len() >= (rows - 1) * add.stride + width, "totals of the rows");
            memory.w_scales = add.w_scales;
            memory.x_scales = add.x_scales;
            memory.totals = add.totals.as_mut_ptr();
            memory.total_stride = add.stride * size_of::<f32>();
        }
        // SAFETY: tiles are set up for `rows` rows, which the left side has; there are eight or
        // sixteen rows of totals, as asserted; `Avx512`, which gave this out, is the proof of
        // AVX-512. What is null belongs to the half that is not run. Sums that nothing was
        // multiplied for are whatever numbers their memory holds.
        unsafe { run(&memory) }
        self.turn = 1 - self.turn;
    }
}

/// What the instructions read and write.
struct Memory {
    left: *const i32,
    /// Bytes from a row of the left side to the next.
    stride: usize,
    right: *const [TileCodes; TILE_PANELS],
    soon: [*const u8; TILE_PANELS],
    sums: *mut Sums,
    last: *const Sums,
    w_scales: *const [[[f32; LANES]; TILE_GROUPS]; TILE_PANELS],
    x_scales: *const [[f32; TILE_GROUPS]; TILE_ROWS],
    totals: *mut f32,
    /// Bytes from a row of the totals to the next.
    total_stride: usize,
}

/// A quarter of a group: the first two multiply both panels by one plane of the left side, the others
/// by the other, into tiles `$a` and `$b`. Each asks for two lines of memory, as more would wait for
/// each other.
#[rustfmt::skip] // one instruction a line
macro_rules! multiply {
    (no $($rest:tt)*) => { "" };
    (yes $group:literal 0 [$a:literal $b:literal]) => {
        concat!(
            "tilezero tmm", $a, "\n",
            "tilezero tmm", $b, "\n",
            "tileloadd tmm4, [{right} + {line}*1 + ", $group, "*1024]\n",
            "tileloadd tmm6, [{left} + {stride}*1 + ", $group, "*128]\n",
            "prefetcht1 [{soon_0} + ", $group, "*256]\n",
            "prefetcht1 [{soon_1} + ", $group, "*256]\n",
        )
    };
    (yes $group:literal 1 [$a:literal $b:literal]) => {
        concat!(
            "tdpbf16ps tmm", $a, ", tmm6, tmm4\n",
            "tileloadd tmm5, [{right} + {line}*1 + 4096 + ", $group, "*1024]\n",
            "tdpbf16ps tmm", $b, ", tmm6, tmm5\n",
            "prefetcht1 [{soon_0} + ", $group, "*256 + 64]\n",
            "prefetcht1 [{soon_1} + ", $group, "*256 + 64]\n",
        )
    };
    (yes $group:literal 2 [$a:literal $b:literal]) => {
        concat!(
            "tileloadd tmm7, [{left} + {stride}*1 + 64 + ", $group, "*128]\n",
            "tdpbf16ps tmm", $a, ", tmm7, tmm4\n",
            "prefetcht1 [{soon_0} + ", $group, "*256 + 128]\n",
            "prefetcht1 [{soon_1} + ", $group, "*256 + 128]\n",
        )
    };
    (yes $group:literal 3 [$a:literal $b:literal]) => {
        concat!(
            "tdpbf16ps tmm", $b, ", tmm7, tmm5\n",
            "prefetcht1 [{soon_0} + ", $group, "*256 + 192]\n",
            "prefetcht1 [{soon_1} + ", $group, "*256 + 192]\n",
        )
    };
}

/// Stores the sums of a panel and a group.
#[rustfmt::skip] // one instruction a line
macro_rules! store {
    (no $($rest:tt)*) => { "" };
    (yes $panel:literal $group:literal $tile:literal) => {
        concat!(
            "tilestored [{sums} + {line}*1 + ", $group, "*2048 + ", $panel, "*1024], tmm", $tile, "\n",
        )
    };
}

/// Adds the sums that some rows had of a panel and a group in the last step to their totals:
/// `total = fma(sum, x_scale * w_scale, total)`. The second half of the rows follows the first.
macro_rules! scale {
    (no $($rest:tt)*) => { "" };
    (yes first $panel:literal $group:literal $($rest:tt)*) => {
        concat!(
            "vmovups zmm0, zmmword ptr [{w_scales} + ", $panel, "*256 + ", $group, "*64]\n",
            scale!(yes rows $panel $group $($rest)*),
        )
    };
    (yes rows $panel:literal $group:literal $($row:literal $total:literal $factor:literal)*) => {
        concat!($(
            "vmulps zmm", $factor, ", zmm0, dword ptr [{x_scales} + ", $row, "*16 + ", $group,
            "*4]{{1to16}}\n",
            "vfmadd231ps zmm", $total, ", zmm", $factor, ", zmmword ptr [{last} + ", $group,
            "*2048 + ", $panel, "*1024 + ", $row, "*64]\n",
        )*)
    };
}

/// The totals of a panel to or from registers, row after row.
macro_rules! totals {
    (no $($rest:tt)*) => { "" };
    (yes load $panel:literal $($row:literal $total:literal $factor:literal)*) => {
        concat!(
            "mov {at}, {totals}\n",
            $(
                "vmovups zmm", $total, ", zmmword ptr [{at} + ", $panel, "*64]\n",
                "add {at}, {total_stride}\n",
            )*
        )
    };
    (yes store $panel:literal $($row:literal $total:literal $factor:literal)*) => {
        concat!(
            "mov {at}, {totals}\n",
            $(
                "vmovups zmmword ptr [{at} + ", $panel, "*64], zmm", $total, "\n",
                "add {at}, {total_stride}\n",
            )*
        )
    };
}

/// One step: the tiles multiply while the vectors add what the tiles multiplied in the last step.
/// The two take turns every few instructions, which is what makes them work side by side.
#[rustfmt::skip] // one quarter of a group a line
macro_rules! step {
    ($m:ident $s:ident [$($lo:tt)*] [$($hi:tt)*]) => {
        concat!(
            totals!($s load 0 $($lo)* $($hi)*),
            multiply!($m 0 0 [0 1]),                   scale!($s first 0 0 $($lo)*),
            multiply!($m 0 1 [0 1]),                   scale!($s rows 0 0 $($hi)*),
            multiply!($m 0 2 [0 1]),                   scale!($s first 0 1 $($lo)*),
            multiply!($m 0 3 [0 1]),                   scale!($s rows 0 1 $($hi)*),
            multiply!($m 1 0 [2 3]), store!($m 0 0 0), scale!($s first 0 2 $($lo)*),
            multiply!($m 1 1 [2 3]),                   scale!($s rows 0 2 $($hi)*),
            multiply!($m 1 2 [2 3]), store!($m 1 0 1), scale!($s first 0 3 $($lo)*),
            multiply!($m 1 3 [2 3]),                   scale!($s rows 0 3 $($hi)*),
            totals!($s store 0 $($lo)* $($hi)*),
            totals!($s load 1 $($lo)* $($hi)*),
            multiply!($m 2 0 [0 1]), store!($m 0 1 2), scale!($s first 1 0 $($lo)*),
            multiply!($m 2 1 [0 1]),                   scale!($s rows 1 0 $($hi)*),
            multiply!($m 2 2 [0 1]), store!($m 1 1 3), scale!($s first 1 1 $($lo)*),
            multiply!($m 2 3 [0 1]),                   scale!($s rows 1 1 $($hi)*),
            multiply!($m 3 0 [2 3]), store!($m 0 2 0), scale!($s first 1 2 $($lo)*),
            multiply!($m 3 1 [2 3]),                   scale!($s rows 1 2 $($hi)*),
            multiply!($m 3 2 [2 3]), store!($m 1 2 1), scale!($s first 1 3 $($lo)*),
            multiply!($m 3 3 [2 3]),                   scale!($s rows 1 3 $($hi)*),
            store!($m 0 3 2), store!($m 1 3 3),
            totals!($s store 1 $($lo)* $($hi)*),
            // Code that is compiled without AVX would wait for what is left in the vectors.
            "vzeroupper\n",
            // What a step does not use has to be named.
            "# {left} {stride} {right} {line} {soon_0} {soon_1} {sums} {last} {w_scales} {x_scales} ",
            "{totals} {total_stride} {at}\n",
        )
    };
}

macro_rules! step_of {
    ($name:ident: $($step:tt)*) => {
        /// # Safety
        /// Where it multiplies: tiles are set up for at most as many rows, and the left side has
        /// them. Where it adds: there are totals for as many rows.
        #[target_feature(enable = "avx512f")]
        unsafe fn $name(memory: &Memory) {
            // SAFETY: loads what the caller vouches for and whole arrays, stores to whole arrays;
            // no other code knows of tiles.
            unsafe {
                asm!(
                    step!($($step)*),
                    left = in(reg) memory.left,
                    stride = in(reg) memory.stride,
                    right = in(reg) memory.right,
                    line = in(reg) 64usize,
                    soon_0 = in(reg) memory.soon[0],
                    soon_1 = in(reg) memory.soon[1],
                    sums = in(reg) memory.sums,
                    last = in(reg) memory.last,
                    w_scales = in(reg) memory.w_scales,
                    x_scales = in(reg) memory.x_scales,
                    totals = in(reg) memory.totals,
                    total_stride = in(reg) memory.total_stride,
                    at = out(reg) _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                    out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                    out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                    out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                    out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                    out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
                    out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
                    options(nostack),
                );
            }
        }
    };
}

// Row, register of its total, and register of its factor.
macro_rules! steps {
    ($name:ident, $m:ident $s:ident, 8) => {
        step_of! {
            $name: $m $s [0 16 1  1 17 2  2 18 3  3 19 4] [4 20 5  5 21 6  6 22 7  7 23 8]
        }
    };
    ($name:ident, $m:ident $s:ident, 16) => {
        step_of! {
            $name: $m $s
            [0 16 1  1 17 2  2 18 3  3 19 4  4 20 5  5 21 6  6 22 7  7 23 8]
            [8 24 1  9 25 2  10 26 3  11 27 4  12 28 5  13 29 6  14 30 7  15 31 8]
        }
    };
}

steps!(multiply_rows, yes no, 8);
steps!(multiply_and_add_8_rows, yes yes, 8);
steps!(multiply_and_add_16_rows, yes yes, 16);
steps!(add_8_rows, no yes, 8);
steps!(add_16_rows, no yes, 16);

/// AMX-TILE and AMX-BF16, and a system that saves their state.
fn has_instructions() -> bool {
    const TILE_AND_BF16: u32 = 1 << 24 | 1 << 22;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction exists.
    let saved = unsafe { _xgetbv(0) };
    __cpuid_count(7, 0).edx & TILE_AND_BF16 == TILE_AND_BF16 && saved & TILE_STATE == TILE_STATE
}

/// Asks Linux for the tiles, which it gives to processes that ask. Elsewhere nobody does.
fn may_use() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_PRCTL: i64 = 158;
        const REQUEST_PERMISSION: u64 = 0x1023;
        const TILE_DATA: u64 = 18;
        let result: i64;
        // SAFETY: the system call reads its two numbers and no memory; it changes rcx and r11.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") REQUEST_PERMISSION,
                in("rsi") TILE_DATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        result == 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}
