//! Tile IR to instructions: every op of a kernel, each tile in the layout that was decided for it.
//!
//! A value is made where its op stands, or, if it has no layout of its own, whenever somebody asks
//! for it in one. Whoever wants a tile in another layout gets a copy of it, which is kept for
//! the rest of the region.

mod access;
mod address;
mod bulk;
mod codes;
mod convert;
mod elementwise;
mod flow;
mod fragment;
mod math;
mod multiply;
mod operand;
mod packed;
mod reduce;
mod ring;
mod split;
mod strip;
mod warpgroup;

use crate::code::{Buffer, Class, Code, Effect, Node, Operand, Reg};
use crate::compile::Means;
use crate::dot::{DotPlan, SidePlan};
use crate::infer::{Layouts, axis_of, element_bits, index, infer};
use crate::layout::{Axis, Layout};
use convert::Place;
use operand::Input;
use ring::RingWindow;
use std::collections::HashMap;
use tessera_tile_ir::op::{Literal, OpKind};
use tessera_tile_ir::{BuildError, Elem, Kernel, Loc, Op, OpId, ParamKind, Value};

/// A tile in registers.
///
/// Register `i` of a thread holds elements `i * pack..`, `pack` codes of them where codes of less
/// than a register lie side by side, else one.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) layout: Layout,
    pub(crate) regs: Vec<Reg>,
}

/// What became of a kernel.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) code: Code,
    pub(crate) nodes: Vec<Node>,
    /// Words of arguments.
    pub(crate) params: usize,
    pub(crate) shared_bytes: usize,
    /// Message and place of each assert.
    pub(crate) asserts: Vec<(String, Loc)>,
}

/// Lowers a kernel.
///
/// # Errors
/// What this target has no code for, at the author's place.
pub(crate) fn lower(kernel: &Kernel, means: Means) -> Result<Lowered, Vec<BuildError>> {
    check(kernel)?;
    let mut lower = Lower::new(kernel, means);
    // The slots of rings lie first.
    lower.ring_bytes = lower.bytes_of_rings(&kernel.body);
    lower.stage_bytes = lower.ring_bytes;
    lower.arguments();
    lower.region(&kernel.body);
    let Lower { mut code, prologue, errors, asserts, words, .. } = lower;
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut nodes = prologue;
    nodes.extend(code.close());
    // What tiles pass through lies behind what stays.
    nodes.iter_mut().for_each(|node| move_exchange(node, lower.stage_bytes));
    let shared_bytes = lower.stage_bytes + lower.exchange_bytes;
    Ok(Lowered { code, nodes, params: words, shared_bytes, asserts })
}

/// Moves accesses of the exchange by so many bytes.
fn move_exchange(node: &mut Node, by: usize) {
    let all = |nodes: &mut Vec<Node>| nodes.iter_mut().for_each(|node| move_exchange(node, by));
    match node {
        Node::Barrier { .. } => {}
        Node::Loop { head, body, .. } => {
            all(head);
            all(body);
        }
        Node::If { yes, no, .. } => {
            all(yes);
            all(no);
        }
        Node::Inst(inst) => {
            let (Effect::Read(Buffer::Exchange, _) | Effect::Write(Buffer::Exchange, _)) =
                inst.effect
            else {
                return;
            };
            for operand in &mut inst.operands {
                if let Operand::At(_, offset) = operand {
                    #[expect(clippy::cast_possible_wrap, reason = "shared memory is small")]
                    let by = by as i64;
                    *offset += by;
                }
            }
        }
    }
}

/// Refuses tiles that have no layout.
fn check(kernel: &Kernel) -> Result<(), Vec<BuildError>> {
    let odd = |info: &&tessera_tile_ir::ValueInfo| {
        info.ty.shape.iter().any(|extent| !extent.is_power_of_two())
    };
    let errors: Vec<BuildError> = kernel
        .values
        .iter()
        .filter(odd)
        .map(|info| BuildError {
            code: "K030",
            message: format!("a tile of {} has an extent that is no power of two", info.ty),
            loc: info.loc,
            notes: vec![
                "tiles for GPUs have extents that are powers of two; views may have any".to_owned(),
            ],
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

pub(crate) struct Lower<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) warp_bits: usize,
    pub(crate) code: Code,
    pub(crate) layouts: Layouts,
    /// Runs before everything else: what depends on the thread and the arguments alone.
    prologue: Vec<Node>,
    /// The op that makes a value.
    def: Vec<Option<OpId>>,
    held: Vec<Vec<Held>>,
    inputs: HashMap<(Value, SidePlan), Input>,
    /// Tiles that stay in shared memory.
    staged: HashMap<Value, Place>,
    /// Windows of packed views that lie in shared memory.
    windows: HashMap<Value, RingWindow>,
    /// Slots at least of the rings that loads run ahead in, below 2 for none; and their bytes.
    stages_ahead: usize,
    ring_bytes: usize,
    /// Rings so far.
    rings: u32,
    /// What each open region made and will forget.
    made: Vec<Vec<Made>>,
    /// First word of each parameter's arguments.
    param_words: Vec<usize>,
    words: usize,
    /// Arguments that were read, by word.
    arguments: HashMap<usize, Reg>,
    /// Parts of an index that depend on the thread alone, by the steps of its bits.
    thread_parts: HashMap<Vec<usize>, Option<Reg>>,
    /// Addresses in shared memory that depend on the thread alone.
    shared_addresses: HashMap<(usize, usize, usize, Vec<usize>), Reg>,
    /// Tiles that stay in shared memory, and where the next one goes.
    stages: usize,
    stage_bytes: usize,
    exchange_bytes: usize,
    /// Layouts by which accesses of views share elements among threads.
    rules: Vec<(usize, Layout)>,
    asserts: Vec<(String, Loc)>,
    errors: Vec<BuildError>,
}

pub(crate) enum Made {
    Held(Value),
    Input(Value, Box<SidePlan>),
    Staged(Value),
    Window(Value),
}

impl<'k> Lower<'k> {
    fn new(kernel: &'k Kernel, means: Means) -> Self {
        let mut def = vec![None; kernel.values.len()];
        for (i, op) in (0..).zip(&kernel.ops) {
            op.results.iter().for_each(|result| def[index(*result)] = Some(OpId(i)));
        }
        Self {
            kernel,
            warp_bits: means.warp_bits,
            code: Code::new(kernel.loc),
            layouts: infer(kernel, means),
            prologue: Vec::new(),
            def,
            held: vec![Vec::new(); kernel.values.len()],
            inputs: HashMap::new(),
            staged: HashMap::new(),
            windows: HashMap::new(),
            stages_ahead: means.stages,
            ring_bytes: 0,
            rings: 0,
            made: vec![Vec::new()],
            param_words: Vec::new(),
            words: 0,
            arguments: HashMap::new(),
            thread_parts: HashMap::new(),
            shared_addresses: HashMap::new(),
            stages: 0,
            stage_bytes: 0,
            exchange_bytes: 0,
            rules: Vec::new(),
            asserts: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Numbers the words of arguments.
    fn arguments(&mut self) {
        let mut words = 1 + self.kernel.dims.len();
        for param in &self.kernel.params {
            self.param_words.push(words);
            words += match &param.kind {
                ParamKind::Scalar(_) => 1,
                ParamKind::View { elem: Elem::Packed(_), .. } => 4,
                ParamKind::View { dims, .. } => dims.len().max(1),
            };
        }
        self.words = words;
    }

    /// An argument, read once.
    pub(crate) fn argument(&mut self, word: usize) -> Reg {
        if let Some(reg) = self.arguments.get(&word) {
            return *reg;
        }
        let reg = self.before(|code| code.op(Class::B64, "ld.param.u64", [Operand::Param(word)]));
        self.arguments.insert(word, reg);
        reg
    }

    /// Emits at the beginning of the entry.
    pub(crate) fn before<R>(&mut self, emit: impl FnOnce(&mut Code) -> R) -> R {
        let loc = std::mem::replace(&mut self.code.loc, self.kernel.loc);
        self.code.begin();
        let result = emit(&mut self.code);
        let nodes = self.code.close();
        self.code.loc = loc;
        self.prologue.extend(nodes);
        result
    }

    /// A launch extent.
    pub(crate) fn dim(&mut self, dim: usize) -> Reg {
        self.argument(1 + dim)
    }

    /// Notes a mistake of the author at the op being lowered.
    pub(crate) fn refuse(&mut self, code: &'static str, message: String) {
        let error = BuildError { code, message, loc: self.code.loc, notes: Vec::new() };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    pub(crate) fn op_of(&self, value: Value) -> Option<&'k Op> {
        self.def[index(value)].map(|id| self.kernel.op(id))
    }

    pub(crate) fn elem(&self, value: Value) -> Elem {
        self.kernel.ty(value).elem
    }

    pub(crate) fn shape(&self, value: Value) -> [usize; 2] {
        self.kernel.ty(value).rows_cols()
    }

    /// How a register of an element is declared.
    pub(crate) fn class(elem: Elem) -> Class {
        match elem {
            Elem::Bool => Class::Pred,
            Elem::I64 | Elem::U64 => Class::B64,
            _ => Class::B32,
        }
    }

    /// Codes side by side in a register.
    pub(crate) fn pack(elem: Elem, layout: &Layout) -> usize {
        match elem {
            Elem::Stored(_) | Elem::Packed(_) if 32 % element_bits(elem) == 0 => {
                layout.run().min(32 / element_bits(elem))
            }
            _ => 1,
        }
    }

    /// Remembers a value until the region ends.
    pub(crate) fn keep(&mut self, value: Value, held: Held) {
        self.held[index(value)].push(held);
        self.made.last_mut().expect("a region is open").push(Made::Held(value));
    }

    pub(crate) fn open_region(&mut self) {
        self.made.push(Vec::new());
    }

    /// Forgets what the region made.
    pub(crate) fn close_region(&mut self) {
        for made in self.made.pop().expect("a region is open").into_iter().rev() {
            match made {
                Made::Held(value) => drop(self.held[index(value)].pop()),
                Made::Input(value, side) => drop(self.inputs.remove(&(value, *side))),
                Made::Staged(value) => drop(self.staged.remove(&value)),
                Made::Window(value) => drop(self.windows.remove(&value)),
            }
        }
    }

    /// The one element of a tile, the same in every thread.
    pub(crate) fn scalar(&mut self, value: Value) -> Reg {
        let layout = Layout::copies(self.shape(value), self.warp_bits);
        self.get(value, &layout).regs[0]
    }

    /// A value in a layout.
    pub(crate) fn get(&mut self, value: Value, want: &Layout) -> Held {
        let compact = want.compact();
        if compact != *want {
            let held = self.get(value, &compact);
            return self.spread(self.elem(value), &held, want);
        }
        if let Some(held) = self.held[index(value)].iter().rev().find(|h| h.layout == compact) {
            return held.clone();
        }
        let staged = self.staged.get(&value).copied();
        let regs = match (staged, self.lazily(value, &compact)) {
            (Some(place), _) => self.read_shared(self.elem(value), &compact, place, 0),
            (None, Some(regs)) => regs,
            (None, None) => {
                let all = &self.held[index(value)];
                let held = all.first().expect("what is not made on demand was made before").clone();
                self.convert(self.elem(value), &held, &compact)
            }
        };
        let held = Held { layout: compact, regs };
        self.keep(value, held.clone());
        held
    }

    /// A value in the layout that was decided for it, or in the usual one.
    pub(crate) fn natural(&mut self, value: Value) -> Held {
        let layout = self.natural_layout(value);
        self.get(value, &layout)
    }

    pub(crate) fn natural_layout(&self, value: Value) -> Layout {
        let decided = self.layouts.of[index(value)].clone();
        decided.unwrap_or_else(|| crate::infer::default(self.kernel.ty(value), self.warp_bits))
    }

    /// Makes a value that has no place of its own, if it is one.
    fn lazily(&mut self, value: Value, want: &Layout) -> Option<Vec<Reg>> {
        let op = self.op_of(value)?;
        let class = Self::class(self.elem(value));
        let outer = std::mem::replace(&mut self.code.loc, op.loc);
        let regs = match &op.kind {
            OpKind::Const(literal) => Some(self.constant(*literal, class, want)),
            OpKind::Iota(_) => Some(self.iota(want)),
            OpKind::Broadcast => {
                let source = self.broadcast_source(op, want);
                Some(self.get(op.operands[0], &source).regs)
            }
            OpKind::Reshape => {
                let source = want.reshaped(self.shape(op.operands[0]));
                Some(self.same_registers(op.operands[0], &source, want))
            }
            OpKind::Transpose => {
                let source = want.transposed();
                Some(self.same_registers(op.operands[0], &source, want))
            }
            OpKind::Slice { axis, start } => Some(self.slice(op, (*axis, *start), want)),
            OpKind::Concat(axis) => Some(self.concat(op, *axis, want)),
            OpKind::Decode => Some(self.decode(op, want)),
            _ if self.is_lazy(value) => Some(self.elementwise(op, want)),
            _ => None,
        };
        self.code.loc = outer;
        regs
    }

    /// Whether an elementwise op has no operand with a layout, and so none of its own.
    pub(crate) fn is_lazy(&self, value: Value) -> bool {
        let Some(op) = self.op_of(value) else { return false };
        let elementwise = matches!(
            op.kind,
            OpKind::Unary(_)
                | OpKind::Binary(_)
                | OpKind::Cmp(_)
                | OpKind::Select
                | OpKind::Fma
                | OpKind::Cast(_)
                | OpKind::Bitcast(_)
        );
        elementwise && self.layouts.of[index(value)].is_none()
    }

    /// Elements that lie in the same registers of the same threads, whatever the tile is called.
    fn same_registers(&mut self, source: Value, layout: &Layout, want: &Layout) -> Vec<Reg> {
        let elem = self.elem(source);
        let held = self.get(source, layout);
        if Self::pack(elem, layout) == Self::pack(elem, want) {
            return held.regs;
        }
        let single = self.unpacked(elem, &held);
        self.packed(elem, &single, Self::pack(elem, want))
    }

    /// The layout of the operand of a broadcast whose result has layout `want`.
    pub(crate) fn broadcast_source(&self, op: &Op, want: &Layout) -> Layout {
        let [rows, cols] = self.shape(op.operands[0]);
        let mut layout = want.clone();
        if rows < want.rows {
            layout = layout.without(Axis::Rows);
        }
        if cols < want.cols {
            layout = layout.without(Axis::Cols);
        }
        layout
    }

    fn constant(&mut self, literal: Literal, class: Class, want: &Layout) -> Vec<Reg> {
        let reg = self.code.reg(class);
        match literal {
            #[expect(clippy::cast_possible_truncation, reason = "elements are f32")]
            Literal::Float(value) => self.code.set(reg, (value as f32).into()),
            Literal::Bool(value) => {
                let test = vec![reg.into(), Operand::Int(i64::from(value)), Operand::Int(1)];
                self.code.push("setp.eq.s32", test);
            }
            Literal::Int(value) if class == Class::B32 => {
                self.code.set(reg, Operand::Int(value & 0xffff_ffff));
            }
            Literal::Int(value) => self.code.set(reg, Operand::Int(value)),
        }
        vec![reg; want.num_regs()]
    }

    fn iota(&mut self, want: &Layout) -> Vec<Reg> {
        let first = self.thread_index(want);
        (0..want.num_regs())
            .map(|reg| {
                #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
                let part = want.reg_part(reg) as i64;
                self.add_index(first, part)
            })
            .collect()
    }

    fn slice(&mut self, op: &Op, (axis, start): (usize, usize), want: &Layout) -> Vec<Reg> {
        let source = op.operands[0];
        let ty = self.kernel.ty(source);
        let [rows, cols] = ty.rows_cols();
        let axis = axis_of(ty, axis);
        let (extent, whole, unit) = match axis {
            Axis::Rows => (want.rows, rows, cols),
            Axis::Cols => (want.cols, cols, 1),
        };
        if !start.is_multiple_of(extent) {
            self.refuse(
                "K031",
                format!("a slice of {extent} starts at {start}, which is no multiple of it"),
            );
            return self.code.regs(Self::class(ty.elem), want.num_regs());
        }
        // The same places in the whole tile, and more registers for the rest of the axis.
        let step = |step: usize| step / want.cols * cols + step % want.cols;
        let mut regs: Vec<usize> = want.regs.iter().map(|s| step(*s)).collect();
        let low = regs.len();
        regs.extend(crate::layout::bits(whole / extent).iter().map(|bit| bit * extent * unit));
        let warps = want.warps.iter().map(|s| step(*s)).collect();
        let layout = Layout { rows, cols, regs, lanes: want.lanes.map(step), warps };
        let elem = ty.elem;
        let held = self.get(source, &layout);
        let single = self.unpacked(elem, &held);
        let part = single[(start / extent) << low..][..1 << low].to_vec();
        self.packed(elem, &part, Self::pack(elem, want))
    }

    fn concat(&mut self, op: &Op, axis: usize, want: &Layout) -> Vec<Reg> {
        let (a, b) = (op.operands[0], op.operands[1]);
        let elem = self.elem(a);
        let axis = axis_of(self.kernel.ty(a), axis);
        let [rows, cols] = self.shape(a);
        if self.shape(b) != [rows, cols] {
            self.refuse("K031", "only tiles of one shape are joined for this target".to_owned());
            return self.code.regs(Self::class(elem), want.num_regs());
        }
        let half = match axis {
            Axis::Rows => rows * cols,
            Axis::Cols => cols,
        };
        // A place of the result is one of `a` or of `b`, by the bit that tells the halves apart.
        let step = |step: usize| match axis {
            _ if step == half => 0,
            Axis::Rows => step,
            Axis::Cols => step / want.cols * cols + step % want.cols,
        };
        let warps = want.warps.iter().map(|s| step(*s)).collect();
        let regs = want.regs.iter().map(|s| step(*s)).collect();
        let layout = Layout { rows, cols, regs, lanes: want.lanes.map(step), warps };
        let sides = [a, b].map(|side| {
            let held = self.get(side, &layout);
            self.unpacked(elem, &held)
        });
        let single: Vec<Reg> = match want.regs.iter().position(|step| *step == half) {
            Some(bit) => (0..want.num_regs()).map(|reg| sides[reg >> bit & 1][reg]).collect(),
            None => {
                let second = self.thread_bit(want, half);
                let both = sides[0].clone().into_iter().zip(sides[1].clone());
                both.map(|(a, b)| self.choose(elem, second, b, a)).collect()
            }
        };
        self.packed(elem, &single, Self::pack(elem, want))
    }

    /// The plan of a dot.
    pub(crate) fn dot_plan(&mut self, id: OpId) -> Option<DotPlan> {
        let plan = self.layouts.dots.get(&id).cloned();
        if plan.is_none() {
            let message = "the inner extent of a dot is at least 16 for this target".to_owned();
            self.refuse("K032", message);
        }
        plan
    }
}
