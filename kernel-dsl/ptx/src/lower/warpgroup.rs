//! Dots by matrix instructions of four warps, `wgmma`: the left side from registers, each warp its
//! sixteen rows as for `mma.sync`, the right side from shared memory, read by the instruction itself.
//!
//! The instructions run on while threads make the fragments of the next chunk. Those of one chunk are
//! a group; a thread waits for the one before the last, whose registers are then free again.

use super::address::sum_of_steps;
use super::multiply::{GroupScales, ScaledSide, result_regs};
use super::operand::{Chunk, Form, Input, Source};
use super::split::{PLANES, is_exact};
use super::{Held, Lower};
use crate::code::{Buffer, Class, Effect, Operand, Reg, Share};
use crate::cores::{CORE, CoreOrder, CorePlace};
use crate::dot::{DotPlan, SidePlan};
use crate::layout::{LANE_BITS, Layout};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op, Value};

/// Planes of a side in shared memory, in cores.
#[derive(Debug, Clone)]
pub(crate) struct Cores {
    buffer: Buffer,
    first: usize,
    planes: usize,
    /// Whether a row of a core runs along `k`.
    along_k: bool,
    order: CoreOrder,
    /// The descriptor of what lies at the beginning of shared memory.
    descriptor: Reg,
}

/// Sums in registers that instructions add to.
struct Sums {
    regs: Vec<Reg>,
    /// Whether they hold nothing yet.
    fresh: bool,
}

/// The sum of the scale group that begins at a column, and its scales of the left side.
struct Group {
    first: usize,
    regs: Vec<Reg>,
    scales: GroupScales,
}

impl Lower<'_> {
    /// A tile of numbers as the side that instructions read from shared memory.
    pub(crate) fn core_input(&mut self, value: Value, side: &SidePlan) -> Input {
        let held = self.natural(value);
        let exact = match self.op_of(value) {
            Some(Op { kind: OpKind::Decode, operands, .. }) => match self.elem(operands[0]) {
                Elem::Stored(element) => is_exact(element),
                _ => false,
            },
            _ => false,
        };
        let planes = if exact { 1 } else { PLANES };
        let split = |lower: &mut Self, [a, b]: [Reg; 2]| lower.split(a, b, planes);
        let source = self.share_cores(&held, (side, planes), split);
        Input { source, form: Form::Planes, side: side.clone() }
    }

    /// Puts planes of a tile, one number a register, into shared memory as instructions read them.
    pub(crate) fn share_cores(
        &mut self,
        held: &Held,
        (side, planes): (&SidePlan, usize),
        mut make: impl FnMut(&mut Self, [Reg; 2]) -> Vec<Reg>,
    ) -> Source {
        let order = side.cores.clone().expect("the plan says so");
        let place = |step: usize, along_k: bool| side.core_place(&order, step, along_k);
        // Neighbours in a core that a thread holds: `2, 4, 8` bytes apart.
        let run = |along_k: bool| {
            let bytes: Vec<usize> =
                held.layout.regs.iter().map(|step| place(*step, along_k).byte).collect();
            [2, 4, 8].iter().take_while(|byte| bytes.contains(byte)).count()
        };
        let along_k = run(true) >= run(false);
        let run = run(along_k);
        let places: Vec<CorePlace> =
            held.layout.regs.iter().map(|step| place(*step, along_k)).collect();
        let mut bits: Vec<usize> = (0..places.len()).collect();
        bits.sort_by_key(|bit| {
            let CorePlace { byte, second, instruction } = places[*bit];
            (instruction, second, byte)
        });
        let cores = self.stage_cores(order.clone(), planes, along_k);
        let base = self.core_address(&held.layout, &cores, &|step| place(step, along_k));
        let guard = self.first_copy(&held.layout).map(Operand::from);
        for group in 0..1 << (bits.len() - run) {
            let reg_of = |number: usize| {
                let set = bits.iter().enumerate().filter(|(i, _)| number >> i & 1 == 1);
                set.map(|(_, bit)| 1 << bit).sum::<usize>()
            };
            let first = reg_of(group << run);
            let regs: Vec<Reg> =
                (0..1 << run).map(|i| held.regs[reg_of(group << run | i)]).collect();
            let words: Vec<Vec<Reg>> = match regs.as_slice() {
                [one] => vec![make(self, [*one, *one])],
                many => many.chunks(2).map(|pair| make(self, [pair[0], pair[1]])).collect(),
            };
            let offset: usize = (0..places.len())
                .filter(|bit| first >> bit & 1 == 1)
                .map(|bit| bytes_of(places[bit], &order))
                .sum();
            self.store_cores(&cores, (base, offset, run), &words, guard.as_ref());
        }
        Source::Cores(cores)
    }

    /// Writes words of each plane that lie side by side.
    fn store_cores(
        &mut self,
        cores: &Cores,
        (base, offset, run): (Reg, usize, usize),
        words: &[Vec<Reg>],
        guard: Option<&Operand>,
    ) {
        let width = if run == 0 { 16 } else { 32 };
        for plane in 0..cores.planes {
            let regs: Vec<Reg> = words.iter().map(|planes| planes[plane]).collect();
            let (values, vector) = Operand::moved(&regs);
            let at = cores.first + plane * cores.order.bytes() + offset;
            let operands = vec![Operand::at(base, at), values];
            let effect = Effect::Write(cores.buffer, Share::Op(u32::MAX));
            let op = format!("st.shared{vector}.u{width}");
            self.code.push_with(op, operands, guard.cloned(), effect);
        }
    }

    /// A place for planes, and what their descriptors begin with.
    fn stage_cores(&mut self, order: CoreOrder, planes: usize, along_k: bool) -> Cores {
        let first = self.stage_bytes.next_multiple_of(CORE);
        let buffer = Buffer::Stage(self.stages);
        self.stages += 1;
        self.stage_bytes = first + planes * order.bytes();
        // Bits of the warp that tell groups of four apart move to the columns of their own.
        let own = order.eights() * CORE / 16;
        let mut steps = vec![0; LANE_BITS + self.warp_bits];
        for (i, warp) in order.groups.iter().enumerate() {
            steps[LANE_BITS + warp] = own << i;
        }
        let thread = self.thread();
        let group = sum_of_steps(&mut self.code, thread, &steps);
        #[expect(clippy::cast_possible_wrap, reason = "strides are small")]
        let strides = ((order.leading() / 16) << 16 | (CORE / 16) << 32) as i64;
        // Not before the entry's loops: a register for all of it is dearer than a few instructions.
        let code = &mut self.code;
        let start = code.op(Class::B32, "mov.u32", ["smem".into()]);
        let mut start = code.op(Class::B32, "shr.u32", [start.into(), 4.into()]);
        if let Some(group) = group {
            start = code.op(Class::B32, "add.u32", [start.into(), group.into()]);
        }
        let wide = code.op(Class::B64, "cvt.u64.u32", [start.into()]);
        let descriptor = code.op(Class::B64, "or.b64", [wide.into(), strides.into()]);
        Cores { buffer, first, planes, along_k, order, descriptor }
    }

    /// The thread's first byte of planes that begin where shared memory does.
    fn core_address(
        &mut self,
        layout: &Layout,
        cores: &Cores,
        place: &dyn Fn(usize) -> CorePlace,
    ) -> Reg {
        let places: Vec<CorePlace> =
            layout.lanes.iter().chain(&layout.warps).map(|step| place(*step)).collect();
        let part = |part: fn(&CorePlace) -> usize| places.iter().map(part).collect::<Vec<usize>>();
        let thread = self.thread();
        let parts = [
            (part(|place| place.byte), 1),
            (part(|place| place.second), cores.order.leading()),
            (part(|place| place.instruction), cores.order.step()),
        ];
        let code = &mut self.code;
        let mut address = code.op(Class::B32, "mov.u32", ["smem".into()]);
        for (steps, bytes) in parts {
            let Some(part) = sum_of_steps(code, thread, &steps) else { continue };
            #[expect(clippy::cast_possible_wrap, reason = "shared memory is small")]
            let sources = [part.into(), (bytes as i64).into(), address.into()];
            address = code.op(Class::B32, "mad.lo.u32", sources);
        }
        address
    }

    /// `a * b + sums`.
    pub(crate) fn dot_of_four(
        &mut self,
        plan: &DotPlan,
        (a, b): (&Input, &Cores),
        start: &[Reg],
    ) -> Vec<Reg> {
        let mut sums = self.started(start);
        for (i, first) in plan.order.chunks.iter().enumerate() {
            let mut a = self.chunk(a, *first);
            self.issue(plan, &mut a, (b, *first), &mut sums);
            if i > 0 {
                self.wait(1);
                self.code.remark("registers of the chunk before");
            }
        }
        self.wait(0);
        sums.regs
    }

    /// The same with scales, which each sum of a group is multiplied by.
    pub(super) fn dot_scaled_of_four(
        &mut self,
        plan: &DotPlan,
        (a, b, cores): (&ScaledSide, &ScaledSide, &Cores),
        start: &[Reg],
    ) -> Vec<Reg> {
        let mut sums = start.to_vec();
        let mut before: Option<Group> = None;
        let order = &plan.order;
        let k = plan.left.layout.cols;
        for first in (0..k).step_by(plan.group) {
            let scales = self.group_scales(a, first);
            let regs = self.code.regs(Class::B32, sums.len());
            let mut group = Sums { regs, fresh: true };
            let own = first..first + plan.group;
            for chunk in order.chunks.iter().filter(|chunk| own.contains(chunk)) {
                let mut left = self.chunk(&a.input, *chunk);
                left.zeros.clone_from(&scales.zeros);
                self.issue(plan, &mut left, (cores, *chunk), &mut group);
                if *chunk > 0 {
                    self.wait(1);
                }
                if *chunk > first {
                    self.code.remark("registers of the chunk before");
                }
                if let Some(before) = before.take() {
                    sums = self.rescale_group(plan, before, (b, &sums));
                }
            }
            before = Some(Group { first, regs: group.regs, scales });
        }
        self.wait(0);
        match before {
            Some(group) => self.rescale_group(plan, group, (b, &sums)),
            None => sums,
        }
    }

    /// The sums of a group times its scales, added to what came before.
    fn rescale_group(
        &mut self,
        plan: &DotPlan,
        group: Group,
        (b, sums): (&ScaledSide, &[Reg]),
    ) -> Vec<Reg> {
        let scales = [group.scales, self.group_scales(b, group.first)];
        self.rescale(plan, &scales, (sums, &group.regs))
    }

    /// Registers of their own for sums that begin with something.
    fn started(&mut self, start: &[Reg]) -> Sums {
        let regs = self.code.regs(Class::B32, start.len());
        for (to, from) in regs.iter().zip(start) {
            self.code.set(*to, (*from).into());
        }
        Sums { regs, fresh: false }
    }

    /// Begins to add the products of a chunk; the smallest first, as everywhere.
    fn issue(
        &mut self,
        plan: &DotPlan,
        a: &mut Chunk,
        (b, first): (&Cores, usize),
        sums: &mut Sums,
    ) {
        let order = &plan.order;
        let mut fragments = Vec::new();
        for k in &order.inner {
            for row in &order.rows {
                let (second, next) = (row + order.second_row, k + order.second_pair);
                let left = [(*k, *row), (*k, second), (next, *row), (next, second)];
                fragments.push((*k, *row, left.map(|(k, row)| self.pair(a, k, row))));
            }
        }
        self.code.push("wgmma.fence.sync.aligned", Vec::new());
        let mut started: Vec<usize> = Vec::new();
        for (k, row, left) in fragments {
            let instruction = b.order.instruction(first + k);
            for depth in (0..PLANES).rev() {
                for i in 0..a.num_planes().min(depth + 1) {
                    if depth - i >= b.planes {
                        continue;
                    }
                    let left = [&left[0], &left[1], &left[2], &left[3]].map(|planes| planes[i]);
                    let add = !sums.fresh || started.contains(&row);
                    started.push(row);
                    let right = self.descriptor(b, depth - i, instruction);
                    let into = sums_of_row(plan, row, &sums.regs);
                    self.multiply_four((left, right, b), &into, add);
                }
            }
        }
        sums.fresh = false;
        self.code.push("wgmma.commit_group.sync.aligned", Vec::new());
    }

    fn multiply_four(
        &mut self,
        (left, right, b): ([Reg; 4], Reg, &Cores),
        sums: &[Reg],
        add: bool,
    ) {
        let cols = sums.len() * 2;
        let op = format!("wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.bf16.bf16");
        let flag = |set: bool| Operand::Int(i64::from(set));
        let mut operands = vec![Operand::vector(sums), Operand::vector(&left), right.into()];
        // Whether to add; signs of both sides; whether rows of cores run across.
        operands.extend([flag(add), 1.into(), 1.into(), flag(!b.along_k)]);
        self.code.push_with(op, operands, None, Effect::Fetch(b.buffer));
    }

    /// The descriptor of what an instruction takes of a plane.
    fn descriptor(&mut self, b: &Cores, plane: usize, instruction: usize) -> Reg {
        let at = b.first + plane * b.order.bytes() + instruction * b.order.step();
        #[expect(clippy::cast_possible_wrap, reason = "shared memory is small")]
        let at = (at / 16) as i64;
        self.add(b.descriptor.into(), at.into())
    }

    /// Waits until at most so many groups are under way.
    fn wait(&mut self, left: i64) {
        let effect = if left == 0 { Effect::Fetched } else { Effect::None };
        self.code.push_with("wgmma.wait_group.sync.aligned", vec![left.into()], None, effect);
    }
}

/// The part of an address.
fn bytes_of(place: CorePlace, order: &CoreOrder) -> usize {
    place.byte + place.second * order.leading() + place.instruction * order.step()
}

/// Registers of the instruction whose first row is this, eight columns after another.
fn sums_of_row(plan: &DotPlan, row: usize, sums: &[Reg]) -> Vec<Reg> {
    let cols = plan.order.cols.iter();
    cols.flat_map(|col| result_regs(plan, [row, *col])).map(|reg| sums[reg]).collect()
}
