//! Which layout each tile is best made in, decided before any code is.
//!
//! Loads are coalesced blocks, results of matrix instructions are fragments, and what is computed
//! from a tile stays where the tile is. A tile that is the same everywhere, or a function of its
//! indices alone, has no layout of its own: it is made where it is wanted, as it is wanted.

use crate::ahead::ahead;
use crate::compile::Means;
use crate::dot::{DotPlan, SidePlan};
use crate::layout::{Axis, Layout};
use std::collections::{HashMap, HashSet};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Access, Elem, Kernel, Op, OpId, ParamKind, Region, Type, Value};

/// The decisions for one kernel.
#[derive(Debug)]
pub(crate) struct Layouts {
    /// Of each value that has one.
    pub(crate) of: Vec<Option<Layout>>,
    /// How each dot is multiplied.
    pub(crate) dots: HashMap<OpId, DotPlan>,
    /// Loads that are performed by the one dot that reads them.
    pub(crate) deferred: HashSet<Value>,
    /// Loads that go to shared memory, where several dots read them.
    pub(crate) staged: HashSet<Value>,
    /// Loads that a ring brings to shared memory ahead of time.
    ahead: HashSet<Value>,
}

/// Bytes that a thread loads at once.
const ACCESS_BYTES: usize = 16;

pub(crate) fn infer(kernel: &Kernel, means: Means) -> Layouts {
    let layouts = Layouts {
        of: vec![None; kernel.values.len()],
        dots: HashMap::new(),
        deferred: HashSet::new(),
        staged: HashSet::new(),
        ahead: if means.stages < 2 { HashSet::new() } else { all_ahead(kernel, &kernel.body) },
    };
    let mut inference = Inference { kernel, means, warp_bits: means.warp_bits, layouts };
    inference.dots(&kernel.body);
    inference.region(&kernel.body);
    inference.layouts
}

/// Loads of any loop that run ahead of it.
fn all_ahead(kernel: &Kernel, region: &Region) -> HashSet<Value> {
    let mut all = HashSet::new();
    for op in region.ops.iter().map(|id| kernel.op(*id)) {
        for region in &op.regions {
            all.extend(all_ahead(kernel, region));
        }
        if let (OpKind::For { .. }, [region]) = (&op.kind, op.regions.as_slice())
            && let Some(found) = ahead(kernel, region)
        {
            all.extend(found.loads.iter().map(|id| kernel.op(*id).results[0]));
        }
    }
    all
}

struct Inference<'k> {
    kernel: &'k Kernel,
    means: Means,
    warp_bits: usize,
    layouts: Layouts,
}

impl Inference<'_> {
    /// Plans every dot, and lets loads that nothing else reads load what the dot wants.
    fn dots(&mut self, region: &Region) {
        for &id in &region.ops {
            let op = self.kernel.op(id);
            op.regions.iter().for_each(|region| self.dots(region));
            let stays = |value| self.stays(value, region);
            let Some(plan) = DotPlan::new(self.kernel, op, self.means, &stays) else { continue };
            for (operand, side) in [(0, &plan.left), (1, &plan.right)] {
                match &side.cores {
                    None => self.sink(op.operands[operand], &side.layout, region),
                    Some(_) => self.feed(op.operands[operand], side),
                }
            }
            self.layouts.dots.insert(id, plan);
        }
    }

    /// Whether a load lies in shared memory, whatever the layout it is wanted in: a ring brings it,
    /// several dots read it, or one that would repeat it every turn of a loop.
    fn stays(&self, value: Value, region: &Region) -> bool {
        let ops = &self.kernel.ops;
        let Some(at) = ops.iter().position(|op| op.results.contains(&value)) else { return false };
        let (OpKind::Load(param) | OpKind::LoadUntil(param) | OpKind::LoadRows(param)) =
            ops[at].kind
        else {
            return false;
        };
        let ty = self.kernel.ty(value);
        let readers = self.dots_that_read(value);
        let near = region.ops.iter().any(|id| id.0 as usize == at);
        let ahead = self.layouts.ahead.contains(&value);
        is_read_only(self.kernel, param)
            && !matches!(ty.elem, Elem::Packed(_))
            && element_bits(ty.elem).is_multiple_of(8)
            && ty.len() > 1
            && (readers > 1 || readers == 1 && (ahead || !near))
    }

    /// Decides where a dot takes a load from that only dots read.
    fn sink(&mut self, value: Value, layout: &Layout, region: &Region) {
        let ops = &self.kernel.ops;
        let Some(at) = ops.iter().position(|op| op.results.contains(&value)) else { return };
        let op = &ops[at];
        match op.kind {
            OpKind::Decode => self.sink(op.operands[0], layout, region),
            OpKind::Transpose => self.sink(op.operands[0], &layout.transposed(), region),
            OpKind::Load(param) | OpKind::LoadUntil(param) | OpKind::LoadRows(param)
                if is_read_only(self.kernel, param) =>
            {
                let elem = self.kernel.ty(value).elem;
                let bits = element_bits(elem);
                let readers = self.dots_that_read(value);
                if self.layouts.ahead.contains(&value) {
                    return;
                }
                if matches!(elem, Elem::Packed(_)) || readers == 0 {
                    return;
                }
                // A load from outside of the dot's loop would be repeated every turn.
                let near = region.ops.iter().any(|id| id.0 as usize == at);
                if readers == 1 && near && layout.run() * bits >= 32 {
                    self.layouts.deferred.insert(value);
                } else if bits.is_multiple_of(8) && self.kernel.ty(value).len() > 1 {
                    self.layouts.staged.insert(value);
                }
            }
            _ => {}
        }
    }

    /// Decides how a load is best made that threads write to shared memory for instructions of four
    /// warps.
    fn feed(&mut self, value: Value, side: &SidePlan) {
        let Some(op) = self.kernel.ops.iter().find(|op| op.results.contains(&value)) else {
            return;
        };
        match op.kind {
            OpKind::Quantize(_) => self.feed(op.operands[0], side),
            OpKind::Transpose => self.feed(op.operands[0], &side.transposed()),
            OpKind::Load(_) | OpKind::LoadUntil(_) if self.kernel.ty(value).elem == Elem::F32 => {
                self.layouts.of[index(value)] = side.feed(self.warp_bits);
            }
            _ => {}
        }
    }

    /// How many dots read a value, directly or decoded or transposed; 0 if anything else does.
    fn dots_that_read(&self, value: Value) -> usize {
        let mut dots = 0;
        for op in self.kernel.ops.iter().filter(|op| op.operands.contains(&value)) {
            dots += match op.kind {
                OpKind::Dot if op.operands[2] != value => 1,
                OpKind::Decode | OpKind::Transpose => match self.dots_that_read(op.results[0]) {
                    0 => return 0,
                    more => more,
                },
                _ => return 0,
            };
        }
        dots
    }

    fn region(&mut self, region: &Region) {
        for &id in &region.ops {
            self.op(self.kernel.op(id), id);
        }
    }

    fn op(&mut self, op: &Op, id: OpId) {
        match &op.kind {
            OpKind::For { .. } => self.repeat(op),
            OpKind::If => {
                op.regions.iter().for_each(|region| self.region(region));
                let yields: Vec<Vec<Value>> =
                    op.regions.iter().map(|region| yielded(self.kernel, region)).collect();
                for (i, &result) in op.results.iter().enumerate() {
                    let sides = yields.iter().map(|values| values[i]);
                    let known = sides.filter_map(|value| self.layouts.of[index(value)].clone());
                    let known: Vec<Layout> = known.collect();
                    self.set(result, known.into_iter().next());
                }
            }
            _ => {
                if let [result] = op.results.as_slice()
                    && self.layouts.of[index(*result)].is_none()
                {
                    let layout = self.result(op, id, *result);
                    self.layouts.of[index(*result)] = layout;
                }
            }
        }
    }

    /// A carried value has the layout that the body gives it, whatever it starts as.
    fn repeat(&mut self, op: &Op) {
        let region = &op.regions[0];
        let (carried, results) = (&region.args[1..], &op.results);
        let before = self.layouts.of.clone();
        self.region(region);
        let yields = yielded(self.kernel, region);
        let mut found: Vec<Option<Layout>> = Vec::new();
        for (&value, &init) in yields.iter().zip(&op.operands[2..]) {
            let known = self.layouts.of[index(value)].clone();
            found.push(known.or_else(|| self.layouts.of[index(init)].clone()));
        }
        self.layouts.of = before;
        for ((&arg, &result), layout) in carried.iter().zip(results).zip(found) {
            self.set(arg, layout);
            let layout = self.layouts.of[index(arg)].clone();
            self.set(result, layout);
        }
        self.set(region.args[0], None);
        self.region(region);
    }

    /// Values that live in registers across regions have a layout whatever happens.
    fn set(&mut self, value: Value, layout: Option<Layout>) {
        let ty = self.kernel.ty(value);
        let layout = match layout {
            Some(layout) if ty.len() > 1 => layout.compact(),
            _ => default(ty, self.warp_bits),
        };
        self.layouts.of[index(value)] = Some(layout);
    }

    fn result(&self, op: &Op, id: OpId, result: Value) -> Option<Layout> {
        let ty = self.kernel.ty(result);
        let of = |i: usize| self.layouts.of[index(op.operands[i])].clone();
        if matches!(ty.elem, Elem::Packed(_)) {
            return None;
        }
        if ty.len() == 1 {
            return Some(Layout::copies(ty.rows_cols(), self.warp_bits));
        }
        match &op.kind {
            OpKind::Iota(_) | OpKind::Broadcast | OpKind::Slice { .. } | OpKind::Concat(_) => None,
            OpKind::Reshape => of(0).map(|layout| layout.reshaped(ty.rows_cols())),
            OpKind::Transpose => of(0).map(|layout| layout.transposed()),
            OpKind::Decode => of(0),
            OpKind::Load(_) | OpKind::LoadUntil(_) | OpKind::LoadRows(_) => {
                Some(default(ty, self.warp_bits))
            }
            OpKind::Gather(_) => Some(Layout::blocked(ty.rows_cols(), 1, self.warp_bits)),
            OpKind::Dot | OpKind::DotScaled => {
                self.layouts.dots.get(&id).map(|plan| plan.result.clone())
            }
            OpKind::Reduce { axis, .. } | OpKind::ArgMax(axis) => {
                let source = self.kernel.ty(op.operands[0]);
                let layout = of(0).unwrap_or_else(|| default(source, self.warp_bits));
                Some(layout.without(axis_of(source, *axis)).compact())
            }
            OpKind::Scan { .. } => Some(scan(ty, self.warp_bits)),
            OpKind::Encode(_) => of(0).or_else(|| Some(default(ty, self.warp_bits))),
            _ => self.elementwise(op),
        }
    }

    /// That of the operand with the fewest registers; fragments before blocks, since what is next to
    /// a dot is used in a dot again.
    fn elementwise(&self, op: &Op) -> Option<Layout> {
        let known = op.operands.iter().filter_map(|value| {
            let layout = self.layouts.of[index(*value)].as_ref()?;
            (self.kernel.ty(*value).len() > 1).then_some(layout)
        });
        known.min_by_key(|layout| (layout.num_regs(), layout.run())).cloned()
    }
}

/// The index of a value in tables.
pub(crate) fn index(value: Value) -> usize {
    value.0 as usize
}

/// What a region yields.
pub(crate) fn yielded(kernel: &Kernel, region: &Region) -> Vec<Value> {
    let last = region.ops.last().map(|&id| kernel.op(id));
    match last {
        Some(op) if op.kind == OpKind::Yield => op.operands.clone(),
        _ => Vec::new(),
    }
}

/// The axis of the rows and columns that an axis of a tile is.
pub(crate) fn axis_of(ty: &Type, axis: usize) -> Axis {
    if axis + 1 < ty.shape.len() { Axis::Rows } else { Axis::Cols }
}

/// Coalesced runs.
pub(crate) fn default(ty: &Type, warp_bits: usize) -> Layout {
    if ty.len() == 1 {
        return Layout::copies(ty.rows_cols(), warp_bits);
    }
    let run = (ACCESS_BYTES * 8 / element_bits(ty.elem)).max(1);
    // Rather fewer neighbours a thread than threads without any.
    let threads = 32 << warp_bits;
    let run = run.min((ty.len() / threads).max(1));
    Layout::blocked(ty.rows_cols(), run, warp_bits)
}

/// Neighbours in a thread and in the lanes of a warp, in order; every warp has all.
fn scan(ty: &Type, warp_bits: usize) -> Layout {
    let run = (ty.len() / 32).max(1);
    let layout = Layout::blocked(ty.rows_cols(), run, 0);
    Layout { warps: vec![0; warp_bits], ..layout }
}

pub(crate) fn element_bits(elem: Elem) -> usize {
    match elem {
        Elem::F32 | Elem::I32 | Elem::U32 | Elem::Bool => 32,
        Elem::I64 | Elem::U64 => 64,
        Elem::Stored(element) => element.bits(),
        Elem::Packed(format) => format.element.bits(),
    }
}

pub(crate) fn is_read_only(kernel: &Kernel, param: usize) -> bool {
    matches!(kernel.params[param].kind, ParamKind::View { access: Access::Read, .. })
}
