//! Dots by matrix instructions.

use super::convert::{Place, apart};
use super::operand::{Chunk, Form, Input, MATRIX_ROW, Source};
use super::split::PLANES;
use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use crate::dot::DotPlan;
use crate::layout::{Axis, Layout, bits};
use std::collections::HashMap;
use tessera_tile_ir::format::{Element, Format, ScaleType};
use tessera_tile_ir::op::{Binary, OpKind};
use tessera_tile_ir::{Elem, Op, Value};

/// First row and column of an instruction's result, besides what the thread adds.
type Block = [usize; 2];

impl Lower<'_> {
    /// `a * b + c`.
    pub(crate) fn dot(&mut self, op: &Op, plan: &DotPlan) -> Vec<Reg> {
        let left = self.input(op.operands[0], &plan.left);
        let right = self.input(op.operands[1], &plan.right);
        let (a, b) = if plan.swapped { (right, left) } else { (left, right) };
        if let Source::Cores(cores) = &b.source {
            let start = self.get(op.operands[2], &plan.result).regs;
            return self.dot_of_four(plan, (&a, cores), &start);
        }
        let mut sums = match &plan.partial {
            None => self.get(op.operands[2], &plan.result).regs,
            Some(partial) => {
                let zero = self.code.op(Class::B32, "mov.b32", [0.0_f32.into()]);
                vec![zero; partial.num_regs()]
            }
        };
        for first in &plan.order.chunks {
            let (mut a, mut b) = (self.chunk(&a, *first), self.chunk(&b, *first));
            self.multiply_chunk(plan, (&mut a, &mut b), &mut sums);
        }
        match &plan.partial {
            None => sums,
            Some(partial) => {
                let partial = Held { layout: partial.clone(), regs: sums };
                let addend = self.get(op.operands[2], &plan.result);
                self.added(&partial, addend)
            }
        }
    }

    /// Adds the sums of warps that each took a part of `k` to a tile: in the order of the warps,
    /// whatever the schedule.
    fn added(&mut self, partial: &Held, addend: Held) -> Vec<Reg> {
        let [rows, cols] = [partial.layout.rows, partial.layout.cols];
        // One tile a warp below the other.
        let shared = partial.layout.copy_bits().1;
        let mut steps = Vec::new();
        let mut all = Layout { rows: rows << shared.count_ones(), ..partial.layout.clone() };
        for (bit, warp) in
            all.warps.iter_mut().enumerate().filter(|(bit, _)| shared >> bit & 1 == 1)
        {
            debug_assert_eq!(*warp, 0, "warp bit {bit} tells nothing else apart");
            *warp = (rows * cols) << steps.len();
            steps.push(*warp);
        }
        let mut want = Layout { rows: all.rows, ..addend.layout.clone() };
        want.regs.extend(&steps);
        let partial = Held { layout: all, regs: partial.regs.clone() };
        // In a place of their own: what comes next through the exchange need not wait for these reads.
        let shape = [partial.layout.rows, cols];
        let place = self.stage(Elem::F32, shape, apart(&partial.layout, 4));
        self.write_shared(Elem::F32, &partial, place, 0);
        let parts = self.read_shared(Elem::F32, &want, place, 0);
        let mut sums = addend.regs;
        for parts in parts.chunks(sums.len()) {
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = self.code.op(Class::B32, "add.rn.f32", [(*sum).into(), (*part).into()]);
            }
        }
        sums
    }

    /// Adds the products of a chunk to the sums.
    fn multiply_chunk(
        &mut self,
        plan: &DotPlan,
        (a, b): (&mut Chunk, &mut Chunk),
        sums: &mut [Reg],
    ) {
        for k in &plan.order.inner {
            for block in blocks(plan) {
                let regs = result_regs(plan, block);
                let sum = self.multiply(plan, (a, b), (block, *k), regs.map(|reg| sums[reg]));
                for (reg, value) in regs.into_iter().zip(sum).rev() {
                    sums[reg] = value;
                }
            }
        }
    }

    /// Every product of planes that matters, added to `sum`.
    fn multiply(
        &mut self,
        plan: &DotPlan,
        (a, b): (&mut Chunk, &mut Chunk),
        ([row, col], k): (Block, usize),
        mut sum: [Reg; 4],
    ) -> [Reg; 4] {
        let order = &plan.order;
        let (second, next) = (row + order.second_row, k + order.second_pair);
        let left = [(k, row), (k, second), (next, row), (next, second)]
            .map(|(k, row)| self.pair(a, k, row));
        let right = [k, next].map(|k| self.pair(b, k, col));
        // Small products first: what they lose is small.
        for depth in (0..PLANES).rev() {
            for i in 0..a.num_planes().min(depth + 1) {
                if depth - i < b.num_planes() {
                    let a = [&left[0], &left[1], &left[2], &left[3]].map(|planes| planes[i]);
                    let b = [&right[0], &right[1]].map(|planes| planes[depth - i]);
                    sum = self.mma(a, b, sum);
                }
            }
        }
        sum
    }

    fn mma(&mut self, a: [Reg; 4], b: [Reg; 2], c: [Reg; 4]) -> [Reg; 4] {
        let d = [(); 4].map(|()| self.code.reg(Class::B32));
        let operands = [&d[..], &a, &b, &c].map(Operand::vector).to_vec();
        self.code.push("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", operands);
        d
    }

    /// `x * w^T + c`, codes and scales kept apart until the sum of a group.
    pub(crate) fn dot_scaled(&mut self, op: &Op, plan: &DotPlan) -> Vec<Reg> {
        let mut sums = self.get(op.operands[2], &plan.result).regs;
        let (Some(x), Some(w)) =
            (self.scaled(op.operands[0], plan, true), self.scaled(op.operands[1], plan, false))
        else {
            return sums;
        };
        // Weights are the instruction's left side.
        let (a, b) = (w, x);
        if let Source::Cores(cores) = &b.input.source {
            return self.dot_scaled_of_four(plan, (&a, &b, cores), &sums);
        }
        let k = plan.left.layout.cols;
        for first in (0..k).step_by(plan.group) {
            let scales = [self.group_scales(&a, first), self.group_scales(&b, first)];
            let chunks: Vec<usize> = plan
                .order
                .chunks
                .iter()
                .copied()
                .filter(|chunk| (first..first + plan.group).contains(chunk))
                .collect();
            let zero = self.code.op(Class::B32, "mov.b32", [0.0_f32.into()]);
            let mut group = vec![zero; sums.len()];
            for chunk in chunks {
                let mut left = self.chunk(&a.input, chunk);
                left.zeros.clone_from(&scales[0].zeros);
                let mut right = self.chunk(&b.input, chunk);
                self.multiply_chunk(plan, (&mut left, &mut right), &mut group);
            }
            sums = self.rescale(plan, &scales, (&sums, &group));
        }
        sums
    }

    /// The sums of a group times its scales, added to what came before. Matrix units cut off what does
    /// not fit a sum, always towards zero: so long sums are made of short ones, added with rounding.
    pub(super) fn rescale(
        &mut self,
        plan: &DotPlan,
        [a, b]: &[GroupScales; 2],
        (sums, group): (&[Reg], &[Reg]),
    ) -> Vec<Reg> {
        let order = &plan.order;
        let mut result = sums.to_vec();
        let mut products: HashMap<(Reg, Reg), Reg> = HashMap::new();
        for [row, col] in blocks(plan) {
            let regs = result_regs(plan, [row, col]);
            let seconds = [(0, 0), (0, order.second_col), (order.second_row, 0)];
            let both = (order.second_row, order.second_col);
            for (reg, (down, across)) in regs.into_iter().zip(seconds.into_iter().chain([both])) {
                let rows = a.scales.get(&(row + down)).copied();
                let cols = b.scales.get(&(col + across)).copied();
                let scale = match (rows, cols) {
                    (Some(a), Some(b)) => Some(*products.entry((a, b)).or_insert_with(|| {
                        self.code.op(Class::B32, "mul.rn.f32", [b.into(), a.into()])
                    })),
                    (a, b) => a.or(b),
                };
                let (group, sum) = (group[reg].into(), sums[reg].into());
                result[reg] = match scale {
                    Some(scale) => {
                        self.code.op(Class::B32, "fma.rn.f32", [group, scale.into(), sum])
                    }
                    None => self.code.op(Class::B32, "add.rn.f32", [group, sum]),
                };
            }
        }
        result
    }

    /// One side of a scaled dot.
    fn scaled(&mut self, value: Value, plan: &DotPlan, is_x: bool) -> Option<ScaledSide> {
        let side = if is_x { &plan.left } else { &plan.right };
        let rows = scale_layout(plan, is_x);
        if let Some(op) = self.op_of(value)
            && let OpKind::Quantize(format) = op.kind
        {
            return self.quantized(op.operands[0], format, (plan, rows, is_x));
        }
        let window = self.packed_window(value)?;
        let format = window.format;
        if format.scale_tile.is_some() && !window.col_multiple.is_multiple_of(plan.group) {
            let message = format!(
                "a window of {} starts at a column that is not known to be a multiple of {}, the \
                 columns that share a scale",
                format.name, plan.group
            );
            self.refuse("K034", message);
            return None;
        }
        let form = Form::Codes(format.element, Elem::Packed(format));
        let source = Source::Window { window, value, scaled: false };
        let input = Input { source, form, side: side.clone() };
        let has_scales = format.scale_tile.is_some();
        Some(ScaledSide { input, has_scales, rows, made: None })
    }

    /// The scales of the group that begins at a column, by row.
    pub(super) fn group_scales(&mut self, side: &ScaledSide, first: usize) -> GroupScales {
        let mut found = GroupScales::default();
        if !side.has_scales {
            return found;
        }
        if let Some(MadeScales::Shared { place, group }) = &side.made {
            let rows = side.rows.transposed();
            let regs = self.read_shared(Elem::F32, &rows, *place, first / group * rows.cols);
            found
                .scales
                .extend(regs.into_iter().enumerate().map(|(i, reg)| (rows.reg_part(i), reg)));
            return found;
        }
        for reg in 0..side.rows.num_regs() {
            let row = side.rows.reg_part(reg);
            match (&side.made, &side.input.source) {
                (Some(MadeScales::Registers { layout, regs, group }), _) => {
                    let part = row * layout.cols + first / group;
                    let reg = (0..layout.num_regs())
                        .find(|reg| layout.reg_part(*reg) == part)
                        .expect("every group of a row has a scale");
                    found.scales.insert(row, regs[reg]);
                }
                (None, Source::Window { window, .. }) => {
                    let (scale, zero) = self.scale_at(window, &side.rows, [row, first]);
                    found.scales.insert(row, scale.expect("the format has scales"));
                    if let Some(zero) = zero {
                        found.zeros.insert(row, self.zero_pair(zero));
                    }
                }
                _ => unreachable!("scales are made or lie in a window"),
            }
        }
        found
    }

    /// `128 + zero point` twice, as bfloat16.
    fn zero_pair(&mut self, zero: Reg) -> Reg {
        let sources = [zero.into(), Operand::Int(0x0001_0001), Operand::Int(0x4300_4300)];
        self.code.op(Class::B32, "mad.lo.u32", sources)
    }

    /// Activations in a block format: of integers with scales, or any number without.
    fn quantized(
        &mut self,
        x: Value,
        format: &'static Format,
        (plan, rows, is_x): (&DotPlan, Layout, bool),
    ) -> Option<ScaledSide> {
        let side = if is_x { &plan.left } else { &plan.right };
        let Some(tile) = format.scale_tile else {
            if format.element != Element::F32 {
                let message =
                    format!("activations of {} have no code for this target", format.name);
                self.refuse("K033", message);
                return None;
            }
            let input = self.input(x, side);
            return Some(ScaledSide { input, has_scales: false, rows, made: None });
        };
        let plain = (tile.scale, tile.precision, tile.rows) == (ScaleType::F32, ScaleType::F32, 1);
        if !plain || format.element.int_bias().is_none() {
            let message = format!("activations of {} have no code for this target", format.name);
            self.refuse("K033", message);
            return None;
        }
        // Quantized once, by the threads that load it, and not by every warp that multiplies it.
        let held = self.natural(x);
        let group = tile.cols.min(held.layout.cols);
        let scales = self.scales_of(&held, group, tile.divisor);
        let codes = self.int_codes(&held, &scales, (group, format.element));
        if side.cores.is_some() {
            let codes = Held { layout: held.layout, regs: codes };
            let source = self.share_cores(&codes, (side, 2), Self::byte_pair);
            let input = Input { source, form: Form::Planes, side: side.clone() };
            // Side by side for each group, and read when it is multiplied: too many to keep.
            let across = Held { layout: scales.layout.transposed(), regs: scales.regs };
            let place = self.share_tile(Elem::F32, &across, MATRIX_ROW);
            let made = Some(MadeScales::Shared { place, group });
            return Some(ScaledSide { input, has_scales: true, rows, made });
        }
        let planes = self.byte_planes(&held.layout, &codes);
        let source = self.share_planes(&planes, side);
        let mut want = Layout {
            regs: rows.regs.iter().map(|step| step * scales.layout.cols).collect(),
            lanes: rows.lanes.map(|step| step * scales.layout.cols),
            warps: rows.warps.iter().map(|step| step * scales.layout.cols).collect(),
            rows: scales.layout.rows,
            cols: scales.layout.cols,
        };
        want.regs.splice(0..0, bits(scales.layout.cols));
        let regs = self.convert(Elem::F32, &scales, &want);
        let made = Some(MadeScales::Registers { layout: want, regs, group });
        let input = Input { source, form: Form::Planes, side: side.clone() };
        Some(ScaledSide { input, has_scales: true, rows, made })
    }

    /// The scale of each group of a tile's rows, `[rows, groups]`; NaN where the group holds one or
    /// an infinity.
    fn scales_of(&mut self, held: &Held, group: usize, divisor: f32) -> Held {
        let layout = &held.layout;
        let groups = layout.cols / group;
        let regs = held
            .regs
            .iter()
            .map(|reg| self.code.op(Class::B32, "abs.f32", [(*reg).into()]))
            .collect();
        // As a tile whose rows are the groups, so that a reduction along columns is within one.
        let split = layout.reshaped([layout.rows * groups, group]);
        let sizes = Held { layout: split, regs };
        let largest = self.reduced(Elem::F32, sizes, Axis::Cols, Binary::Max);
        let regs = largest
            .regs
            .iter()
            .map(|amax| {
                let scale =
                    self.code.op(Class::B32, "div.rn.f32", [(*amax).into(), divisor.into()]);
                let finite = self.code.op(Class::Pred, "testp.finite.f32", [scale.into()]);
                let sources = [scale.into(), f32::NAN.into(), finite.into()];
                self.code.op(Class::B32, "selp.b32", sources)
            })
            .collect();
        let layout = largest.layout.reshaped([layout.rows, groups]);
        Held { layout, regs }
    }

    /// The integers of a tile's numbers, given the scales of its groups.
    fn int_codes(
        &mut self,
        held: &Held,
        scales: &Held,
        (group, element): (usize, Element),
    ) -> Vec<Reg> {
        let layout = &held.layout;
        let groups = scales.layout.cols;
        held.regs
            .iter()
            .enumerate()
            .map(|(reg, x)| {
                let [row, col] = layout.reg_place(reg);
                let part = row * groups + col / group;
                let scale = (0..scales.layout.num_regs())
                    .find(|reg| scales.layout.reg_part(*reg) == part)
                    .expect("every group has a scale");
                self.int_code(element, *x, scales.regs[scale])
            })
            .collect()
    }

    /// Integers of 16 bits as planes of bfloat16.
    fn byte_planes(&mut self, layout: &Layout, codes: &[Reg]) -> Vec<Held> {
        let mut planes = [Vec::new(), Vec::new()];
        let pack = layout.run().min(2);
        for numbers in codes.chunks(pack) {
            let parts = self.byte_pair([numbers[0], numbers[pack - 1]]);
            planes.iter_mut().zip(parts).for_each(|(plane, part)| plane.push(part));
        }
        planes.map(|regs| Held { layout: layout.clone(), regs }).to_vec()
    }

    /// Two integers of 16 bits as pairs of bfloat16: multiples of 256, and what they leave. Each is
    /// exact.
    fn byte_pair(&mut self, both: [Reg; 2]) -> Vec<Reg> {
        let lows = both
            .map(|number| self.code.op(Class::B32, "bfe.s32", [number.into(), 0.into(), 8.into()]));
        let highs =
            [0, 1].map(|i| self.code.op(Class::B32, "sub.s32", [both[i].into(), lows[i].into()]));
        [highs, lows]
            .map(|parts| {
                let [first, second] =
                    parts.map(|part| self.code.op(Class::B32, "cvt.rn.f32.s32", [part.into()]));
                self.bf16_pair(first, second)
            })
            .to_vec()
    }

    /// The nearest integer to `x / scale`; 0 where the scale is 0 or NaN.
    fn int_code(&mut self, element: Element, x: Reg, scale: Reg) -> Reg {
        let quotient = self.code.op(Class::B32, "div.rn.f32", [x.into(), scale.into()]);
        let usable = self.code.op(Class::Pred, "setp.gt.f32", [scale.into(), 0.0_f32.into()]);
        let sources = [quotient.into(), 0.0_f32.into(), usable.into()];
        let quotient = self.code.op(Class::B32, "selp.b32", sources);
        let number = self.code.op(Class::B32, "cvt.rni.s32.f32", [quotient.into()]);
        #[expect(clippy::cast_possible_truncation, reason = "codes have at most 16 bits")]
        let [low, high] = [element.min() as i64, element.max() as i64];
        let number = self.code.op(Class::B32, "max.s32", [number.into(), low.into()]);
        self.code.op(Class::B32, "min.s32", [number.into(), high.into()])
    }
}

/// Instructions of one `k`.
fn blocks(plan: &DotPlan) -> Vec<Block> {
    let cols = &plan.order.cols;
    plan.order.rows.iter().flat_map(|row| cols.iter().map(move |col| [*row, *col])).collect()
}

/// Registers of the result that an instruction gives: the second of two rows or columns that are
/// one and the same is the first again.
pub(super) fn result_regs(plan: &DotPlan, [row, col]: Block) -> [usize; 4] {
    let result = plan.partial.as_ref().unwrap_or(&plan.result);
    let [down, across] = if plan.swapped { [1, result.cols] } else { [result.cols, 1] };
    let find = |row: usize, col: usize| {
        let part = row * down + col * across;
        (0..result.num_regs()).find(|reg| result.reg_part(*reg) == part).expect("a register")
    };
    let (second_row, second_col) = (row + plan.order.second_row, col + plan.order.second_col);
    [find(row, col), find(row, second_col), find(second_row, col), find(second_row, second_col)]
}

/// Rows of a packed operand as the result has them, a column: `[rows, 1]`.
fn scale_layout(plan: &DotPlan, is_x: bool) -> Layout {
    // The op's result is `[m, n]`: `x` has its rows, `w` its columns.
    let layout = if is_x {
        plan.result.without(Axis::Cols)
    } else {
        plan.result.without(Axis::Rows).transposed()
    };
    layout.compact()
}

/// One side of a scaled dot.
pub(super) struct ScaledSide {
    pub(super) input: Input,
    pub(super) has_scales: bool,
    /// Its rows as the result has them.
    rows: Layout,
    /// Scales that were computed rather than loaded.
    made: Option<MadeScales>,
}

/// Scales that were computed; `group` columns share one.
enum MadeScales {
    /// `[rows, groups]`, in the layout of the result's rows.
    Registers { layout: Layout, regs: Vec<Reg>, group: usize },
    /// `[groups, rows]`.
    Shared { place: Place, group: usize },
}

/// Scales of one group by row, and what to take off its codes.
#[derive(Default)]
pub(super) struct GroupScales {
    scales: HashMap<usize, Reg>,
    pub(super) zeros: HashMap<usize, Reg>,
}
