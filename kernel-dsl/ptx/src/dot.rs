//! How a dot becomes `mma.sync.m16n8k16` of bfloat16: which side is the instruction's left one, and
//! where its fragments lie in the tiles.
//!
//! In which order rows, columns and `k` pass through the instructions is free, as long as both sides
//! agree: so a thread takes neighbours in memory and reads them in one access.

use crate::compile::Means;
use crate::cores::CoreOrder;
use crate::infer::element_bits;
use crate::layout::{Layout, bits};
use tessera_tile_ir::format::Format;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Kernel, Op, Value};

/// Bytes of an f32 in planes of bfloat16.
const PLANES_BYTES: usize = 6;
/// The least inner extent of a dot: that of one instruction.
const LEAST_K: usize = 16;
/// The least inner extent for instructions of four warps: threads meet before and after them.
const LEAST_K_OF_FOUR: usize = 64;
/// Columns of an instruction of four warps: below the least it is no faster than of so many, and
/// `mma.sync` waits for nobody.
const COLS_OF_FOUR: std::ops::RangeInclusive<usize> = 32..=256;

/// The decisions for one dot.
#[derive(Debug, Clone)]
pub(crate) struct DotPlan {
    /// Whether the right operand of the op is the instruction's left side.
    pub(crate) swapped: bool,
    /// Its left operand, `[m, k]`.
    pub(crate) left: SidePlan,
    /// Its right operand, `[k, n]`, or `[n, k]` of a scaled dot.
    pub(crate) right: SidePlan,
    /// Layout of the result.
    pub(crate) result: Layout,
    /// Layout of the sums of each warp, if warps share `k` and their sums are to be added.
    pub(crate) partial: Option<Layout>,
    /// Columns of `k` that share scales on both sides.
    pub(crate) group: usize,
    /// Where the instruction's rows, columns and `k` lie.
    pub(crate) order: Order,
}

/// One operand of a dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SidePlan {
    /// Which thread takes which elements.
    pub(crate) layout: Layout,
    /// The same for the first chunk of `k` alone.
    pub(crate) chunk: Layout,
    /// From an index along `k` to the next, in the tile's row-major order.
    pub(crate) k_step: usize,
    /// From an index along the other axis to the next.
    pub(crate) other_step: usize,
    /// From the first element of a pair to the second.
    pub(crate) pair: usize,
    /// If four warps together read it from shared memory, in which order it lies there.
    pub(crate) cores: Option<CoreOrder>,
}

impl SidePlan {
    fn new(mut layout: Layout, k_is_last: bool, slots: &Slots) -> Self {
        // Neighbours along the row first.
        layout.regs.sort_unstable();
        let (k_step, other_step) = if k_is_last { (1, layout.cols) } else { (layout.cols, 1) };
        let mut chunk = layout.clone();
        chunk.regs.retain(|step| !slots.outer.iter().any(|outer| outer * k_step == *step));
        let pair = slots.inner[0] * k_step;
        Self { layout, chunk, k_step, other_step, pair, cores: None }
    }

    /// The same for the transposed tile.
    pub(crate) fn transposed(&self) -> Self {
        let (k_step, other_step) = match self.k_step {
            1 => (self.layout.rows, 1),
            _ => (1, self.layout.rows),
        };
        let [mut layout, mut chunk] = [&self.layout, &self.chunk].map(Layout::transposed);
        // Neighbours along the row first again.
        layout.regs.sort_unstable();
        chunk.regs.sort_unstable();
        let (pair, cores) = (self.pair / self.k_step * k_step, self.cores.clone());
        Self { layout, chunk, k_step, other_step, pair, cores }
    }
}

/// Where the rows, columns and `k` of instructions lie along the axes of the dot, besides what the
/// thread adds.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// From the first row of a thread to its second, 0 if they are one.
    pub(crate) second_row: usize,
    /// From the first column of a thread to its second, 0 if they are one.
    pub(crate) second_col: usize,
    /// First row of each instruction.
    pub(crate) rows: Vec<usize>,
    /// First column of each instruction.
    pub(crate) cols: Vec<usize>,
    /// From the first pair of a thread to its second.
    pub(crate) second_pair: usize,
    /// First `k` of each instruction of a chunk.
    pub(crate) inner: Vec<usize>,
    /// First `k` of each chunk.
    pub(crate) chunks: Vec<usize>,
}

impl DotPlan {
    /// The plan for a dot whose extents are powers of two, `k` at least 16; `None` for other ops.
    /// `stays` says which loads stay in shared memory.
    pub(crate) fn new(
        kernel: &Kernel,
        op: &Op,
        means: Means,
        stays: &dyn Fn(Value) -> bool,
    ) -> Option<Self> {
        let scaled = match op.kind {
            OpKind::Dot => false,
            OpKind::DotScaled => true,
            _ => return None,
        };
        let [m, n] = kernel.ty(op.operands[2]).rows_cols();
        let k = kernel.ty(op.operands[0]).rows_cols()[1];
        if ![m, n, k].iter().all(|extent| extent.is_power_of_two()) || k < LEAST_K {
            return None;
        }
        // Weights go left, where sixteen rows are taken at once, and so does the longer side.
        let swapped = scaled || n > m;
        let (rows, cols) = if swapped { (n, m) } else { (m, n) };
        let group = if scaled { group(kernel, op, k) } else { k };
        let memory = [0, 1].map(|i| neighbours(kernel, op, (i, scaled || i == 0), stays));
        let [row_memory, col_memory] = if swapped { [memory[1], memory[0]] } else { memory };
        let k_memory = if scaled { memory[1] } else { memory[0].or(memory[1]) };
        let mut k_slots = match k_memory {
            Some(Neighbours { along_k: true, count, pair }) => Slots::new(k, group, (count, pair)),
            _ => Slots::new(k, group, (2, 1)),
        };
        let run = |memory: Option<Neighbours>| match memory {
            Some(Neighbours { along_k: false, count, .. }) => count.min(4),
            _ => 1,
        };
        let row_bits = rotated(rows, run(row_memory));
        let col_bits = rotated(cols, run(col_memory));
        let whole = Shape::new((rows, &row_bits), (cols, &col_bits), means.warp_bits);
        let of_four = means.target.has_warpgroups() && k >= LEAST_K_OF_FOUR;
        let cores = if of_four { whole.cores(&k_slots) } else { None };
        let left = loaded(kernel, op.operands[usize::from(swapped)]).filter(|v| stays(*v));
        let shape = match left {
            None => None,
            Some(_) if scaled || cores.is_some() => None,
            Some(left) => {
                let bits = element_bits(kernel.ty(left).elem);
                whole.sharing_k((bits, k), means.most_sums, &mut k_slots)
            }
        };
        let oriented = |layout: Layout| if swapped { layout.transposed() } else { layout };
        let partial = shape.as_ref().map(|shape| oriented(shape.result()));
        let result = oriented(whole.result());
        let shape = shape.unwrap_or(whole);
        let left_side = shape.left(&k_slots, k);
        let right_side = shape.right(&k_slots, k);
        let (left, right) = match (swapped, scaled) {
            (false, false) => (left_side, right_side),
            (false, true) => (left_side, right_side.transposed()),
            (true, false) => (right_side.transposed(), left_side.transposed()),
            (true, true) => (right_side.transposed(), left_side),
        };
        let order = Order {
            second_row: row_bits.get(3).copied().unwrap_or(0),
            second_col: col_bits.first().copied().unwrap_or(0),
            rows: sums(&shape.row_tiles),
            cols: sums(&shape.col_tiles),
            second_pair: k_slots.inner[1],
            inner: sums(&k_slots.inner[2..]),
            chunks: sums(&k_slots.outer),
        };
        let mut left = SidePlan::new(left, true, &k_slots);
        let mut right = SidePlan::new(right, scaled, &k_slots);
        if swapped { &mut left } else { &mut right }.cores = cores;
        Some(Self { swapped, left, right, result, partial, group, order })
    }
}

/// The load that an operand is, transposed or decoded.
fn loaded(kernel: &Kernel, mut value: Value) -> Option<Value> {
    loop {
        let def = kernel.ops.iter().find(|op| op.results.contains(&value))?;
        match def.kind {
            OpKind::Decode | OpKind::Transpose => value = def.operands[0],
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => return Some(value),
            _ => return None,
        }
    }
}

/// Columns that share a scale on both sides of a scaled dot.
fn group(kernel: &Kernel, op: &Op, k: usize) -> usize {
    let of = |value: Value| match kernel.ty(value).elem {
        Elem::Packed(format) => group_of(format, k),
        _ => k,
    };
    of(op.operands[0]).min(of(op.operands[1]))
}

/// Columns that share a scale of a format, of at most `k`.
fn group_of(format: &Format, k: usize) -> usize {
    format.scale_tile.map_or(k, |tile| tile.cols.min(k))
}

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    /// Whether neighbours are along `k`, or along the other axis.
    along_k: bool,
    /// How many of them a thread should take.
    count: usize,
    /// How far apart the two of a pair should lie.
    pair: usize,
}

fn neighbours(
    kernel: &Kernel,
    op: &Op,
    (operand, k_is_last): (usize, bool),
    stays: &dyn Fn(Value) -> bool,
) -> Option<Neighbours> {
    let mut value = op.operands[operand];
    let mut along_k = k_is_last;
    loop {
        let def = kernel.ops.iter().find(|op| op.results.contains(&value))?;
        match def.kind {
            OpKind::Decode => value = def.operands[0],
            OpKind::Transpose => {
                value = def.operands[0];
                along_k = !along_k;
            }
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => {
                let bits = element_bits(kernel.ty(value).elem);
                if let (8 | 16, true) = (bits, stays(value)) {
                    // As `ldmatrix` spreads them: two units of 16 bits along the row, or one.
                    let count = if along_k { 32 / bits } else { 16 / bits };
                    return Some(Neighbours { along_k, count, pair: 1 });
                }
                // Two codes of four bits that a shift moves to where a pair wants them.
                let pair = if bits == 4 { 4 } else { 1 };
                return Some(Neighbours { along_k, count: (128 / bits).max(2), pair });
            }
            _ => return None,
        }
    }
}

/// Bits of an extent in the order in which instructions take them: a thread's own neighbours, `run`
/// of them, come after the three bits that its lane tells apart.
fn rotated(extent: usize, run: usize) -> Vec<usize> {
    let mut all = bits(extent);
    let own = (run.ilog2() as usize).min(all.len().saturating_sub(3));
    let low: Vec<usize> = all.drain(..own).collect();
    let rest = all.split_off(all.len().min(3));
    all.into_iter().chain(low).chain(rest).collect()
}

/// Sums of every choice of steps.
fn sums(steps: &[usize]) -> Vec<usize> {
    let sum = |n: usize| steps.iter().enumerate().map(|(i, step)| (n >> i & 1) * step).sum();
    (0..1 << steps.len()).map(sum).collect()
}

/// Where the bits of `k` go.
#[derive(Debug)]
struct Slots {
    /// Kept apart by registers of a chunk: the two of a pair, the two pairs of an instruction, then
    /// one instruction from the next.
    inner: Vec<usize>,
    /// One chunk from the next.
    outer: Vec<usize>,
    /// Kept apart by the two lowest bits of the lane.
    lanes: [usize; 2],
}

impl Slots {
    /// A thread holds `run` neighbours within a group, the two of a pair `pair` apart.
    fn new(k: usize, group: usize, (run, pair): (usize, usize)) -> Self {
        let run = run.min(group / 4).max(2);
        let mut inner: Vec<usize> = bits(run);
        let mut rest = bits(k).split_off(inner.len());
        let mut outer = rest.split_off(2);
        while inner.len() < 2 {
            inner.push(outer.remove(0));
        }
        if let Some(at) = inner.iter().position(|step| *step == pair) {
            let pair = inner.remove(at);
            inner.insert(0, pair);
        }
        Self { inner, outer, lanes: [rest[0], rest[1]] }
    }
}

/// Rows and columns of the result, by bits in the order of the instruction.
#[derive(Debug, Clone)]
struct Shape {
    rows: usize,
    cols: usize,
    /// Bits of the row, and of the column, that lanes tell apart.
    row_lanes: [usize; 3],
    col_lanes: [usize; 3],
    second_row: usize,
    /// Bits that registers tell apart, one instruction from the next.
    row_tiles: Vec<usize>,
    col_tiles: Vec<usize>,
    /// For each bit of the warp what it tells apart.
    warps: Vec<Warp>,
}

/// A bit of the row, of the column or of `k`; the others are 0, or all of them.
#[derive(Debug, Clone, Copy, Default)]
struct Warp {
    row: usize,
    col: usize,
    k: usize,
}

impl Shape {
    /// Warps share rows first, so that no two read the same part of the left side, then columns.
    /// Warps that are too many do the same as others.
    fn new(rows: (usize, &[usize]), cols: (usize, &[usize]), warp_bits: usize) -> Self {
        let bit = |bits: &[usize], i: usize| bits.get(i).copied().unwrap_or(0);
        let lanes = |bits: &[usize]| [bit(bits, 0), bit(bits, 1), bit(bits, 2)];
        let mut row_tiles: Vec<usize> = rows.1.iter().skip(4).copied().collect();
        let mut col_tiles: Vec<usize> = cols.1.iter().skip(3).copied().collect();
        let mut warps = Vec::new();
        for _ in 0..warp_bits {
            warps.push(match (row_tiles.pop(), col_tiles.last()) {
                (Some(row), _) => Warp { row, ..Warp::default() },
                (None, Some(_)) => Warp { col: col_tiles.pop().unwrap_or(0), ..Warp::default() },
                (None, None) => Warp::default(),
            });
        }
        Self {
            rows: rows.0,
            cols: cols.0,
            row_lanes: lanes(rows.1),
            col_lanes: lanes(cols.1),
            second_row: bit(rows.1, 3),
            row_tiles,
            col_tiles,
            warps,
        }
    }

    /// The shape in which warps share `k` rather than rows and columns, if less passes through shared
    /// memory: the same elements are read by fewer warps, for the price of adding up their sums.
    fn sharing_k(
        &self,
        (left_bits, k): (usize, usize),
        most_sums: usize,
        slots: &mut Slots,
    ) -> Option<Self> {
        let (left, right) = (self.rows * k * left_bits / 8, self.cols * k * PLANES_BYTES);
        let sums = self.rows * self.cols * 4;
        let bytes = |shared: usize| {
            let kept = &self.warps[..self.warps.len() - shared];
            let ways = |of: fn(&Warp) -> usize| 1 << kept.iter().filter(|w| of(w) != 0).count();
            let (down, across): (usize, usize) = (ways(|w| w.row), ways(|w| w.col));
            let sums = if shared == 0 { 0 } else { sums << (shared + 1) };
            left * across + right * down + sums
        };
        let fits = |shared: &usize| sums << shared <= most_sums;
        let most = self.warps.len().min(slots.outer.len());
        let shared = (0..=most)
            .filter(fits)
            .min_by_key(|shared| bytes(*shared))
            .filter(|shared| *shared > 0)?;
        let mut shape = self.clone();
        for warp in shape.warps.iter_mut().rev().take(shared) {
            shape.row_tiles.extend(Some(warp.row).filter(|row| *row != 0));
            shape.col_tiles.extend(Some(warp.col).filter(|col| *col != 0));
            *warp = Warp { k: slots.outer.pop().unwrap_or(0), ..Warp::default() };
        }
        Some(shape)
    }

    /// The order of the right side for instructions of four warps, whose rows must be warps'; `None`
    /// if the shape does not suit them.
    fn cores(&self, slots: &Slots) -> Option<CoreOrder> {
        let four = self.warps.get(..2)?;
        let cols = 8 << self.col_tiles.len();
        let along_rows = four.iter().all(|warp| warp.row != 0);
        if !along_rows || self.col_lanes[2] == 0 || !COLS_OF_FOUR.contains(&cols) {
            return None;
        }
        let [second, pairs] = [slots.inner[0], slots.inner[1]];
        let k = [second, slots.lanes[0], slots.lanes[1], pairs].into_iter();
        let k = k.chain(slots.inner[2..].iter().chain(&slots.outer).copied()).collect();
        let columns = (0..).zip(&self.warps).filter(|(_, warp)| warp.col != 0);
        let (groups, cols): (Vec<usize>, Vec<usize>) =
            columns.map(|(bit, warp)| (bit, warp.col)).unzip();
        let other = self.col_lanes.iter().chain(&self.col_tiles).chain(&cols).copied().collect();
        Some(CoreOrder { k, other, groups })
    }

    /// Layout of the left side, `[rows, k]`.
    fn left(&self, slots: &Slots, k: usize) -> Layout {
        let down = |bit: usize| bit * k;
        let [a, b, c] = self.row_lanes.map(down);
        let own = slots.inner.iter().chain(&slots.outer).copied();
        let rows = self.row_tiles.iter().chain([&self.second_row]).map(|bit| down(*bit));
        let warps = self.warps.iter().map(|warp| down(warp.row) + warp.k).collect();
        let lanes = [slots.lanes[0], slots.lanes[1], a, b, c];
        layout([self.rows, k], own.chain(rows), lanes, warps)
    }

    /// Layout of the right side, `[k, cols]`.
    fn right(&self, slots: &Slots, k: usize) -> Layout {
        let down = |bit: &usize| bit * self.cols;
        let [a, b, c] = self.col_lanes;
        let own = slots.inner.iter().chain(&slots.outer).map(down);
        let warps = self.warps.iter().map(|warp| warp.col + down(&warp.k)).collect();
        let lanes = [down(&slots.lanes[0]), down(&slots.lanes[1]), a, b, c];
        layout([k, self.cols], own.chain(self.col_tiles.iter().copied()), lanes, warps)
    }

    /// Layout of the result, `[rows, cols]`.
    fn result(&self) -> Layout {
        let down = |bit: usize| bit * self.cols;
        let [first, a, b] = self.col_lanes;
        let [c, d, e] = self.row_lanes.map(down);
        let rows = self.row_tiles.iter().chain([&self.second_row]).map(|bit| down(*bit));
        let own = [first].into_iter().chain(self.col_tiles.iter().copied()).chain(rows);
        let warps = self.warps.iter().map(|warp| down(warp.row) + warp.col).collect();
        layout([self.rows, self.cols], own, [a, b, c, d, e], warps)
    }
}

/// A layout of registers whose steps are in order.
fn layout(
    [rows, cols]: [usize; 2],
    regs: impl Iterator<Item = usize>,
    lanes: [usize; 5],
    warps: Vec<usize>,
) -> Layout {
    let mut regs: Vec<usize> = regs.filter(|step| *step != 0).collect();
    regs.sort_unstable();
    Layout { rows, cols, regs, lanes, warps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_neighbours_within_a_group() {
        let slots = Slots::new(128, 32, (32, 4));
        assert_eq!((slots.inner, slots.lanes, slots.outer), (vec![4, 1, 2], [8, 16], vec![32, 64]));
        let slots = Slots::new(64, 64, (2, 1));
        assert_eq!((slots.inner, slots.lanes, slots.outer), (vec![1, 8], [2, 4], vec![16, 32]));
    }

    #[test]
    fn neighbours_down_the_rows_follow_the_lanes() {
        assert_eq!(rotated(64, 1), [1, 2, 4, 8, 16, 32]);
        assert_eq!(rotated(64, 4), [4, 8, 16, 1, 2, 32]);
        assert_eq!(rotated(8, 4), [1, 2, 4]);
    }

    #[test]
    fn every_element_of_a_result_has_a_thread() {
        for (rows, cols, warp_bits) in [(64, 16, 2), (16, 8, 2), (8, 1, 0), (32, 64, 3)] {
            let (row_bits, col_bits) = (rotated(rows, 4), rotated(cols, 1));
            let result = Shape::new((rows, &row_bits), (cols, &col_bits), warp_bits).result();
            let steps = result.regs.iter().chain(&result.lanes).chain(&result.warps);
            assert_eq!(steps.sum::<usize>(), rows * cols - 1, "{rows} x {cols}");
        }
    }
}
