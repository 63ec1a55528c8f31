//! AMX: a unit beside the vector registers that multiplies tiles of bytes, eight times as many a
//! cycle as AVX-512 does. Rust has no stable intrinsics for it, and what the compiler makes of tile
//! instructions between vector instructions spills the sums, so this one loop is written out.
#![expect(unsafe_code, reason = "instructions; every block says what makes it sound")]

use super::{ByteTiles, LANES, TILE_BLOCK, TILE_GROUPS, TILE_ROWS, TileOperands};
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The tiles of this thread, set up for a number of rows; handed back when dropped.
#[derive(Debug)]
pub struct Amx {
    rows: usize,
    sums: Sums,
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

/// Sums on their way from tiles to vectors, three groups in turn: for each row those of the high
/// bytes with sixteen outputs, then those of the low bytes. Only instructions read them.
#[derive(Debug)]
#[repr(align(64))]
struct Sums {
    _turns: [[[i32; 2 * LANES]; TILE_ROWS]; 3],
}

/// Words of a block of the left side.
const BLOCK_WORDS: usize = TILE_BLOCK / 2;

// What the instructions below count on.
const _: () = assert!(size_of::<Config>() == 64);
const _: () = assert!(TILE_BLOCK == 32 && LANES == 16 && TILE_ROWS == 16 && TILE_GROUPS == 8);

impl Amx {
    /// Whether this CPU has tiles of bytes and the system lets this process use them.
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
        // 0 to 5 are the sums of three groups, 6 is a plane of the left side, 7 the right side.
        for tile in 0..8 {
            config.row_bytes[tile] = if tile == 6 { 32 } else { 64 };
            config.rows[tile] = if tile == 7 { 8 } else { left };
        }
        // SAFETY: the instruction exists (`is_available`) and reads the 64 bytes of `config`. The
        // state it sets is used by nothing but this type: no other code knows of tiles.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly));
        }
        let sums = Sums { _turns: [[[0; 2 * LANES]; TILE_ROWS]; 3] };
        Some(Self { rows, sums, thread: PhantomData })
    }
}

impl Drop for Amx {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the instruction exists, as there is an `Amx`; nothing else uses tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }
}

impl ByteTiles for Amx {
    #[inline]
    fn add_groups(&mut self, operands: &TileOperands<'_>, totals: &mut [f32], stride: usize) {
        let groups = if operands.half { TILE_GROUPS / 2 } else { TILE_GROUPS };
        let words = (self.rows - 1) * operands.stride + groups * BLOCK_WORDS;
        assert!(operands.left.len() >= words, "rows of the left side");
        let rows = self.rows.next_multiple_of(8);
        assert!(totals.len() >= (rows - 1) * stride + LANES, "totals of the rows");
        let add = match (rows, operands.half) {
            (8, true) => add_4_groups_to_8_rows,
            (8, false) => add_8_groups_to_8_rows,
            (_, true) => add_4_groups_to_16_rows,
            (_, false) => add_8_groups_to_16_rows,
        };
        let totals = Totals { first: totals.as_mut_ptr(), stride: stride * size_of::<f32>() };
        // SAFETY: tiles are set up for `rows` rows, which the left side has, and there are eight or
        // sixteen totals, as asserted; `Avx512`, which gave this out, is the proof of AVX-512.
        unsafe { add(operands, &mut self.sums, &totals) }
    }
}

/// Where the totals are.
struct Totals {
    first: *mut f32,
    /// Bytes from a row to the next.
    stride: usize,
}

/// Multiplies the blocks of group `$group`, one plane of the left side after the other, and asks for
/// four lines of memory, which would wait for each other if they were asked for at once.
#[rustfmt::skip] // one instruction a line
macro_rules! multiply {
    ($high:literal, $low:literal, $group:literal) => {
        concat!(
            "tilezero tmm", $high, "\n",
            "tilezero tmm", $low, "\n",
            "tileloadd tmm7, [{right} + {line}*1 + ", $group, "*512]\n",
            "tileloadd tmm6, [{left} + {stride}*1 + ", $group, "*64]\n",
            "tdpbssd tmm", $high, ", tmm6, tmm7\n",
            "tileloadd tmm6, [{left} + {stride}*1 + ", $group, "*64 + 32]\n",
            "tdpbssd tmm", $low, ", tmm6, tmm7\n",
            "prefetcht1 [{soon} + ", $group, "*256]\n",
            "prefetcht1 [{soon} + ", $group, "*256 + 64]\n",
            "prefetcht1 [{soon} + ", $group, "*256 + 128]\n",
            "prefetcht1 [{soon} + ", $group, "*256 + 192]\n",
        )
    };
}

/// Stores the sums of a group to slot `$slot`.
#[rustfmt::skip] // one instruction a line
macro_rules! store {
    ($high:literal, $low:literal, $slot:literal) => {
        concat!(
            "tilestored [{sums} + {line}*2 + ", $slot, "*2048], tmm", $high, "\n",
            "tilestored [{sums} + {line}*2 + ", $slot, "*2048 + 64], tmm", $low, "\n",
        )
    };
}

/// Adds the sums of group `$group`, which are in slot `$slot`, to the totals of the rows:
/// `total = fma(f32(256 * high + low), x_scale * w_scale, total)`.
macro_rules! scale {
    ($slot:literal, $group:literal, $($row:literal $total:literal $sum:literal $factor:literal)*) => {
        concat!(
            "vmovups zmm0, zmmword ptr [{w_scales} + ", $group, "*64]\n",
            $(
                "vpslld zmm", $sum, ", zmmword ptr [{sums} + ", $slot, "*2048 + ", $row, "*128], 8\n",
                "vpaddd zmm", $sum, ", zmm", $sum,
                ", zmmword ptr [{sums} + ", $slot, "*2048 + ", $row, "*128 + 64]\n",
                "vcvtdq2ps zmm", $sum, ", zmm", $sum, "\n",
                "vmulps zmm", $factor, ", zmm0, dword ptr [{x_scales} + ", $row, "*32 + ", $group,
                "*4]{{1to16}}\n",
                "vfmadd231ps zmm", $total, ", zmm", $sum, ", zmm", $factor, "\n",
            )*
        )
    };
}

/// The totals to or from registers, row after row.
macro_rules! totals {
    (load $($row:literal $total:literal $sum:literal $factor:literal)*) => {
        concat!(
            "mov {at}, {totals}\n",
            $("vmovups zmm", $total, ", zmmword ptr [{at}]\n", "add {at}, {total_stride}\n",)*
        )
    };
    (store $($row:literal $total:literal $sum:literal $factor:literal)*) => {
        concat!(
            "mov {at}, {totals}\n",
            $("vmovups zmmword ptr [{at}], zmm", $total, "\n", "add {at}, {total_stride}\n",)*
        )
    };
}

/// What is done for four or eight groups. While a group is multiplied, the one before last is
/// stored and the one before that is scaled: tiles and vectors work side by side.
#[rustfmt::skip] // one group a line
macro_rules! groups {
    (4, $($rows:tt)*) => {
        concat!(
            multiply!(0, 1, 0),
            multiply!(2, 3, 1),
            multiply!(4, 5, 2), store!(0, 1, 0),
            multiply!(0, 1, 3), scale!(0, 0, $($rows)*), store!(2, 3, 1),
            store!(4, 5, 2), scale!(1, 1, $($rows)*),
            store!(0, 1, 0), scale!(2, 2, $($rows)*),
            scale!(0, 3, $($rows)*),
        )
    };
    (8, $($rows:tt)*) => {
        concat!(
            multiply!(0, 1, 0),
            multiply!(2, 3, 1),
            multiply!(4, 5, 2), store!(0, 1, 0),
            multiply!(0, 1, 3), scale!(0, 0, $($rows)*), store!(2, 3, 1),
            multiply!(2, 3, 4), scale!(1, 1, $($rows)*), store!(4, 5, 2),
            multiply!(4, 5, 5), scale!(2, 2, $($rows)*), store!(0, 1, 0),
            multiply!(0, 1, 6), scale!(0, 3, $($rows)*), store!(2, 3, 1),
            multiply!(2, 3, 7), scale!(1, 4, $($rows)*), store!(4, 5, 2),
            store!(0, 1, 0), scale!(2, 5, $($rows)*),
            store!(2, 3, 1), scale!(0, 6, $($rows)*),
            scale!(1, 7, $($rows)*),
        )
    };
}

macro_rules! add_groups {
    ($name:ident, $groups:tt: $($rows:tt)*) => {
        /// # Safety
        /// Tiles are set up for at most as many rows, the left side has them and the groups, and
        /// there are totals for as many rows.
        #[target_feature(enable = "avx512f")]
        unsafe fn $name(operands: &TileOperands<'_>, sums: &mut Sums, totals: &Totals) {
            // SAFETY: loads what the caller vouches for and whole arrays, stores to whole arrays;
            // no other code knows of tiles.
            unsafe {
                asm!(
                    totals!(load $($rows)*),
                    groups!($groups, $($rows)*),
                    totals!(store $($rows)*),
                    left = in(reg) operands.left.as_ptr(),
                    stride = in(reg) operands.stride * size_of::<i32>(),
                    right = in(reg) operands.right,
                    line = in(reg) 64usize,
                    sums = in(reg) sums,
                    w_scales = in(reg) operands.w_scales,
                    x_scales = in(reg) operands.x_scales,
                    soon = in(reg) operands.soon,
                    totals = in(reg) totals.first,
                    total_stride = in(reg) totals.stride,
                    at = out(reg) _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                    out("zmm8") _, out("zmm16") _, out("zmm17") _, out("zmm18") _,
                    out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _,
                    out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _,
                    out("zmm27") _, out("zmm28") _, out("zmm29") _, out("zmm30") _,
                    out("zmm31") _,
                    options(nostack),
                );
            }
        }
    };
}

// Row, register of its total, and registers that hold its sum and its factor meanwhile.
macro_rules! for_rows {
    (8: $name:ident, $groups:tt) => {
        add_groups! {
            $name, $groups:
            0 16 1 2  1 17 3 4  2 18 5 6  3 19 7 8  4 20 1 2  5 21 3 4  6 22 5 6  7 23 7 8
        }
    };
    (16: $name:ident, $groups:tt) => {
        add_groups! {
            $name, $groups:
            0 16 1 2  1 17 3 4  2 18 5 6  3 19 7 8  4 20 1 2  5 21 3 4  6 22 5 6  7 23 7 8
            8 24 1 2  9 25 3 4  10 26 5 6  11 27 7 8  12 28 1 2  13 29 3 4  14 30 5 6  15 31 7 8
        }
    };
}

for_rows!(8: add_4_groups_to_8_rows, 4);
for_rows!(8: add_8_groups_to_8_rows, 8);
for_rows!(16: add_4_groups_to_16_rows, 4);
for_rows!(16: add_8_groups_to_16_rows, 8);

/// AMX-TILE and AMX-INT8, and a system that saves their state.
fn has_instructions() -> bool {
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction exists.
    let saved = unsafe { _xgetbv(0) };
    __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && saved & TILE_STATE == TILE_STATE
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
