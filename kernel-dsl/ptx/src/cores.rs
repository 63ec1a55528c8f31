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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Activations of 64 rows as codes of four bits want them.
    fn side() -> SidePlan {
        let order = CoreOrder {
            k: vec![4, 8, 16, 1, 2, 32, 64],
            other: vec![1, 2, 4, 8, 16, 32],
            groups: vec![2],
        };
        let layout = Layout::blocked([64, 128], 4, 3);
        let chunk = layout.clone();
        SidePlan { layout, chunk, k_step: 1, other_step: 128, pair: 4, cores: Some(order) }
    }

    fn address(side: &SidePlan, [row, k]: [usize; 2], along_k: bool) -> usize {
        let order = side.cores.as_ref().unwrap();
        let index = row * 128 + k;
        let steps = bits(64 * 128).into_iter().filter(|bit| index & bit != 0);
        let places = steps.map(|step| side.core_place(order, step, along_k));
        places.map(|p| p.byte + p.second * order.leading() + p.instruction * order.step()).sum()
    }

    #[test]
    fn every_element_has_a_place_of_its_own() {
        let side = side();
        let bytes = side.cores.as_ref().unwrap().bytes();
        for along_k in [true, false] {
            let all = (0..64).flat_map(|row| (0..128).map(move |k| [row, k]));
            let places: HashSet<usize> = all.map(|at| address(&side, at, along_k)).collect();
            assert_eq!(places.len(), 64 * 128);
            assert!(places.iter().all(|at| at % 2 == 0 && *at < bytes));
        }
    }

    #[test]
    fn cores_are_as_the_instruction_wants_them() {
        let side = side();
        let order = side.cores.as_ref().unwrap();
        // Slots of `k` follow each other in a row, columns in the next rows; or the other way round.
        let at = |row, k, along_k| address(&side, [row, k], along_k);
        assert_eq!([at(0, 4, true), at(0, 8, true), at(0, 16, true)], [2, 4, 8]);
        assert_eq!([at(1, 0, true), at(7, 28, true)], [16, 126]);
        assert_eq!([at(0, 4, false), at(1, 0, false), at(7, 28, false)], [16, 2, 126]);
        // Eight columns further, the other eight slots, the next instruction.
        assert_eq!([at(8, 0, true), at(16, 0, false)], [CORE, 2 * CORE]);
        assert_eq!([at(0, 1, true), at(0, 2, true)], [order.leading(), order.step()]);
        assert_eq!([order.instruction(0), order.instruction(2), order.instruction(32)], [0, 1, 2]);
        assert_eq!(order.eights(), 4);
    }

    #[test]
    fn what_is_loaded_for_cores_is_loaded_once_and_wide() {
        for warp_bits in [2, 3] {
            let layout = side().feed(warp_bits).unwrap();
            let steps = layout.regs.iter().chain(&layout.lanes).chain(&layout.warps);
            assert_eq!(steps.sum::<usize>(), 64 * 128 - 1);
            assert_eq!(layout.run(), 4);
            // Eight columns a thread, and a row of a core to each lane of a pass.
            assert!([128, 256, 512].iter().all(|row| layout.regs.contains(row)));
            assert_eq!(layout.lanes, [4, 8, 16, 32, 64]);
        }
    }
}
