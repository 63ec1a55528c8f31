//! Dots by matrix instructions.

use super::packed::PackedWindow;
use super::split::{Fragments, PLANES};
use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use crate::dot::{DotPlan, SidePlan};
use crate::layout::{Axis, Layout};
use std::collections::HashMap;
use tessera_tile_ir::format::{Element, Format, ScaleType};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op, Value};

/// The sixteen rows by eight columns of one instruction's result.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// First row and column, besides what the thread adds.
    row: usize,
    col: usize,
}

/// How the instruction's sides lie in the op's tiles.
struct Sides<'p> {
    plan: &'p DotPlan,
    /// The instruction's left side and its right side.
    a: &'p SidePlan,
    b: &'p SidePlan,
    /// From a row of the instruction's result to the next in the op's result, and from a column.
    steps: [usize; 2],
}

impl<'p> Sides<'p> {
    fn new(plan: &'p DotPlan) -> Self {
        let cols = plan.result.cols;
        let (a, b, steps) = match plan.swapped {
            false => (&plan.left, &plan.right, [cols, 1]),
            true => (&plan.right, &plan.left, [1, cols]),
        };
        Self { plan, a, b, steps }
    }

    fn blocks(&self) -> Vec<Block> {
        let rows = self.a.parts(16);
        let cols = self.b.parts(8);
        let block = |row: &usize| {
            let row = *row;
            cols.iter().map(move |col| Block { row, col: *col })
        };
        rows.iter().flat_map(block).collect()
    }

    /// Registers of the result that an instruction gives: the second of two rows or columns that
    /// are one and the same is the first again.
    fn result_regs(&self, block: Block) -> [usize; 4] {
        let result = &self.plan.result;
        let find = |part: usize| {
            (0..result.num_regs()).find(|reg| result.reg_part(*reg) == part).expect("a register")
        };
        let [row_step, col_step] = self.steps;
        let next_row = if self.a.has(8) { 8 } else { 0 };
        let next_col = usize::from(result.regs.contains(&col_step));
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(row, col)| {
            let (row, col) = (block.row + row * next_row, block.col + col * next_col);
            find(row * row_step + col * col_step)
        })
    }

    /// Parts of `k` of each instruction within `0..group` past `first`.
    fn k_parts(&self, group: usize) -> Vec<usize> {
        let bits: Vec<usize> =
            self.plan.k_regs[2..].iter().copied().filter(|step| *step < group).collect();
        (0..1 << bits.len())
            .map(|n| bits.iter().enumerate().map(|(i, bit)| (n >> i & 1) * bit).sum())
            .collect()
    }
}

impl Lower<'_> {
    /// `a * b + c`.
    pub(crate) fn dot(&mut self, op: &Op, plan: &DotPlan) -> Vec<Reg> {
        let left = self.fragments(op.operands[0], &plan.left);
        let right = self.fragments(op.operands[1], &plan.right);
        let mut sums = self.get(op.operands[2], &plan.result).regs;
        let sides = Sides::new(plan);
        let (a, b) = if plan.swapped { (&right, &left) } else { (&left, &right) };
        let k = plan.left.layout.cols;
        for block in sides.blocks() {
            let regs = sides.result_regs(block);
            let mut sum = regs.map(|reg| sums[reg]);
            for part in sides.k_parts(k) {
                sum = self.multiply(&sides, (a, b), (block, part), sum);
            }
            for (reg, value) in regs.into_iter().zip(sum).rev() {
                sums[reg] = value;
            }
        }
        sums
    }

    /// Every product of planes that matters, added to `sum`.
    fn multiply(
        &mut self,
        sides: &Sides<'_>,
        (a, b): (&Fragments, &Fragments),
        (block, part): (Block, usize),
        sum: [Reg; 4],
    ) -> [Reg; 4] {
        let k8 = sides.plan.k_regs[1];
        let next_row = if sides.a.has(8) { 8 } else { 0 };
        let pairs = |side: &SidePlan, other: usize, k: usize| {
            (part + k) * side.k_step + other * side.other_step
        };
        let left = [(0, 0), (1, 0), (0, 1), (1, 1)]
            .map(|(row, k)| &a.pairs[&pairs(sides.a, block.row + row * next_row, k * k8)]);
        let right = [0, 1].map(|k| &b.pairs[&pairs(sides.b, block.col, k * k8)]);
        let mut sum = sum;
        // Small products first: what they lose is small.
        for order in (0..PLANES).rev() {
            for i in 0..a.planes().min(order + 1) {
                if order - i >= b.planes() {
                    continue;
                }
                let a = left.map(|planes| planes[i]);
                let b = right.map(|planes| planes[order - i]);
                sum = self.mma(a, b, sum);
            }
        }
        sum
    }

    fn mma(&mut self, a: [Reg; 4], b: [Reg; 2], c: [Reg; 4]) -> [Reg; 4] {
        let d = [(); 4].map(|()| self.code.reg(Class::B32));
        let list = |regs: &[Reg]| Operand::Vector(regs.iter().map(|reg| (*reg).into()).collect());
        let operands = vec![list(&d), list(&a), list(&b), list(&c)];
        self.code.push("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", operands);
        d
    }

    /// `x * w^T + c`, codes and scales kept apart until the sum of a group.
    pub(crate) fn dot_scaled(&mut self, op: &Op, plan: &DotPlan) -> Vec<Reg> {
        let sums = self.get(op.operands[2], &plan.result).regs;
        let (Some(x), Some(w)) = (
            self.scaled_side(op.operands[0], plan, true),
            self.scaled_side(op.operands[1], plan, false),
        ) else {
            return sums;
        };
        let sides = Sides::new(plan);
        let (a, b) = (&w, &x);
        let k = plan.left.layout.cols;
        let scaled = a.scales.is_some() || b.scales.is_some();
        let mut sums = sums;
        for first in (0..k).step_by(plan.group) {
            for block in sides.blocks() {
                let regs = sides.result_regs(block);
                let mut sum = match scaled {
                    false => regs.map(|reg| sums[reg]),
                    true => {
                        let zero = self.code.op(Class::B32, "mov.b32", [0.0_f32.into()]);
                        [zero; 4]
                    }
                };
                for part in sides.k_parts(plan.group) {
                    let part = first + part;
                    sum = self.multiply(&sides, (&a.codes, &b.codes), (block, part), sum);
                }
                if scaled {
                    sum = self.rescale(&sides, (a, b), (first, block), (regs, &sums, sum));
                }
                for (reg, value) in regs.into_iter().zip(sum).rev() {
                    sums[reg] = value;
                }
            }
        }
        sums
    }

    /// The sum of a group times its scales, added to what came before.
    fn rescale(
        &mut self,
        sides: &Sides<'_>,
        (a, b): (&ScaledSide, &ScaledSide),
        (first, block): (usize, Block),
        (regs, sums, sum): ([usize; 4], &[Reg], [Reg; 4]),
    ) -> [Reg; 4] {
        let next_row = if sides.a.has(8) { 8 } else { 0 };
        let next_col = usize::from(sides.plan.result.regs.contains(&sides.steps[1]));
        let mut result = sum;
        for (i, (row, col)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
            let rows = a.scale(first, block.row + row * next_row);
            let cols = b.scale(first, block.col + col * next_col);
            let scale = match (rows, cols) {
                (Some(a), Some(b)) => self.code.op(Class::B32, "mul.rn.f32", [b.into(), a.into()]),
                (a, b) => a.or(b).expect("one side has scales"),
            };
            let sources = [sum[i].into(), scale.into(), sums[regs[i]].into()];
            result[i] = self.code.op(Class::B32, "fma.rn.f32", sources);
        }
        result
    }

    /// One side of a scaled dot.
    fn scaled_side(&mut self, value: Value, plan: &DotPlan, is_x: bool) -> Option<ScaledSide> {
        let side = if is_x { &plan.left } else { &plan.right };
        let quantized = self.op_of(value).filter(|op| matches!(op.kind, OpKind::Quantize(_)));
        if let Some(op) = quantized {
            let OpKind::Quantize(format) = op.kind else { return None };
            return self.quantized(op.operands[0], format, (plan, side, is_x));
        }
        let window = self.packed_window(value)?;
        if window.format.scale_tile.is_some() && !window.col_multiple.is_multiple_of(plan.group) {
            let message = format!(
                "a window of {} starts at a column that is not known to be a multiple of {}, the \
                 columns that share a scale",
                window.format.name, plan.group
            );
            self.refuse("K034", message);
            return None;
        }
        Some(self.window_side(&window, (plan, side, is_x)))
    }

    fn window_side(
        &mut self,
        window: &PackedWindow,
        (plan, side, is_x): (&DotPlan, &SidePlan, bool),
    ) -> ScaledSide {
        let element = window.format.element;
        let elem = Elem::Packed(window.format);
        let held = self.window_codes(window, &side.layout);
        // Scales lie in the layout of the result, along the rows or columns that are this side's.
        let mut scales = HashMap::new();
        let mut zeros = HashMap::new();
        if window.format.scale_tile.is_some() {
            let along = scale_layout(plan, is_x);
            for first in (0..side.layout.cols).step_by(plan.group) {
                for reg in 0..along.num_regs() {
                    let other = along.reg_part(reg);
                    let (scale, zero) = self.scale_at(window, &along, [other, first]);
                    scales.insert((first, other), scale.expect("the format has scales"));
                    if let Some(zero) = zero {
                        zeros.insert((first, other), self.zero_pair(zero));
                    }
                }
            }
        }
        let layout = side.layout.clone();
        let (group, cols) = (plan.group, layout.cols);
        let codes = self.pairs_of(side, |lower, first, second| {
            let part = layout.reg_part(first);
            // The lanes of a fragment and of the result hold the same rows of the left side.
            let place = (part % cols / group * group, part / cols);
            let zero = zeros.get(&place).copied();
            lower.operand_pair((element, elem), &held, [first, second], zero)
        });
        ScaledSide { codes, scales: window.format.scale_tile.map(|_| scales) }
    }

    /// `128 + zero point` twice, as bfloat16.
    fn zero_pair(&mut self, zero: Reg) -> Reg {
        let sources = [zero.into(), Operand::Int(0x0001_0001), Operand::Int(0x4300_4300)];
        self.code.op(Class::B32, "mad.lo.u32", sources)
    }

    fn operand_pair(
        &mut self,
        (element, elem): (Element, Elem),
        held: &Held,
        at: [usize; 2],
        zero: Option<Reg>,
    ) -> Vec<Reg> {
        if super::split::is_exact(element) {
            return vec![self.code_pair((element, elem), held, at, zero)];
        }
        let pack = Self::pack(elem, &held.layout);
        let values = at.map(|reg| {
            let bits = element.bits();
            let code = self.field(held.regs[reg / pack], reg % pack * bits, bits, pack * bits);
            self.decode_code(element, code)
        });
        self.split(values[0], values[1], PLANES)
    }

    /// Activations in a block format: of integers with scales, or any number without.
    fn quantized(
        &mut self,
        x: Value,
        format: &'static Format,
        (plan, side, is_x): (&DotPlan, &SidePlan, bool),
    ) -> Option<ScaledSide> {
        let held = self.get(x, &side.layout);
        let Some(tile) = format.scale_tile else {
            let element = format.element;
            let codes = self.pairs_of(side, |lower, first, second| {
                let [first, second] = [first, second].map(|reg| match element.name() {
                    "f32" => held.regs[reg],
                    _ => {
                        let code = lower.encode_code(element, held.regs[reg]);
                        lower.decode_code(element, code)
                    }
                });
                let planes = if super::split::is_exact(element) { 1 } else { PLANES };
                lower.split(first, second, planes)
            });
            return Some(ScaledSide { codes, scales: None });
        };
        let plain =
            tile.scale == ScaleType::F32 && tile.precision == ScaleType::F32 && tile.rows == 1;
        if !plain || format.element.int_bias().is_none() {
            let message = format!("activations of {} have no code for this target", format.name);
            self.refuse("K033", message);
            return None;
        }
        let scales = self.group_scales(&held, (plan, side), tile.divisor);
        let layout = side.layout.clone();
        let (group, cols) = (plan.group, layout.cols);
        let codes = self.pairs_of(side, |lower, first, second| {
            let part = layout.reg_part(first);
            let scale = scales[&(part % cols / group * group, part / cols)];
            let codes =
                [first, second].map(|reg| lower.int_code(format.element, held.regs[reg], scale));
            lower.byte_planes(codes)
        });
        let scales = self.scales_by_column(&scales, (plan, side, is_x));
        Some(ScaledSide { codes, scales: Some(scales) })
    }

    /// The scale of each group of a row, in the layout of the fragments: by first column and row.
    fn group_scales(
        &mut self,
        held: &Held,
        (plan, side): (&DotPlan, &SidePlan),
        divisor: f32,
    ) -> HashMap<(usize, usize), Reg> {
        let layout = &side.layout;
        let mut largest: Vec<((usize, usize), Reg)> = Vec::new();
        for (reg, value) in held.regs.iter().enumerate() {
            let part = layout.reg_part(reg);
            let place = (part % layout.cols / plan.group * plan.group, part / layout.cols);
            let size = self.code.op(Class::B32, "abs.f32", [(*value).into()]);
            match largest.iter().position(|(known, _)| *known == place) {
                None => largest.push((place, size)),
                Some(i) => {
                    let sources = [largest[i].1.into(), size.into()];
                    largest[i].1 = self.code.op(Class::B32, "max.NaN.f32", sources);
                }
            }
        }
        let mut scales = HashMap::new();
        for (place, mut amax) in largest {
            for bit in (0..5).filter(|bit| layout.is_along(Axis::Cols, layout.lanes[*bit])) {
                let other = self.shuffle_by("bfly", amax, (1_i64 << bit).into(), 31);
                amax = self.code.op(Class::B32, "max.NaN.f32", [amax.into(), other.into()]);
            }
            let scale = self.code.op(Class::B32, "div.rn.f32", [amax.into(), divisor.into()]);
            // A group with NaN or an infinity is NaN throughout.
            let finite = self.code.op(Class::Pred, "testp.finite.f32", [scale.into()]);
            let sources = [scale.into(), f32::NAN.into(), finite.into()];
            scales.insert(place, self.code.op(Class::B32, "selp.b32", sources));
        }
        scales
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

    /// Two integers of 16 bits as planes: multiples of 256, and what they leave. Each is exact.
    fn byte_planes(&mut self, numbers: [Reg; 2]) -> Vec<Reg> {
        let lows = numbers
            .map(|number| self.code.op(Class::B32, "bfe.s32", [number.into(), 0.into(), 8.into()]));
        let highs = [0, 1]
            .map(|i| self.code.op(Class::B32, "sub.s32", [numbers[i].into(), lows[i].into()]));
        [highs, lows]
            .map(|plane| {
                let [first, second] =
                    plane.map(|part| self.code.op(Class::B32, "cvt.rn.f32.s32", [part.into()]));
                self.bf16_pair(first, second)
            })
            .to_vec()
    }

    /// Scales brought from the lanes of fragments to those of the result.
    fn scales_by_column(
        &mut self,
        scales: &HashMap<(usize, usize), Reg>,
        (plan, side, is_x): (&DotPlan, &SidePlan, bool),
    ) -> HashMap<(usize, usize), Reg> {
        let from = side.layout.without(Axis::Cols).compact();
        let to = scale_layout(plan, is_x);
        let mut moved = HashMap::new();
        for first in (0..side.layout.cols).step_by(plan.group) {
            let regs =
                (0..from.num_regs()).map(|reg| scales[&(first, from.reg_part(reg))]).collect();
            let held = Held { layout: from.clone(), regs };
            let regs = self.convert(Elem::F32, &held, &to);
            for (reg, scale) in regs.into_iter().enumerate() {
                moved.insert((first, to.reg_part(reg)), scale);
            }
        }
        moved
    }
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

/// One side of a scaled dot: codes as numbers, and what groups of them are multiplied by.
struct ScaledSide {
    codes: Fragments,
    /// By the first column of a group and the row, besides what the thread adds.
    scales: Option<HashMap<(usize, usize), Reg>>,
}

impl ScaledSide {
    fn scale(&self, first: usize, row: usize) -> Option<Reg> {
        self.scales.as_ref().map(|scales| scales[&(first, row)])
    }
}
