//! Reductions, prefix sums and the index of the largest: first within a thread, then between lanes
//! by shuffles, then between warps through shared memory, always in the same order.

use super::elementwise::width;
use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use crate::infer::axis_of;
use crate::layout::{Axis, LANE_BITS, Layout};
use tessera_tile_ir::op::{Binary, Combine};
use tessera_tile_ir::{Elem, Op};

impl Lower<'_> {
    /// The registers of a reduction, in the layout that [`Layout::without`] gives.
    pub(crate) fn reduce(&mut self, op: &Op, axis: usize, combine: Combine) -> Held {
        let source = op.operands[0];
        let axis = axis_of(self.kernel.ty(source), axis);
        let held = self.natural(source);
        match self.elem(source) {
            Elem::Bool => {
                let word = |lower: &mut Self, reg: &Reg| {
                    lower.code.op(Class::B32, "selp.b32", [1.into(), 0.into(), (*reg).into()])
                };
                let regs = held.regs.iter().map(|reg| word(self, reg)).collect();
                let words = Held { layout: held.layout, regs };
                let mut result = self.reduced(Elem::U32, words, axis, binary(combine));
                for reg in &mut result.regs {
                    *reg = self.code.op(Class::Pred, "setp.ne.u32", [(*reg).into(), 0.into()]);
                }
                result
            }
            elem => self.reduced(elem, held, axis, binary(combine)),
        }
    }

    /// The index along an axis of the first largest element, i64.
    pub(crate) fn argmax(&mut self, op: &Op, axis: usize) -> Held {
        let source = op.operands[0];
        let axis = axis_of(self.kernel.ty(source), axis);
        let held = self.natural(source);
        let elem = self.elem(source);
        if width(elem) == 64 {
            let message = format!("the largest of {elem} has no code for this target");
            self.refuse("K033", message);
        }
        // The upper half orders values, the lower half prefers early ones.
        let part = self.thread_part(&held.layout, Some(axis));
        let mut keys = Vec::new();
        for (reg, value) in held.regs.iter().enumerate() {
            let key = self.order(elem, *value);
            let [row, col] = held.layout.reg_place(reg);
            let place = if axis == Axis::Rows { row } else { col };
            #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
            let last = 0xffff_ffff - place as i64;
            let early = match part {
                Some(part) => self.code.op(Class::B32, "sub.u32", [last.into(), part.into()]),
                None => self.code.op(Class::B32, "mov.b32", [last.into()]),
            };
            let both = Operand::vector(&[early, key]);
            keys.push(self.code.op(Class::B64, "mov.b64", [both]));
        }
        let keys = Held { layout: held.layout, regs: keys };
        let mut result = self.reduced(Elem::U64, keys, axis, Binary::Max);
        for reg in &mut result.regs {
            let low = self.code.op(Class::B32, "cvt.u32.u64", [(*reg).into()]);
            let index = self.code.op(Class::B32, "not.b32", [low.into()]);
            *reg = self.code.op(Class::B64, "cvt.u64.u32", [index.into()]);
        }
        result
    }

    /// A number without a sign that orders as the element does, NaN last.
    fn order(&mut self, elem: Elem, value: Reg) -> Reg {
        let top = Operand::Int(0x8000_0000);
        match elem {
            Elem::F32 => {
                // Both zeros are one.
                let value = self.code.op(Class::B32, "add.rn.f32", [value.into(), 0.0_f32.into()]);
                let sign = self.code.op(Class::B32, "shr.s32", [value.into(), 31.into()]);
                let flip = self.code.op(Class::B32, "or.b32", [sign.into(), top]);
                let key = self.code.op(Class::B32, "xor.b32", [value.into(), flip.into()]);
                let nan = self.code.op(Class::Pred, "testp.notanumber.f32", [value.into()]);
                let sources = [Operand::Int(0xffff_ffff), key.into(), nan.into()];
                self.code.op(Class::B32, "selp.b32", sources)
            }
            Elem::I32 => self.code.op(Class::B32, "xor.b32", [value.into(), top]),
            _ => value,
        }
    }

    pub(crate) fn reduced(&mut self, elem: Elem, held: Held, axis: Axis, op: Binary) -> Held {
        let held = self.reduce_regs(elem, held, axis, op);
        let held = self.reduce_lanes(elem, held, axis, op);
        let held = self.reduce_warps(elem, held, axis, op);
        let layout = held.layout.without(axis);
        Held { layout, regs: held.regs }
    }

    /// Combines registers that differ along the axis.
    fn reduce_regs(&mut self, elem: Elem, held: Held, axis: Axis, op: Binary) -> Held {
        let Held { mut layout, mut regs } = held;
        while let Some(bit) = layout.regs.iter().rposition(|step| layout.is_along(axis, *step)) {
            let low: Vec<usize> = (0..regs.len()).filter(|reg| reg >> bit & 1 == 0).collect();
            regs = low
                .iter()
                .map(|reg| self.binary(op, elem, regs[*reg], regs[*reg | 1 << bit]))
                .collect();
            layout.regs.remove(bit);
        }
        Held { layout, regs }
    }

    /// Combines lanes that differ along the axis: afterwards all of them hold the result.
    fn reduce_lanes(&mut self, elem: Elem, held: Held, axis: Axis, op: Binary) -> Held {
        let Held { mut layout, mut regs } = held;
        for bit in (0..LANE_BITS).rev() {
            if !layout.is_along(axis, layout.lanes[bit]) {
                continue;
            }
            for reg in &mut regs {
                let other = self.shuffle_by("bfly", *reg, (1_i64 << bit).into(), 31);
                *reg = self.binary(op, elem, *reg, other);
            }
            layout.lanes[bit] = 0;
        }
        Held { layout, regs }
    }

    /// Combines warps that differ along the axis.
    fn reduce_warps(&mut self, elem: Elem, held: Held, axis: Axis, op: Binary) -> Held {
        let mut apart = held.layout.warps.clone();
        apart.retain(|step| held.layout.is_along(axis, *step));
        if apart.is_empty() {
            return held;
        }
        let mut gathered = held.layout.clone();
        for step in &mut gathered.warps {
            if apart.contains(step) {
                *step = 0;
            }
        }
        gathered.regs.extend(&apart);
        let regs = self.convert(elem, &held, &gathered);
        self.reduce_regs(elem, Held { layout: gathered, regs }, axis, op)
    }

    /// Inclusive prefixes along an axis.
    pub(crate) fn scan(&mut self, op: &Op, axis: usize, combine: Combine) -> Held {
        let source = op.operands[0];
        let elem = self.elem(source);
        let axis = axis_of(self.kernel.ty(source), axis);
        let layout = self.natural_layout(op.results[0]);
        let held = self.get(source, &layout);
        let mut regs = held.regs;
        let steps = match axis {
            Axis::Cols => crate::layout::bits(layout.cols),
            Axis::Rows => {
                crate::layout::bits(layout.rows).iter().map(|bit| bit * layout.cols).collect()
            }
        };
        for (i, step) in steps.iter().enumerate() {
            regs = self.scan_bit(elem, (&layout, &regs), (*step, &steps[..i]), binary(combine));
        }
        Held { layout, regs }
    }

    /// Adds to the elements with that bit of their index set the last of the half before.
    fn scan_bit(
        &mut self,
        elem: Elem,
        (layout, regs): (&Layout, &[Reg]),
        (step, below): (usize, &[usize]),
        op: Binary,
    ) -> Vec<Reg> {
        let lanes = |wanted: &[usize]| -> usize {
            let among = (0..LANE_BITS)
                .filter(|bit| layout.lanes[*bit] != 0 && wanted.contains(&layout.lanes[*bit]));
            among.map(|bit| 1 << bit).sum()
        };
        let (own, lower) = (lanes(&[step]), lanes(below));
        let reg_bit = |step: usize| layout.regs.iter().position(|known| *known == step);
        let ones: usize = below.iter().filter_map(|step| reg_bit(*step)).map(|bit| 1 << bit).sum();
        let own_reg = reg_bit(step).map_or(0, |bit| 1 << bit);
        let lane = (own | lower != 0).then(|| self.lane_with(lower, own));
        let second = (own != 0).then(|| self.thread_bit(layout, step));
        (0..regs.len())
            .map(|reg| {
                if own_reg != 0 && reg & own_reg == 0 {
                    return regs[reg];
                }
                let source = regs[reg & !own_reg | ones];
                let source = match lane {
                    Some(lane) => self.shuffle_by("idx", source, lane.into(), 31),
                    None => source,
                };
                let sum = self.binary(op, elem, source, regs[reg]);
                match second {
                    Some(second) => self.choose(elem, second, sum, regs[reg]),
                    None => sum,
                }
            })
            .collect()
    }

    /// This lane with some bits set and others cleared.
    fn lane_with(&mut self, set: usize, cleared: usize) -> Reg {
        let thread = self.thread();
        #[expect(clippy::cast_possible_wrap, reason = "bits of a lane")]
        let (keep, set) = ((31 & !cleared) as i64, set as i64);
        self.before(|code| {
            let lane = code.op(Class::B32, "and.b32", [thread.into(), keep.into()]);
            code.op(Class::B32, "or.b32", [lane.into(), set.into()])
        })
    }

    /// Whether a truth holds in every thread of the program; all of them meet.
    pub(crate) fn everywhere(&mut self, condition: Reg) -> Reg {
        let all = self.code.reg(Class::Pred);
        let operands = vec![all.into(), 0.into(), condition.into()];
        let effect = crate::code::Effect::Meet;
        self.code.push_with("bar.red.and.pred", operands, None, effect);
        all
    }
}

fn binary(combine: Combine) -> Binary {
    match combine {
        Combine::Sum => Binary::Add,
        Combine::Min => Binary::Min,
        Combine::Max => Binary::Max,
        Combine::And => Binary::And,
        Combine::Or => Binary::Or,
        Combine::Xor => Binary::Xor,
    }
}
