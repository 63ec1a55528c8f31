//! Runs the programs of a launch, op by op.

use super::args::{Arg, Args};
use super::cells::{Cells, cell, round_f32};
use super::counts::{Counts, element_bytes};
use super::error::{EvalError, Fault};
use super::memory::View;
use super::{dot, math, shape};
use crate::error::Loc;
use crate::kernel::{Kernel, Op, Region, Value};
use crate::launch::solve_dims;
use crate::op::{Literal, OpKind};
use crate::types::{Elem, Type};
use std::rc::Rc;

/// What an op made or, of an op without results and of a region, what it was given.
#[derive(Debug)]
pub struct Event<'a> {
    /// The op.
    pub op: &'a Op,
    /// Where its author wrote it.
    pub loc: Loc,
    /// Index of the program along each grid axis.
    pub program: &'a [i64],
    /// Handle of the value.
    pub value: Value,
    /// Its type.
    pub ty: &'a Type,
    /// Its elements.
    pub cells: &'a Cells,
    /// The author's words, of a [`OpKind::Print`].
    pub message: Option<&'a str>,
}

type Trace<'a> = Box<dyn FnMut(&Event<'_>) + 'a>;

/// Evaluates one kernel.
pub struct Evaluator<'a> {
    kernel: &'a Kernel,
    trace: Option<Trace<'a>>,
}

impl std::fmt::Debug for Evaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluator").field("kernel", &self.kernel.name).finish_non_exhaustive()
    }
}

impl<'a> Evaluator<'a> {
    /// An evaluator of a kernel that [`Kernel::verify`] accepts.
    pub fn new(kernel: &'a Kernel) -> Self {
        Self { kernel, trace: None }
    }

    /// Calls `trace` with each value a program makes, in the order of the ops: with the results
    /// of an op, with the arguments of a loop's region each time it is entered, and with the
    /// operands of an op that has no results.
    #[must_use]
    pub fn trace(mut self, trace: impl FnMut(&Event<'_>) + 'a) -> Self {
        self.trace = Some(Box::new(trace));
        self
    }

    /// Runs every program; written arrays are changed in place.
    ///
    /// # Errors
    /// As [`super::evaluate`].
    pub fn run(self, args: &mut Args) -> Result<Counts, EvalError> {
        let kernel = self.kernel;
        let error = |fault| EvalError { kernel: kernel.label(), fault: Box::new(fault), at: None };
        args.check(kernel).map_err(error)?;
        let dims = solve_dims(kernel, &args.shapes()).map_err(|e| error(e.into()))?;
        let slots = kernel.params.iter().zip(&mut args.0).map(|(param, arg)| match arg {
            Arg::Array(array) => Slot::View(View::new(param, array)),
            Arg::Scalar(literal) => Slot::Scalar(*literal),
        });
        let mut machine = Machine {
            kernel,
            trace: self.trace,
            slots: slots.collect(),
            dims,
            values: vec![None; kernel.values.len()],
            program: Vec::new(),
            number: 0,
            flops: 0,
        };
        let grid = machine.grid()?;
        machine.programs(&grid)?;
        Ok(machine.counts())
    }
}

enum Slot<'a> {
    View(View<'a>),
    Scalar(Literal),
}

type Shared = Rc<Cells>;

struct Machine<'a, 'b> {
    kernel: &'a Kernel,
    trace: Option<Trace<'a>>,
    slots: Vec<Slot<'b>>,
    dims: Vec<usize>,
    values: Vec<Option<Shared>>,
    program: Vec<i64>,
    /// Number of the program in the order they run.
    number: u32,
    flops: u64,
}

impl<'a, 'b> Machine<'a, 'b> {
    fn grid(&mut self) -> Result<Vec<i64>, EvalError> {
        let extents = self.region(&self.kernel.grid)?;
        let extents: Vec<i64> = extents.iter().map(|extent| extent.ints()[0]).collect();
        let error =
            |fault| EvalError { kernel: self.kernel.label(), fault: Box::new(fault), at: None };
        if let Some(axis) = extents.iter().position(|&extent| extent < 0) {
            return Err(error(Fault::Grid { axis, got: extents[axis] }));
        }
        let total = extents.iter().try_fold(1_i64, |total, &extent| total.checked_mul(extent));
        match total {
            Some(total) if total < i64::from(u32::MAX) => Ok(extents),
            _ => Err(error(Fault::GridSize(extents))),
        }
    }

    /// Runs all programs, the first grid axis fastest.
    fn programs(&mut self, grid: &[i64]) -> Result<(), EvalError> {
        let total = u32::try_from(grid.iter().product::<i64>()).unwrap_or(u32::MAX);
        for number in 0..total {
            let mut rest = i64::from(number);
            self.number = number;
            self.program.clear();
            for extent in grid {
                self.program.push(rest % extent);
                rest /= extent;
            }
            self.region(&self.kernel.body)?;
        }
        Ok(())
    }

    fn region(&mut self, region: &'a Region) -> Result<Vec<Shared>, EvalError> {
        for &id in &region.ops {
            let op = self.kernel.op(id);
            if op.kind == OpKind::Yield {
                return Ok(self.operands(op));
            }
            self.op(op)?;
        }
        Ok(Vec::new())
    }

    fn op(&mut self, op: &'a Op) -> Result<(), EvalError> {
        let results = match &op.kind {
            OpKind::For { step } => self.repeat(op, *step)?,
            OpKind::If => {
                let yes = self.value(op.operands[0]).bools()[0];
                self.region(&op.regions[usize::from(!yes)])?
            }
            _ => self.effect(op).map_err(|fault| EvalError {
                kernel: self.kernel.label(),
                fault: Box::new(fault),
                at: Some((op.loc, self.program.clone())),
            })?,
        };
        if self.trace.is_some() && op.results.is_empty() && op.regions.is_empty() {
            for (&value, cells) in op.operands.iter().zip(self.operands(op)) {
                let message = match &op.kind {
                    OpKind::Print(message) => Some(message.as_str()),
                    _ => None,
                };
                self.show(op, value, &cells, message);
            }
        }
        for (&value, cells) in op.results.iter().zip(results) {
            self.show(op, value, &cells, None);
            self.values[value.0 as usize] = Some(cells);
        }
        Ok(())
    }

    fn repeat(&mut self, op: &'a Op, step: usize) -> Result<Vec<Shared>, EvalError> {
        let bound = |value: Value| self.value(value).ints()[0];
        let (start, end) = (bound(op.operands[0]), bound(op.operands[1]));
        let mut carried = self.operands(op).split_off(2);
        let region = &op.regions[0];
        let mut index = start;
        while index < end {
            let index_cells = Rc::new(Cells::Int(vec![index]));
            for (&arg, cells) in region.args.iter().zip([index_cells].into_iter().chain(carried)) {
                self.show(op, arg, &cells, None);
                self.values[arg.0 as usize] = Some(cells);
            }
            carried = self.region(region)?;
            let Some(next) = index.checked_add_unsigned(step as u64) else { break };
            index = next;
        }
        Ok(carried)
    }

    /// Any op but loops and branches.
    fn effect(&mut self, op: &Op) -> Result<Vec<Shared>, Fault> {
        let operands = self.operands(op);
        if let Some(result) = self.access(op, &operands)? {
            return Ok(result.into_iter().map(Rc::new).collect());
        }
        match &op.kind {
            OpKind::Assert(message) => {
                let holds = operands[0].bools().iter().all(|&holds| holds);
                return if holds { Ok(Vec::new()) } else { Err(Fault::Assert(message.clone())) };
            }
            OpKind::Print(_) => return Ok(Vec::new()),
            OpKind::Reshape => return Ok(vec![Rc::clone(&operands[0])]),
            _ => {}
        }
        self.count(op);
        let inputs: Vec<&Cells> = operands.iter().map(Rc::as_ref).collect();
        Ok(vec![Rc::new(self.pure(op, &inputs)?)])
    }

    /// Ops on views: `None` for any other, `Some(None)` for one without a result.
    fn access(&mut self, op: &Op, operands: &[Shared]) -> Result<Option<Option<Cells>>, Fault> {
        let program = self.number;
        let kernel = self.kernel;
        let ints = |count: usize| -> Vec<i64> {
            operands[..count].iter().map(|index| index.ints()[0]).collect()
        };
        let tiles = |count: usize| -> Vec<&[i64]> {
            operands[..count].iter().map(|index| index.ints()).collect()
        };
        let result = op.results.first().map(|&value| kernel.ty(value));
        let last = operands.len().saturating_sub(1);
        let stored = || (kernel.ty(op.operands[last]), operands[last].as_ref());
        let rows = || (operands[0].ints(), operands[1].ints()[0]);
        let done = match (&op.kind, result) {
            (OpKind::Load(view), Some(ty)) => {
                Some(self.view(*view).load(&ints(operands.len()), ty, program)?)
            }
            (OpKind::LoadUntil(view), Some(ty)) => {
                let (at, end) = (ints(last), operands[last].ints()[0]);
                Some(self.view(*view).until(end, |view| view.load(&at, ty, program))?)
            }
            (OpKind::LoadRows(view), Some(ty)) => {
                Some(self.view(*view).load_rows(rows(), ty, program)?)
            }
            (OpKind::Gather(view), Some(ty)) => {
                Some(self.view(*view).gather(&tiles(operands.len()), ty, program)?)
            }
            (OpKind::Store(view), _) => {
                self.view(*view).store(&ints(last), stored(), program)?;
                None
            }
            (OpKind::StoreUntil(view), _) => {
                let (at, end) = (ints(last - 1), operands[last - 1].ints()[0]);
                self.view(*view).until(end, |view| view.store(&at, stored(), program))?;
                None
            }
            (OpKind::StoreRows(view), _) => {
                self.view(*view).store_rows(rows(), stored(), program)?;
                None
            }
            (OpKind::Scatter(view), _) => {
                let (ty, cells) = stored();
                self.view(*view).scatter(&tiles(last), cells, (ty, program))?;
                None
            }
            (OpKind::Atomic(view, how), _) => {
                let with = operands[last].ints()[0];
                self.view(*view).atomic(*how, (&ints(last), with), program)?;
                None
            }
            _ => return Ok(None),
        };
        Ok(Some(done))
    }

    /// Ops whose only effect is their result.
    fn pure(&self, op: &Op, x: &[&Cells]) -> Result<Cells, Fault> {
        let out = self.kernel.ty(op.results[0]);
        let tys: Vec<&Type> = op.operands.iter().map(|&value| self.kernel.ty(value)).collect();
        let elem = tys.first().map_or(out.elem, |ty| ty.elem);
        Ok(match &op.kind {
            OpKind::ProgramId(axis) => Cells::Int(vec![self.program[*axis]]),
            OpKind::Dim(dim) => Cells::Int(vec![extent(self.dims[*dim])]),
            OpKind::Scalar(param) => match &self.slots[*param] {
                Slot::Scalar(literal) => scalar(out.elem, *literal),
                Slot::View(_) => unreachable!("the verifier checked the parameter"),
            },
            OpKind::Const(literal) => scalar(out.elem, *literal),
            OpKind::Iota(n) => Cells::Int((0..*n).map(extent).collect()),
            OpKind::Broadcast => shape::broadcast(tys[0], out, x[0]),
            OpKind::Transpose => shape::transpose(tys[0], x[0]),
            OpKind::Slice { axis, start } => shape::slice(tys[0], out, (*axis, *start), x[0]),
            OpKind::Concat(axis) => shape::concat(*axis, [tys[0], tys[1]], [x[0], x[1]]),
            OpKind::Unary(op) => math::unary(*op, elem, x[0])?,
            OpKind::Binary(op) => math::binary(*op, elem, x[0], x[1])?,
            OpKind::Cmp(op) => math::cmp(*op, elem, x[0], x[1]),
            OpKind::Select => math::select(x[0], x[1], x[2]),
            OpKind::Fma => math::fma(x[0], x[1], x[2]),
            OpKind::Cast(to) => math::cast(elem, *to, x[0])?,
            OpKind::Bitcast(to) => math::bitcast(*to, x[0]),
            OpKind::Reduce { axis, combine } => shape::reduce(tys[0], *axis, *combine, x[0])?,
            OpKind::Scan { axis, combine } => shape::scan(tys[0], *axis, *combine, x[0])?,
            OpKind::ArgMax(axis) => shape::argmax(tys[0], *axis, x[0]),
            OpKind::Decode => match elem {
                Elem::Stored(element) => dot::decode(element, x[0]),
                _ => x[0].clone(),
            },
            OpKind::Encode(element) => dot::encode(*element, x[0])?,
            OpKind::Quantize(format) => dot::quantize(format, out, x[0]),
            OpKind::Dot => dot::dot(product(tys[0], out), x[0], x[1], x[2]),
            OpKind::DotScaled => dot::dot_scaled(product(tys[0], out), x[0], x[1], x[2]),
            other => unreachable!("{other:?} is not a pure op"),
        })
    }

    fn count(&mut self, op: &Op) {
        let len = |value: &Value| {
            let ty = self.kernel.ty(*value);
            if ty.elem == Elem::F32 { ty.len() } else { 0 }
        };
        let flops = match &op.kind {
            OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Fma => op.results.first().map_or(0, len),
            OpKind::Cmp(_) | OpKind::Reduce { .. } | OpKind::Scan { .. } | OpKind::ArgMax(_) => {
                op.operands.first().map_or(0, len)
            }
            OpKind::Dot | OpKind::DotScaled => {
                let (left, out) = (self.kernel.ty(op.operands[0]), self.kernel.ty(op.results[0]));
                product(left, out).iter().product()
            }
            _ => 0,
        };
        self.flops += flops as u64;
    }

    fn counts(&self) -> Counts {
        let bytes = |pick: fn(&View<'_>) -> u64| {
            let each = self.slots.iter().enumerate().map(|(i, slot)| match slot {
                Slot::View(view) => pick(view) as f64 * element_bytes(self.kernel, i),
                Slot::Scalar(_) => 0.0,
            });
            each.collect()
        };
        let (loaded, stored) = (bytes(|view| view.loaded), bytes(|view| view.stored));
        Counts { flops: self.flops, loaded, stored }
    }

    fn show(&mut self, op: &Op, value: Value, cells: &Cells, message: Option<&str>) {
        let Some(trace) = &mut self.trace else { return };
        let (program, ty) = (self.program.as_slice(), self.kernel.ty(value));
        trace(&Event { op, loc: op.loc, program, value, ty, cells, message });
    }

    fn view(&mut self, param: usize) -> &mut View<'b> {
        match &mut self.slots[param] {
            Slot::View(view) => view,
            Slot::Scalar(_) => unreachable!("the verifier checked the parameter"),
        }
    }

    fn value(&self, value: Value) -> &Cells {
        self.values[value.0 as usize].as_deref().expect("the verifier checked dominance")
    }

    fn operands(&self, op: &Op) -> Vec<Shared> {
        let value = |value: &Value| self.values[value.0 as usize].clone();
        op.operands.iter().map(|v| value(v).expect("the verifier checked dominance")).collect()
    }
}

/// `[m, n, k]` of a product.
fn product(left: &Type, out: &Type) -> [usize; 3] {
    let [m, n] = out.rows_cols();
    [m, n, left.rows_cols()[1]]
}

fn extent(extent: usize) -> i64 {
    i64::try_from(extent).expect("an extent fits i64")
}

fn scalar(elem: Elem, literal: Literal) -> Cells {
    match literal {
        Literal::Float(value) => Cells::Float(vec![f64::from(round_f32(value))]),
        Literal::Bool(value) => Cells::Bool(vec![value]),
        Literal::Int(value) => Cells::Int(vec![cell(elem, i128::from(value)).unwrap_or_default()]),
    }
}
