//! How a dot becomes `mma.sync.m16n8k16` of bfloat16: which side is the instruction's left one, and
//! where its fragments lie in the tiles.
//!
//! The order in which `k` passes through the instructions is free, as long as both sides agree: so
//! a thread takes neighbours along `k` and reads them from memory in one access.

use crate::infer::element_bits;
use crate::layout::{Layout, bits};
use tessera_tile_ir::format::Format;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Kernel, Op, Value};

/// Rows of the instruction's left side, columns of its right side, and what they share.
pub(crate) const MMA: [usize; 3] = [16, 8, 16];

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
    /// Bits of `k` that tell apart what a thread holds, in the order of the instruction: the two of
    /// a pair, the two pairs of an instruction, then one instruction from the next.
    pub(crate) k_regs: Vec<usize>,
    /// Columns of `k` that share scales on both sides.
    pub(crate) group: usize,
}

/// One operand of a dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SidePlan {
    pub(crate) layout: Layout,
    /// From an index along `k` to the next, in the tile's row-major order.
    pub(crate) k_step: usize,
    /// From an index along the other axis to the next.
    pub(crate) other_step: usize,
    /// From the first element of a pair to the second.
    pub(crate) pair: usize,
}

impl SidePlan {
    fn new(layout: Layout, k_is_last: bool, pair: usize) -> Self {
        let (k_step, other_step) = if k_is_last { (1, layout.cols) } else { (layout.cols, 1) };
        Self { layout, k_step, other_step, pair: pair * k_step }
    }

    /// The same for the transposed tile.
    pub(crate) fn transposed(&self) -> Self {
        let k_is_last = self.k_step != 1;
        Self::new(self.layout.transposed(), k_is_last, self.pair / self.k_step)
    }

    /// Parts of the index along the axis other than `k` that registers tell apart, from `first` on:
    /// what one instruction takes lies below.
    pub(crate) fn parts(&self, first: usize) -> Vec<usize> {
        let extent = self.layout.rows * self.layout.cols / self.k_extent();
        let bits: Vec<usize> = (0..extent.ilog2())
            .map(|bit| 1 << bit)
            .filter(|bit| *bit >= first && self.layout.regs.contains(&(bit * self.other_step)))
            .collect();
        (0..1 << bits.len())
            .map(|n| bits.iter().enumerate().map(|(i, bit)| (n >> i & 1) * bit).sum())
            .collect()
    }

    fn k_extent(&self) -> usize {
        if self.k_step == 1 { self.layout.cols } else { self.layout.rows }
    }

    /// Whether registers tell apart indices along the axis other than `k` by that bit.
    pub(crate) fn has(&self, bit: usize) -> bool {
        self.layout.regs.contains(&(bit * self.other_step))
    }
}

impl DotPlan {
    /// The plan for a dot whose extents are powers of two, `k` at least 16; `None` for other ops.
    pub(crate) fn new(kernel: &Kernel, op: &Op, warp_bits: usize) -> Option<Self> {
        let scaled = match op.kind {
            OpKind::Dot => false,
            OpKind::DotScaled => true,
            _ => return None,
        };
        let [m, n] = kernel.ty(op.operands[2]).rows_cols();
        let k = kernel.ty(op.operands[0]).rows_cols()[1];
        if ![m, n, k].iter().all(|extent| extent.is_power_of_two()) || k < MMA[2] {
            return None;
        }
        // Weights go left, where sixteen rows are taken at once, and so does the longer side.
        let swapped = scaled || n > m;
        let (rows, cols) = if swapped { (n, m) } else { (m, n) };
        let group = if scaled { group(kernel, op, k) } else { k };
        let (run, pair) = neighbours(kernel, op, scaled);
        let slots = Slots::new(k, group, (run, pair));
        let shares = Warps::share(rows, cols, warp_bits);
        let step = |tile: Tile| shares.fragment(&slots, tile);
        let [left_side, right_side, result] = [
            step(Tile { kind: Side::Left, rows, cols: k }),
            step(Tile { kind: Side::Right, rows: k, cols }),
            step(Tile { kind: Side::Result, rows, cols }),
        ];
        let (left, right) = match (swapped, scaled) {
            (false, false) => (left_side, right_side),
            (false, true) => (left_side, right_side.transposed()),
            (true, false) => (right_side.transposed(), left_side.transposed()),
            (true, true) => (right_side.transposed(), left_side),
        };
        let result = if swapped { result.transposed() } else { result };
        let pair = slots.regs[0];
        let left = SidePlan::new(left, true, pair);
        let right = SidePlan::new(right, scaled, pair);
        Some(Self { swapped, left, right, result, k_regs: slots.regs, group })
    }
}

/// Columns that share a scale on both sides of a scaled dot.
pub(crate) fn group(kernel: &Kernel, op: &Op, k: usize) -> usize {
    let of = |value: Value| match kernel.ty(value).elem {
        Elem::Packed(format) => group_of(format, k),
        _ => k,
    };
    of(op.operands[0]).min(of(op.operands[1]))
}

/// Columns that share a scale of a format, of at most `k`.
pub(crate) fn group_of(format: &Format, k: usize) -> usize {
    format.scale_tile.map_or(k, |tile| tile.cols.min(k))
}

/// Neighbours along `k` that a thread should hold, and how far apart the two of a pair lie.
fn neighbours(kernel: &Kernel, op: &Op, scaled: bool) -> (usize, usize) {
    let along_k = |i: usize| -> Option<(usize, usize)> {
        let mut value = op.operands[i];
        // The right side of a plain dot has `k` down its columns.
        let mut k_is_last = scaled || i == 0;
        loop {
            let def = kernel.ops.iter().find(|op| op.results.contains(&value))?;
            match def.kind {
                OpKind::Decode => value = def.operands[0],
                OpKind::Transpose => {
                    value = def.operands[0];
                    k_is_last = !k_is_last;
                }
                OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => {
                    let bits = element_bits(kernel.ty(value).elem);
                    // Two codes of four bits that a shift moves to where a pair wants them.
                    let pair = if bits == 4 { 4 } else { 1 };
                    return k_is_last.then_some(((128 / bits).max(2), pair));
                }
                _ => return None,
            }
        }
    };
    let weights = if scaled { along_k(1) } else { None };
    weights.or_else(|| along_k(0)).or_else(|| along_k(1)).unwrap_or((2, 1))
}

/// Where the bits of `k` go.
#[derive(Debug)]
struct Slots {
    /// Kept apart by registers, in the order of the instruction.
    regs: Vec<usize>,
    /// Kept apart by the two lowest bits of the lane.
    lanes: [usize; 2],
}

impl Slots {
    /// A thread holds `run` neighbours within a group, the two of a pair `pair` apart.
    fn new(k: usize, group: usize, (run, pair): (usize, usize)) -> Self {
        let run = run.min(group / 4).max(2);
        let mut regs: Vec<usize> = bits(run);
        let mut rest = bits(k).split_off(regs.len());
        let upper = rest.split_off(2);
        regs.extend(upper);
        if let Some(at) = regs.iter().position(|step| *step == pair) {
            let pair = regs.remove(at);
            regs.insert(0, pair);
        }
        Self { regs, lanes: [rest[0], rest[1]] }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Result,
}

#[derive(Debug, Clone, Copy)]
struct Tile {
    kind: Side,
    rows: usize,
    cols: usize,
}

/// Which bits of rows and columns tell warps apart.
#[derive(Debug)]
struct Warps {
    /// For each bit of the warp, a step along the rows, or along the columns, of the result.
    bits: Vec<(usize, usize)>,
}

impl Warps {
    /// Rows first, so that no two warps read the same part of the left side, then columns. Warps
    /// that are too many do the same as others.
    fn share(rows: usize, cols: usize, warp_bits: usize) -> Self {
        let rows = bits(rows).into_iter().skip(4).map(|step| (step, 0));
        let cols = bits(cols).into_iter().skip(3).map(|step| (0, step));
        let mut bits: Vec<(usize, usize)> = rows.rev().chain(cols.rev()).take(warp_bits).collect();
        bits.resize(warp_bits, (0, 0));
        Self { bits }
    }

    fn fragment(&self, slots: &Slots, tile: Tile) -> Layout {
        let Tile { kind, rows, cols } = tile;
        let down = |step: usize| if step < rows { step * cols } else { 0 };
        let across = |step: usize| if step < cols { step } else { 0 };
        let mut regs = Vec::new();
        let lanes;
        match kind {
            Side::Left => {
                regs.extend(&slots.regs);
                lanes = [slots.lanes[0], slots.lanes[1], down(1), down(2), down(4)];
                regs.extend(bits(rows).iter().skip(3).map(|step| down(*step)));
            }
            Side::Right => {
                regs.extend(slots.regs.iter().map(|step| down(*step)));
                let [a, b] = slots.lanes.map(down);
                lanes = [a, b, across(1), across(2), across(4)];
                regs.extend(bits(cols).iter().skip(3).map(|step| across(*step)));
            }
            Side::Result => {
                regs.push(across(1));
                lanes = [across(2), across(4), down(1), down(2), down(4)];
                regs.extend(bits(rows).iter().skip(3).map(|step| down(*step)));
                regs.extend(bits(cols).iter().skip(3).map(|step| across(*step)));
            }
        }
        let warps: Vec<usize> = self
            .bits
            .iter()
            .map(|&(row, col)| match kind {
                Side::Left => down(row),
                Side::Right => across(col),
                Side::Result => down(row) + across(col),
            })
            .collect();
        regs.retain(|step| *step != 0 && !warps.contains(step));
        regs.sort_unstable();
        Layout { rows, cols, regs, lanes, warps }
    }
}
