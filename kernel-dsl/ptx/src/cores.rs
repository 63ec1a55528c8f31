//! How a side of a dot lies in shared memory for instructions of four warps, which take it from
//! there by a descriptor, and which thread then makes what of it.
//!
//! The instruction reads *cores*, eight rows of sixteen bytes that lie together:
//!
//! ```text
//! byte in a core   0 1   2 3   ...  14 15      one row: eight slots of `k` of one column,
//!                 16 17 18 19  ...  30 31      or eight columns of one slot
//!                  ...              126 127
//! cores            side by side along the columns, 128 bytes from one to the next;
//!                  `leading` bytes to the other eight slots of an instruction;
//!                  `step` bytes to the next instruction's
//! ```
//!
//! `leading` and `step` are a little more than what they step over, so that threads that write along
//! `k` meet different banks.

use crate::dot::SidePlan;
use crate::layout::{LANE_BITS, Layout, bits};

/// Bytes of a core.
pub(crate) const CORE: usize = 128;
/// Columns, or slots of `k`, of a core.
const EIGHT: usize = 8;
/// Slots of `k` of an instruction.
const DEPTH: usize = 16;

/// The order in which instructions of four warps take a side: bits of an index along each axis, the
/// one that tells neighbours apart first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CoreOrder {
    /// Along `k`: eight slots, the eight after them, one instruction from the next.
    pub(crate) k: Vec<usize>,
    /// Along the other axis: eight columns, one eight of an instruction from the next, one group of
    /// four warps from the next.
    pub(crate) other: Vec<usize>,
    /// The bits of the warp that tell those groups apart.
    pub(crate) groups: Vec<usize>,
}

impl CoreOrder {
    /// Bytes from the first eight slots of an instruction to the others.
    pub(crate) fn leading(&self) -> usize {
        (1 << self.other.len()) / EIGHT * CORE + 32
    }

    /// Bytes from one instruction to the next along `k`.
    pub(crate) fn step(&self) -> usize {
        2 * self.leading() + 16
    }

    /// Bytes of a plane.
    pub(crate) fn bytes(&self) -> usize {
        (1 << self.k.len()) / DEPTH * self.step()
    }

    /// Eights of columns that one instruction takes.
    pub(crate) fn eights(&self) -> usize {
        1 << (self.other.len() - 3 - self.groups.len())
    }

    /// The number of the instruction along `k` whose first index is this.
    pub(crate) fn instruction(&self, k: usize) -> usize {
        let later = self.k[4..].iter().enumerate().filter(|(_, bit)| k & **bit != 0);
        later.map(|(i, _)| 1 << i).sum()
    }
}

/// Where an element lies, in the parts that its address is the sum of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CorePlace {
    /// Within the cores of eight slots.
    pub(crate) byte: usize,
    /// Whether it is in the other eight slots of the instruction.
    pub(crate) second: usize,
    /// Which instruction it is in.
    pub(crate) instruction: usize,
}

impl SidePlan {
    /// Where the element at a step of the tile lies, with rows of a core along `k` or across; a
    /// step is a single bit of the tile's order, or 0.
    pub(crate) fn core_place(&self, order: &CoreOrder, step: usize, along_k: bool) -> CorePlace {
        let mut place = CorePlace::default();
        if step == 0 {
            return place;
        }
        let k_is_last = self.k_step == 1;
        let is_k = (step < self.layout.cols) == k_is_last;
        let (bits, unit) =
            if is_k { (&order.k, self.k_step) } else { (&order.other, self.other_step) };
        let at = bits.iter().position(|bit| bit * unit == step).expect("a bit of an axis");
        match (is_k, at) {
            (_, 0..3) if is_k == along_k => place.byte = 2 << at,
            (_, 0..3) => place.byte = 16 << at,
            (true, 3) => place.second = 1,
            (true, at) => place.instruction = 1 << (at - 4),
            (false, at) => place.byte = CORE << (at - 3),
        }
        place
    }

    /// The layout in which threads load what they then write as cores: neighbours along rows, which
    /// memory has side by side, in lanes of one warp, and columns in one thread, for rows of cores
    /// across. `None` if memory or the tile's size do not suit that.
    pub(crate) fn feed(&self, warp_bits: usize) -> Option<Layout> {
        let order = self.cores.as_ref()?;
        let Layout { rows, cols, .. } = self.layout;
        let along = bits(cols);
        let own = (rows * cols).ilog2() as usize;
        let own = own.checked_sub(LANE_BITS + warp_bits)?;
        let run = along.len().checked_sub(LANE_BITS)?.min(2).min(own);
        if self.k_step != 1 || rows < EIGHT {
            return None;
        }
        let down: Vec<usize> = order.other.iter().map(|bit| bit * cols).collect();
        let together = 3.min(own - run);
        let mut regs = [&along[..run], &down[..together]].concat();
        let mut lanes: [usize; LANE_BITS] = along[run..run + LANE_BITS].try_into().ok()?;
        // The lanes of one pass over shared memory write the rows of one core first.
        lanes.sort_by_key(|bit| !order.k[..3].contains(bit));
        let mut rest = [&down[together..], &along[run + LANE_BITS..]].concat();
        regs.extend(rest.split_off(warp_bits.min(rest.len())));
        rest.resize(warp_bits, 0);
        regs.sort_unstable();
        Some(Layout { rows, cols, regs, lanes, warps: rest })
    }
}
