//! Which thread holds which elements of a tile, and in which of its registers.
//!
//! A layout is linear over bits: each bit of a register's number, of the lane and of the warp stands
//! for a step in the tile's row-major order, and a place holds the element whose index is the
//! sum of its bits' steps. Steps are distinct powers of two, or 0 where a bit changes nothing and
//! places hold copies. Tiles whose extents are powers of two have no other layouts that we need:
//! fragments of matrix instructions, blocks and copies are all of this form.

/// Lanes of a warp, as bits.
pub(crate) const LANE_BITS: usize = 5;

/// A layout of a tile of `rows` by `cols`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Steps of the bits of a register's number.
    pub(crate) regs: Vec<usize>,
    /// Steps of the bits of the lane.
    pub(crate) lanes: [usize; LANE_BITS],
    /// Steps of the bits of the warp.
    pub(crate) warps: Vec<usize>,
}

impl Layout {
    /// Every thread holds every element.
    pub(crate) fn copies([rows, cols]: [usize; 2], warp_bits: usize) -> Self {
        let regs = bits(rows * cols);
        Self { rows, cols, regs, lanes: [0; LANE_BITS], warps: vec![0; warp_bits] }
    }

    /// Runs of `run` neighbours in a thread, runs side by side over the lanes and then the warps,
    /// what is left in more registers. Coalesced accesses of rows have this layout.
    pub(crate) fn blocked([rows, cols]: [usize; 2], run: usize, warp_bits: usize) -> Self {
        let mut steps = bits(rows * cols).into_iter();
        let run = run.min(cols).max(1);
        let mut regs: Vec<usize> = steps.by_ref().take(run.ilog2() as usize).collect();
        let mut lanes = [0; LANE_BITS];
        lanes.iter_mut().for_each(|lane| *lane = steps.next().unwrap_or(0));
        let warps = (0..warp_bits).map(|_| steps.next().unwrap_or(0)).collect();
        regs.extend(steps);
        Self { rows, cols, regs, lanes, warps }
    }

    /// Registers that a thread needs.
    pub(crate) fn num_regs(&self) -> usize {
        1 << self.regs.len()
    }

    /// The part of a register's number in an element's index.
    pub(crate) fn reg_part(&self, reg: usize) -> usize {
        sum(&self.regs, reg)
    }

    /// Row and column parts of a register's number.
    pub(crate) fn reg_place(&self, reg: usize) -> [usize; 2] {
        let part = self.reg_part(reg);
        [part / self.cols, part % self.cols]
    }

    /// Bits of the lane, and of the warp, that change nothing: where they are set lie copies.
    pub(crate) fn copy_bits(&self) -> (usize, usize) {
        let zero = |steps: &[usize]| {
            let zeros = steps.iter().enumerate().filter(|(_, step)| **step == 0);
            zeros.map(|(bit, _)| 1 << bit).sum()
        };
        (zero(&self.lanes), zero(&self.warps))
    }

    /// Neighbours along the row that consecutive registers hold, a power of two.
    pub(crate) fn run(&self) -> usize {
        let neighbours = self.regs.iter().zip(bits(self.cols));
        1 << neighbours.take_while(|(step, bit)| *step == bit).count()
    }

    /// The same elements as a tile of another shape.
    pub(crate) fn reshaped(&self, [rows, cols]: [usize; 2]) -> Self {
        Self { rows, cols, ..self.clone() }
    }

    /// The layout of the transposed tile.
    pub(crate) fn transposed(&self) -> Self {
        let (rows, cols) = (self.rows, self.cols);
        self.map([cols, rows], |step| step / cols + step % cols * rows)
    }

    /// The layout of a tile with an extent of 1 along `axis` that this one repeats: the bits of
    /// that axis change nothing.
    pub(crate) fn without(&self, axis: Axis) -> Self {
        let cols = self.cols;
        match axis {
            Axis::Rows => self.map([1, cols], |step| step % cols),
            Axis::Cols => self.map([self.rows, 1], |step| step / cols),
        }
    }

    /// This layout less the bits of registers that change nothing.
    pub(crate) fn compact(&self) -> Self {
        let regs = self.regs.iter().copied().filter(|step| *step != 0).collect();
        Self { regs, ..self.clone() }
    }

    /// Which steps belong to an axis.
    pub(crate) fn is_along(&self, axis: Axis, step: usize) -> bool {
        match axis {
            Axis::Rows => step >= self.cols,
            Axis::Cols => step != 0 && step < self.cols,
        }
    }

    fn map(&self, [rows, cols]: [usize; 2], map: impl Fn(usize) -> usize) -> Self {
        let all = |steps: &[usize]| steps.iter().map(|step| map(*step)).collect();
        let lanes = self.lanes.map(&map);
        Self { rows, cols, regs: all(&self.regs), lanes, warps: all(&self.warps) }
    }
}

/// An axis of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    Rows,
    Cols,
}

/// `1, 2, 4, ..` below `extent`, a power of two.
pub(crate) fn bits(extent: usize) -> Vec<usize> {
    (0..extent.ilog2()).map(|bit| 1 << bit).collect()
}

/// The sum of the steps of the bits that are set in a number.
pub(crate) fn sum(steps: &[usize], number: usize) -> usize {
    let set = steps.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
    set.map(|(_, step)| step).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The element that a place holds.
    fn element(layout: &Layout, reg: usize, lane: usize, warp: usize) -> usize {
        layout.reg_part(reg) + sum(&layout.lanes, lane) + sum(&layout.warps, warp)
    }

    #[test]
    fn blocks_cover_a_tile_once() {
        let layout = Layout::blocked([16, 64], 4, 2);
        let mut seen = vec![0; 16 * 64];
        for warp in 0..4 {
            for lane in 0..32 {
                for reg in 0..layout.num_regs() {
                    seen[element(&layout, reg, lane, warp)] += 1;
                }
            }
        }
        assert!(seen.iter().all(|count| *count == 1));
        assert_eq!(layout.run(), 4);
        assert_eq!(element(&layout, 0, 1, 0), 4);
    }

    #[test]
    fn small_tiles_have_copies() {
        let layout = Layout::blocked([1, 8], 4, 2);
        assert_eq!(layout.copy_bits(), (0b11110, 0b11));
        assert_eq!(element(&layout, 3, 0b11111, 3), 7);
    }

    #[test]
    fn transposing_twice_changes_nothing() {
        let layout = Layout::blocked([8, 32], 2, 1);
        assert_eq!(layout.transposed().transposed(), layout);
        assert_eq!(layout.transposed().run(), 1);
        assert_eq!(element(&layout.transposed(), 1, 0, 0), 8);
    }

    #[test]
    fn an_axis_left_out_leaves_copies() {
        let layout = Layout::blocked([8, 32], 2, 1).without(Axis::Cols);
        // The bit of a register along the row, and four of the lane, change nothing any more.
        assert_eq!((layout.rows, layout.cols, layout.num_regs()), (8, 1, 4));
        assert_eq!(layout.compact().num_regs(), 2);
        assert_eq!(layout.copy_bits().0, 0b01111);
    }
}
