//! Regions: ops in order, loops, branches, asserts.

use super::{Held, Lower};
use crate::code::{Class, Node, Operand, Reg};
use crate::dot::SidePlan;
use crate::infer::{index, yielded};
use crate::layout::Layout;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op, OpId, ParamKind, Region, Value};

impl Lower<'_> {
    /// Lowers the ops of a region in order.
    pub(crate) fn region(&mut self, region: &Region) {
        for &id in &region.ops {
            let op = self.kernel.op(id);
            self.code.loc = op.loc;
            self.op(op, id);
        }
    }

    pub(crate) fn op(&mut self, op: &Op, id: OpId) {
        let writer = id.0;
        match &op.kind {
            OpKind::For { step } => self.repeat(op, *step),
            OpKind::If => self.branch(op),
            OpKind::Yield | OpKind::Print(_) => {}
            OpKind::Assert(message) => self.assert(op, message),
            OpKind::Store(_)
            | OpKind::StoreUntil(_)
            | OpKind::StoreRows(_)
            | OpKind::Scatter(_) => self.store(op, writer),
            OpKind::Atomic(param, how) => self.atomic(op, (*param, *how), writer),
            _ => self.value(op, id),
        }
    }

    /// An op with one result, which is made now or when it is wanted.
    fn value(&mut self, op: &Op, id: OpId) {
        let result = op.results[0];
        let layout = self.natural_layout(result);
        let regs = match &op.kind {
            OpKind::ProgramId(axis) => vec![self.program_id(*axis)],
            OpKind::Dim(dim) => vec![self.dim(*dim)],
            OpKind::Scalar(param) => vec![self.scalar_param(*param)],
            OpKind::Load(param) | OpKind::LoadUntil(param) if self.is_packed(*param) => return,
            // A ring brings it.
            _ if self.staged.contains_key(&result) => return,
            _ if self.layouts.deferred.contains(&result) => return,
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_)
                if self.layouts.staged.contains(&result) =>
            {
                return self.load_to_shared(op, &layout);
            }
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) | OpKind::Gather(_) => {
                self.load(op, &layout)
            }
            OpKind::Reduce { axis, combine } => {
                let held = self.reduce(op, *axis, *combine);
                return self.keep(result, held);
            }
            OpKind::ArgMax(axis) => {
                let held = self.argmax(op, *axis);
                return self.keep(result, held);
            }
            OpKind::Scan { axis, combine } => self.scan(op, *axis, *combine).regs,
            OpKind::Encode(element) => {
                let held = self.get(op.operands[0], &layout);
                let codes: Vec<Reg> =
                    held.regs.iter().map(|reg| self.encode_code(*element, *reg)).collect();
                let elem = Elem::Stored(*element);
                self.packed(elem, &codes, Self::pack(elem, &layout))
            }
            OpKind::Dot => match self.dot_plan(id) {
                Some(plan) => self.dot(op, &plan),
                None => return,
            },
            OpKind::DotScaled => match self.dot_plan(id) {
                Some(plan) => self.dot_scaled(op, &plan),
                None => return,
            },
            _ if self.layouts.of[index(result)].is_some() && !is_view_of_another(&op.kind) => {
                self.elementwise(op, &layout)
            }
            // Made where it is wanted, as it is wanted there.
            _ => return,
        };
        self.keep(result, Held { layout, regs });
    }

    fn is_packed(&self, param: usize) -> bool {
        let kind = &self.kernel.params[param].kind;
        matches!(kind, ParamKind::View { elem: Elem::Packed(_), .. })
    }

    fn program_id(&mut self, axis: usize) -> Reg {
        let name = ["%ctaid.x", "%ctaid.y", "%ctaid.z"][axis];
        self.before(|code| {
            let short = code.op(Class::B32, "mov.u32", [name.into()]);
            code.op(Class::B64, "cvt.u64.u32", [short.into()])
        })
    }

    fn scalar_param(&mut self, param: usize) -> Reg {
        let ParamKind::Scalar(elem) = self.kernel.params[param].kind else {
            unreachable!("the verifier checked the parameter")
        };
        let word = self.argument(self.param_words[param]);
        match Self::class(elem) {
            Class::B64 => word,
            Class::Pred => {
                self.before(|code| code.op(Class::Pred, "setp.ne.u64", [word.into(), 0.into()]))
            }
            class => self.before(|code| code.op(class, "cvt.u32.u64", [word.into()])),
        }
    }

    fn repeat(&mut self, op: &Op, step: usize) {
        let region = &op.regions[0];
        let (start, end) = (self.scalar(op.operands[0]), self.scalar(op.operands[1]));
        let counter = self.code.reg(Class::B64);
        self.code.set(counter, start.into());
        let carried = self.carry(&op.operands[2..], &region.args[1..]);
        self.prepare(region);
        // Copies start where there is a turn for them.
        let ahead = self.loads_ahead(region);
        let turns = ahead
            .is_some()
            .then(|| self.code.op(Class::Pred, "setp.lt.s64", [start.into(), end.into()]));
        self.code.begin();
        let ring = ahead.map(|ahead| self.open_ring(ahead, region, ((start, end), step)));
        self.code.loc = op.loc;
        let go_on = self.code.reg(Class::Pred);
        self.code.begin();
        self.code.push("setp.lt.s64", vec![go_on.into(), counter.into(), end.into()]);
        let head = self.code.close();
        self.code.begin();
        self.open_region();
        let scalar = Layout::copies([1, 1], self.warp_bits);
        self.keep(region.args[0], Held { layout: scalar, regs: vec![counter] });
        for (arg, held) in region.args[1..].iter().zip(&carried) {
            self.keep(*arg, held.clone());
        }
        if let Some(ring) = &ring {
            self.turn_ring(ring, region);
        }
        self.region(region);
        self.code.loc = op.loc;
        self.assign(&yielded(self.kernel, region), &carried);
        if let Some(ring) = &ring {
            self.leave_slot(ring);
        }
        let next = self.advanced(counter, step, end);
        self.code.set(counter, next.into());
        self.close_region();
        let body = self.code.close();
        self.code.node(Node::Loop { head, go_on, body, runs: turns.is_some() });
        let yes = self.code.close();
        match turns {
            Some(condition) => {
                self.code.node(Node::If { condition, yes, no: Vec::new(), together: true });
            }
            None => yes.into_iter().for_each(|node| self.code.node(node)),
        }
        for (result, held) in op.results.iter().zip(carried) {
            self.keep(*result, held);
        }
    }

    /// A counter's next number.
    pub(crate) fn advanced(&mut self, counter: Reg, step: usize, end: Reg) -> Reg {
        #[expect(clippy::cast_possible_wrap, reason = "a step is small")]
        let next = self.add(counter.into(), (step as i64).into());
        // A counter that passes the largest number would begin again below `end`.
        let wrapped = self.code.op(Class::Pred, "setp.lt.s64", [next.into(), counter.into()]);
        let sources = [end.into(), next.into(), wrapped.into()];
        self.code.op(Class::B64, "selp.b64", sources)
    }

    /// Registers of their own for values that a region changes, with what they start as.
    fn carry(&mut self, from: &[Value], to: &[Value]) -> Vec<Held> {
        from.iter()
            .zip(to)
            .map(|(from, to)| {
                let layout = self.natural_layout(*to);
                let held = self.get(*from, &layout);
                let regs = self.code.regs(held.regs[0].class, held.regs.len());
                for (to, from) in regs.iter().zip(&held.regs) {
                    self.code.set(*to, (*from).into());
                }
                Held { layout, regs }
            })
            .collect()
    }

    /// Gives registers the values that a region yields, all at once.
    fn assign(&mut self, values: &[Value], to: &[Held]) {
        let mut moves: Vec<(Reg, Reg)> = Vec::new();
        for (value, to) in values.iter().zip(to) {
            let held = self.get(*value, &to.layout);
            moves.extend(to.regs.iter().copied().zip(held.regs));
        }
        moves.retain(|(to, from)| to != from);
        let targets: Vec<Reg> = moves.iter().map(|(to, _)| *to).collect();
        // A source that is overwritten before it is read is read first.
        let mut saved = Vec::with_capacity(moves.len());
        for (i, (to, from)) in moves.into_iter().enumerate() {
            let late = targets[..i].contains(&from);
            let from = if late { self.saved(from) } else { from };
            saved.push((to, from));
        }
        // Copies above were emitted before any of these.
        for (to, from) in saved {
            self.code.set(to, from.into());
        }
    }

    fn saved(&mut self, from: Reg) -> Reg {
        let copy = self.code.reg(from.class);
        self.code.set(copy, from.into());
        copy
    }

    /// Brings what dots inside of a loop take from outside of it into fragments before the loop.
    fn prepare(&mut self, region: &Region) {
        let mut inside = Vec::new();
        defined(self.kernel, region, &mut inside);
        let mut wanted = Vec::new();
        self.outer_operands(region, &inside, &mut wanted);
        for (value, side) in wanted {
            let outer = self.code.loc;
            self.input(value, &side);
            self.code.loc = outer;
        }
    }

    fn outer_operands(
        &self,
        region: &Region,
        inside: &[Value],
        wanted: &mut Vec<(Value, SidePlan)>,
    ) {
        for &id in &region.ops {
            let op = self.kernel.op(id);
            for region in &op.regions {
                self.outer_operands(region, inside, wanted);
            }
            let (OpKind::Dot, Some(plan)) = (&op.kind, self.layouts.dots.get(&id)) else {
                continue;
            };
            for (value, side) in [(op.operands[0], &plan.left), (op.operands[1], &plan.right)] {
                if !inside.contains(&value) {
                    wanted.push((value, side.clone()));
                }
            }
        }
    }

    fn branch(&mut self, op: &Op) {
        let condition = self.scalar(op.operands[0]);
        let results: Vec<Held> = op
            .results
            .iter()
            .map(|result| {
                let layout = self.natural_layout(*result);
                let elem = self.elem(*result);
                let count = layout.num_regs() / Self::pack(elem, &layout);
                let regs = self.code.regs(Self::class(elem), count);
                Held { layout, regs }
            })
            .collect();
        let mut sides = op.regions.iter().map(|region| {
            self.code.begin();
            self.open_region();
            self.region(region);
            self.code.loc = op.loc;
            self.assign(&yielded(self.kernel, region), &results);
            self.close_region();
            self.code.close()
        });
        let (yes, no) = (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        drop(sides);
        self.code.node(Node::If { condition, yes, no, together: true });
        for (result, held) in op.results.iter().zip(results) {
            self.keep(*result, held);
        }
    }

    /// Where it does not hold, the program says which assert it was and ends.
    fn assert(&mut self, op: &Op, message: &str) {
        let condition = op.operands[0];
        let held = self.natural(condition);
        let mut holds = held.regs[0];
        for reg in &held.regs[1..] {
            holds = self.both(holds, *reg);
        }
        if self.kernel.ty(condition).len() > 1 {
            holds = self.everywhere(holds);
        }
        let number = self.asserts.iter().position(|(m, loc)| m == message && *loc == op.loc);
        let number = number.unwrap_or_else(|| {
            self.asserts.push((message.to_owned(), op.loc));
            self.asserts.len() - 1
        });
        let fails = self.not(holds);
        let faults = self.argument(0);
        let first = self.first_thread();
        self.code.begin();
        let old = self.code.reg(Class::B32);
        let place = Operand::at(faults, 0);
        #[expect(clippy::cast_possible_wrap, reason = "asserts are few")]
        let number = number as i64 + 1;
        let operands = vec![old.into(), place, 0.into(), number.into()];
        let effect = crate::code::Effect::None;
        self.code.push_with("atom.global.cas.b32", operands, Some(first.into()), effect);
        self.code.push("exit", Vec::new());
        let yes = self.code.close();
        self.code.node(Node::If { condition: fails, yes, no: Vec::new(), together: true });
    }
}

/// Every value that a region defines.
fn defined(kernel: &tessera_tile_ir::Kernel, region: &Region, values: &mut Vec<Value>) {
    values.extend(&region.args);
    for &id in &region.ops {
        let op = kernel.op(id);
        values.extend(&op.results);
        op.regions.iter().for_each(|region| defined(kernel, region, values));
    }
}

/// Ops whose elements are those of their operands, at other places or in another form.
fn is_view_of_another(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Const(_)
            | OpKind::Iota(_)
            | OpKind::Broadcast
            | OpKind::Reshape
            | OpKind::Transpose
            | OpKind::Slice { .. }
            | OpKind::Concat(_)
            | OpKind::Decode
            | OpKind::Quantize(_)
    )
}
