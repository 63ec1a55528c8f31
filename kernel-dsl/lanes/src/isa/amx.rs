//! AMX: a unit beside the vector registers that multiplies tiles of bytes, eight times as many a
//! cycle as AVX-512 does. Rust has no stable intrinsics for it, so its instructions are written out.
#![expect(unsafe_code, reason = "instructions; every block says what makes it sound")]

use super::{ByteTiles, LANES, TILE_BLOCK, TILE_ROWS, TILE_RUNS, TileOperands, TileSums};
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The tiles of this thread, set up for a number of rows; handed back when dropped.
#[derive(Debug)]
pub struct Amx {
    rows: usize,
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

const _: () = assert!(size_of::<Config>() == 64);

/// Bytes of a row of one plane in a block, and rows of the right side: each has four columns of `k`
/// for sixteen outputs.
const PLANE_BYTES: u16 = 32;
const RIGHT_ROWS: u8 = 8;
const RIGHT_LINES: usize = RIGHT_ROWS as usize;
/// Words of a block of the left side.
const BLOCK_WORDS: usize = TILE_BLOCK / 2;

const _: () = assert!(TILE_BLOCK == PLANE_BYTES as usize && TILE_BLOCK == 4 * RIGHT_LINES);
const _: () = assert!(LANES == 16 && TILE_ROWS == 16);

impl Amx {
    /// Whether this CPU has tiles of bytes and the system lets this process use them.
    pub(super) fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| has_instructions() && may_use())
    }

    /// Sets up the tiles of this thread, if there are any, for `rows` rows of the left side.
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
        // 0 to 3 are sums, 4 and 5 the two planes of the left side, 6 and 7 the right side.
        for tile in 0..8 {
            config.row_bytes[tile] = if tile == 4 || tile == 5 { PLANE_BYTES } else { 64 };
            config.rows[tile] = if tile < 6 { left } else { RIGHT_ROWS };
        }
        // SAFETY: the instruction exists (`is_available`) and reads the 64 bytes of `config`. The
        // state it sets is used by nothing but this type: no other code knows of tiles.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly));
        }
        Some(Self { rows, thread: PhantomData })
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
    fn multiply(&mut self, operands: TileOperands<'_>, blocks: usize, sums: &mut [TileSums]) {
        let TileOperands { left, stride, right } = operands;
        let (run_words, run_lines) = (blocks * BLOCK_WORDS, blocks * RIGHT_LINES);
        let runs = right.len() / run_lines;
        assert!(runs <= TILE_RUNS && runs * run_lines == right.len(), "whole runs");
        assert_eq!(sums.len(), self.rows, "sums of each row");
        let words = (self.rows - 1) * stride + runs * run_words;
        assert!(left.len() >= words, "rows of the left side");
        let sums = sums.as_mut_ptr().cast::<[[i32; LANES]; 2]>();
        // Two turns with tiles of their own: the sums of a run are stored while those of the next
        // are made.
        for run in 0..=runs {
            let turn = if run.is_multiple_of(2) { Turn::Even } else { Turn::Odd };
            if run < runs {
                let operands = Run {
                    left: left[run * run_words..].as_ptr(),
                    stride: stride * size_of::<i32>(),
                    right: right[run * run_lines..].as_ptr(),
                    blocks,
                };
                // SAFETY: tiles are set up (`begin`) for `rows` rows, and both sides have as many
                // words and lines as is asserted.
                unsafe { operands.add(turn) }
            }
            if run > 0 {
                // SAFETY: as above; `sums` has an element a row, and each has this run.
                unsafe { turn.other().store(sums.wrapping_add(run - 1)) }
            }
        }
    }
}

/// Which tiles a run uses: 0, 1 and 6, or 2, 3 and 7.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Even,
    Odd,
}

/// What is multiplied for one run.
struct Run {
    left: *const i32,
    /// Bytes from a row of the left side to the next.
    stride: usize,
    right: *const [u8; 4 * LANES],
    blocks: usize,
}

macro_rules! clear_sums {
    ($high:literal, $low:literal) => {
        // SAFETY: tiles are set up; they are in no compiler's care.
        unsafe {
            asm!(
                concat!("tilezero tmm", $high),
                concat!("tilezero tmm", $low),
                options(nostack, nomem, preserves_flags),
            );
        }
    };
}

/// Adds the products of one block: the planes of the left side go to tiles 4 and 5.
macro_rules! add_block {
    ($run:ident, $block:ident, $high:literal, $low:literal, $right:literal) => {
        // SAFETY: tiles are set up; a row of a plane is 32 bytes, the right side eight lines, and
        // the run has the block.
        unsafe {
            asm!(
                concat!("tileloadd tmm", $right, ", [{right} + {line}*1]"),
                "tileloadd tmm4, [{left} + {stride}*1]",
                "tileloadd tmm5, [{left} + {stride}*1 + 32]",
                concat!("tdpbssd tmm", $high, ", tmm4, tmm", $right),
                concat!("tdpbssd tmm", $low, ", tmm5, tmm", $right),
                right = in(reg) $run.right.wrapping_add($block * RIGHT_LINES),
                left = in(reg) $run.left.wrapping_add($block * BLOCK_WORDS),
                line = in(reg) 4 * LANES,
                stride = in(reg) $run.stride,
                options(nostack, readonly, preserves_flags),
            );
        }
    };
}

macro_rules! store_sums {
    ($to:ident, $high:literal, $low:literal) => {
        // SAFETY: the caller's: as many rows as the tiles have.
        unsafe {
            asm!(
                concat!("tilestored [{to} + {stride}*1], tmm", $high),
                concat!("tilestored [{to} + {stride}*1 + 64], tmm", $low),
                to = in(reg) $to,
                stride = in(reg) size_of::<TileSums>(),
                options(nostack, preserves_flags),
            );
        }
    };
}

impl Run {
    /// Sums the products of all blocks in the tiles of a turn.
    ///
    /// # Safety
    /// Tiles are set up, and both sides have their blocks.
    #[inline(always)]
    unsafe fn add(&self, turn: Turn) {
        match turn {
            Turn::Even => clear_sums!(0, 1),
            Turn::Odd => clear_sums!(2, 3),
        }
        for block in 0..self.blocks {
            match turn {
                Turn::Even => add_block!(self, block, 0, 1, 6),
                Turn::Odd => add_block!(self, block, 2, 3, 7),
            }
        }
    }
}

impl Turn {
    const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }

    /// Stores the sums of the turn's run, those of a row to the [`TileSums`] of the row.
    ///
    /// # Safety
    /// Tiles are set up, and `to` leads to a run of the first of as many sums as they have rows.
    #[inline(always)]
    unsafe fn store(self, to: *mut [[i32; LANES]; 2]) {
        match self {
            Self::Even => store_sums!(to, 0, 1),
            Self::Odd => store_sums!(to, 2, 3),
        }
    }
}

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
