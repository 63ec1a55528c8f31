//! The verifier: what every executor may take for granted about a kernel.
//!
//! Values are defined before they are used, types are what the ops say, views are used in their
//! direction, and the views define every launch extent. Messages are for the author: they name
//! the op and what it takes.

mod ops;
mod views;

use crate::error::{BuildError, Loc};
use crate::kernel::{Access, Kernel, Op, Param, ParamKind, Region, Value};
use crate::launch::defined_dims;
use crate::op::OpKind;
use crate::types::{Elem, Type};

/// What is wrong: a code and the author's words for it.
type Wrong = (&'static str, String);

impl Kernel {
    /// Checks the kernel.
    ///
    /// # Errors
    /// Every mistake found, in the order of the source:
    ///
    /// | code | what is wrong |
    /// |---|---|
    /// | K010 | number of operands, results or regions of an op; a region that does not yield |
    /// | K011 | types that an op does not take or give |
    /// | K012 | a value used where it is not defined |
    /// | K013 | a parameter, dim or grid axis that is not there, or two parameters of one name |
    /// | K014 | a read of an `Out`, a write to an `In`, an atomic on anything but an `InOut` |
    /// | K015 | a grid that is not one to three `i64` made from dims |
    /// | K016 | a tile or view that cannot be: rank, extent 0, element |
    /// | K017 | a packed tile where only a decoded one may be; an early end of a packed view |
    /// | K018 | a quantization to groups that the tile cuts, or that are no groups of a row |
    /// | K019 | a scaled dot whose scale groups do not nest |
    /// | K020 | an atomic on floats or codes |
    /// | K021 | a launch extent that no view defines |
    /// | K022 | a constant that its element cannot hold |
    pub fn verify(&self) -> Result<(), Vec<BuildError>> {
        let mut checker = Checker {
            kernel: self,
            defined: vec![false; self.values.len()],
            grid_axes: 0,
            errors: Vec::new(),
        };
        checker.params();
        // The indices behind everything else.
        if checker.errors.is_empty() {
            checker.dims();
            checker.grid();
            let yielded = checker.region(&self.body, false);
            if yielded.is_some_and(|values| !values.is_empty()) {
                checker.error("K010", self.loc, "the body yields a value".to_owned());
            }
        }
        if checker.errors.is_empty() { Ok(()) } else { Err(checker.errors) }
    }
}

struct Checker<'a> {
    kernel: &'a Kernel,
    defined: Vec<bool>,
    grid_axes: usize,
    errors: Vec<BuildError>,
}

impl<'a> Checker<'a> {
    fn error(&mut self, code: &'static str, loc: Loc, message: String) {
        self.errors.push(BuildError { code, message, loc, notes: Vec::new() });
    }

    fn params(&mut self) {
        for (i, param) in self.kernel.params.iter().enumerate() {
            if self.kernel.params[..i].iter().any(|other| other.name == param.name) {
                let message = format!("two parameters are called `{}`", param.name);
                self.error("K013", param.loc, message);
            }
            if let Err((code, message)) = self.param(param) {
                self.error(code, param.loc, message);
            }
        }
    }

    fn param(&self, param: &Param) -> Result<(), Wrong> {
        let name = &param.name;
        match &param.kind {
            ParamKind::Scalar(Elem::Stored(_) | Elem::Packed(_)) => {
                Err(("K016", format!("`{name}` cannot be a single code")))
            }
            ParamKind::Scalar(_) => Ok(()),
            ParamKind::View { elem, access, dims } => {
                let known = |&dim: &usize| dim < self.kernel.dims.len();
                if !dims.iter().all(|axis| axis.dims.iter().all(known)) {
                    return Err(("K013", format!("an axis of `{name}` names no dim")));
                }
                match elem {
                    Elem::Bool => Err((
                        "K016",
                        format!("`{name}` cannot hold truths: their layout is not defined"),
                    )),
                    Elem::Packed(format) if *access != Access::Read => Err((
                        "K014",
                        format!("`{name}` holds {}: it can only be read", format.name),
                    )),
                    Elem::Packed(_) if !(2..=3).contains(&dims.len()) => Err((
                        "K016",
                        format!("`{name}` is packed: it has 2 axes, or 3 with experts first"),
                    )),
                    _ if dims.is_empty() => Err(("K016", format!("`{name}` has no axes"))),
                    _ => Ok(()),
                }
            }
        }
    }

    fn dims(&mut self) {
        let defined = defined_dims(self.kernel);
        for (name, _) in self.kernel.dims.iter().zip(defined).filter(|(_, defined)| !defined) {
            let message = format!("no view defines the launch extent `{name}`");
            self.error("K021", self.kernel.loc, message);
        }
    }

    fn grid(&mut self) {
        let kernel = self.kernel;
        let Some(extents) = self.region(&kernel.grid, true) else { return };
        self.grid_axes = extents.len();
        let scalar = Type::scalar(Elem::I64);
        if !(1..=3).contains(&extents.len()) || extents.iter().any(|&v| *kernel.ty(v) != scalar) {
            let message = "a grid is one to three extents made from dims".to_owned();
            self.error("K015", kernel.loc, message);
        }
    }

    /// Checks a region and gives what it yields.
    fn region(&mut self, region: &'a Region, grid: bool) -> Option<&'a [Value]> {
        let mut made: Vec<Value> = Vec::new();
        for &value in &region.args {
            self.define(value, &mut made);
        }
        let mut yielded = None;
        for (i, &id) in region.ops.iter().enumerate() {
            let op = self.kernel.op(id);
            self.operands(op);
            if op.kind == OpKind::Yield {
                if i + 1 == region.ops.len() && op.results.is_empty() {
                    yielded = Some(op.operands.as_slice());
                } else {
                    self.error("K010", op.loc, "a yield ends its region".to_owned());
                }
                continue;
            }
            self.op(op, grid);
            for &value in &op.results {
                self.define(value, &mut made);
            }
        }
        if yielded.is_none() {
            let last = region.ops.last().map_or(self.kernel.loc, |&id| self.kernel.op(id).loc);
            self.error("K010", last, "a region does not end with a yield".to_owned());
        }
        for value in made {
            self.defined[value.0 as usize] = false;
        }
        yielded
    }

    fn define(&mut self, value: Value, made: &mut Vec<Value>) {
        let Some(defined) = self.defined.get_mut(value.0 as usize) else {
            let message = format!("%{} is not a value", value.0);
            return self.error("K012", self.kernel.loc, message);
        };
        let info = &self.kernel.values[value.0 as usize];
        if std::mem::replace(defined, true) {
            self.error("K012", info.loc, format!("%{} is defined twice", value.0));
        }
        made.push(value);
        let shape = &info.ty.shape;
        if shape.len() > 2 || shape.contains(&0) {
            let message = format!("a tile has at most two axes, none of 0: not {}", info.ty);
            self.error("K016", info.loc, message);
        }
    }

    fn operands(&mut self, op: &Op) {
        for value in &op.operands {
            if self.defined.get(value.0 as usize) != Some(&true) {
                let message =
                    format!("`{}` uses %{}, which is not defined here", op.kind.name(), value.0);
                self.error("K012", op.loc, message);
            }
        }
    }

    fn op(&mut self, op: &'a Op, grid: bool) {
        let known = |value: &Value| (value.0 as usize) < self.kernel.values.len();
        if !op.operands.iter().chain(&op.results).all(known) {
            return;
        }
        if grid && !allowed_in_grid(&op.kind) {
            let message = format!("a grid cannot use `{}`: it is made from dims", op.kind.name());
            self.error("K015", op.loc, message);
        }
        let yields: Vec<Option<&[Value]>> =
            op.regions.iter().map(|region| self.region(region, grid)).collect();
        if yields.iter().any(Option::is_none) {
            return;
        }
        let yields: Vec<&[Value]> = yields.into_iter().flatten().collect();
        if let Err((code, message)) = self.rule(op, &yields) {
            self.error(code, op.loc, message);
        }
    }
}

fn allowed_in_grid(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Dim(_)
            | OpKind::Const(_)
            | OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Cmp(_)
            | OpKind::Select
    )
}
