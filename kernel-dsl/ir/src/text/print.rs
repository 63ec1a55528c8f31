//! Kernel to text.

use super::names::{ATOMIC, COMBINE, name_of};
use crate::error::Loc;
use crate::kernel::{Access, Extent, Kernel, Op, Param, ParamKind, Region, Value};
use crate::op::{Literal, OpKind};
use std::fmt::{self, Write};

impl Kernel {
    /// The text form without places: what a person reads and a test pins.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        Printer { kernel: self, out: &mut text, locs: false }
            .kernel()
            .expect("a string takes any text");
        text
    }

    /// One op as a line of the text form, without its place; `{..}` stands for what a region holds.
    pub fn op_text(&self, op: &Op) -> String {
        let mut text = String::new();
        let mut printer = Printer { kernel: self, out: &mut text, locs: false };
        printer.op_alone(op).expect("a string takes any text");
        text
    }
}

/// The text form with the place of everything: [`super::parse()`] gives the kernel back.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { kernel: self, out: f, locs: true }.kernel()
    }
}

struct Printer<'a, W> {
    kernel: &'a Kernel,
    out: &'a mut W,
    locs: bool,
}

impl<W: Write> Printer<'_, W> {
    fn kernel(&mut self) -> fmt::Result {
        let kernel = self.kernel;
        write!(self.out, "kernel {}", kernel.name)?;
        let quoted: Vec<String> = kernel.formats.iter().map(|name| format!("{name:?}")).collect();
        self.list("formats", &quoted)?;
        let consts: Vec<String> =
            kernel.consts.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        self.list("consts", &consts)?;
        self.list("dims", &kernel.dims)?;
        self.loc(kernel.loc)?;
        self.out.write_str(" {\n")?;
        for param in &kernel.params {
            self.param(param)?;
        }
        self.out.write_str("  grid {\n")?;
        self.region(&kernel.grid, 4)?;
        self.out.write_str("  }\n  body {\n")?;
        self.region(&kernel.body, 4)?;
        self.out.write_str("  }\n}\n")
    }

    fn list(&mut self, what: &str, items: &[String]) -> fmt::Result {
        if items.is_empty() { Ok(()) } else { write!(self.out, " {what}({})", items.join(", ")) }
    }

    fn loc(&mut self, loc: Loc) -> fmt::Result {
        if !self.locs {
            return Ok(());
        }
        write!(self.out, " loc({:?}:{}:{})", loc.file, loc.line, loc.column)
    }

    fn param(&mut self, param: &Param) -> fmt::Result {
        write!(self.out, "  param {}: ", param.name)?;
        match &param.kind {
            ParamKind::Scalar(elem) => write!(self.out, "{elem}")?,
            ParamKind::View { elem, access, dims } => {
                let access = match access {
                    Access::Read => "in",
                    Access::Write => "out",
                    Access::ReadWrite => "inout",
                };
                let dims: Vec<String> = dims.iter().map(|axis| self.extent(axis)).collect();
                write!(self.out, "{access} {elem}[{}]", dims.join(", "))?;
            }
        }
        self.loc(param.loc)?;
        self.out.write_char('\n')
    }

    fn extent(&self, axis: &Extent) -> String {
        let mut terms: Vec<String> =
            axis.dims.iter().map(|&dim| self.kernel.dims[dim].clone()).collect();
        if axis.constant != 0 || terms.is_empty() {
            terms.push(axis.constant.to_string());
        }
        terms.join(" + ")
    }

    fn region(&mut self, region: &Region, indent: usize) -> fmt::Result {
        for &id in &region.ops {
            write!(self.out, "{:indent$}", "")?;
            self.op(self.kernel.op(id), indent)?;
            self.out.write_char('\n')?;
        }
        Ok(())
    }

    fn op(&mut self, op: &Op, indent: usize) -> fmt::Result {
        self.head(op)?;
        for region in &op.regions {
            self.open(op, region)?;
            self.out.write_char('\n')?;
            self.region(region, indent + 2)?;
            write!(self.out, "{:indent$}}}", "")?;
        }
        Ok(())
    }

    fn op_alone(&mut self, op: &Op) -> fmt::Result {
        self.head(op)?;
        for region in &op.regions {
            self.open(op, region)?;
            self.out.write_str(" ..}")?;
        }
        Ok(())
    }

    /// Everything before the regions.
    fn head(&mut self, op: &Op) -> fmt::Result {
        if !op.results.is_empty() {
            self.typed(&op.results, op.loc)?;
            self.out.write_str(" = ")?;
        }
        self.out.write_str(op.kind.name())?;
        self.attributes(&op.kind)?;
        if !op.operands.is_empty() {
            let operands: Vec<String> = op.operands.iter().map(|v| format!("%{}", v.0)).collect();
            write!(self.out, " ({})", operands.join(", "))?;
        }
        self.loc(op.loc)
    }

    fn open(&mut self, op: &Op, region: &Region) -> fmt::Result {
        self.out.write_str(" {")?;
        if !region.args.is_empty() {
            self.out.write_char('|')?;
            self.typed(&region.args, op.loc)?;
            self.out.write_char('|')?;
        }
        Ok(())
    }

    /// Values with their types; their places where these are not that of the op.
    fn typed(&mut self, values: &[Value], around: Loc) -> fmt::Result {
        for (i, &value) in values.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(self.out, "{separator}%{}: {}", value.0, self.kernel.ty(value))?;
            let loc = self.kernel.values[value.0 as usize].loc;
            if loc != around {
                self.loc(loc)?;
            }
        }
        Ok(())
    }

    fn attributes(&mut self, kind: &OpKind) -> fmt::Result {
        let kernel = self.kernel;
        match kind {
            OpKind::ProgramId(axis) | OpKind::Concat(axis) | OpKind::ArgMax(axis) => {
                write!(self.out, " {axis}")
            }
            OpKind::Dim(dim) => write!(self.out, " {}", kernel.dims[*dim]),
            OpKind::Scalar(param)
            | OpKind::Load(param)
            | OpKind::Store(param)
            | OpKind::LoadUntil(param)
            | OpKind::StoreUntil(param)
            | OpKind::LoadRows(param)
            | OpKind::StoreRows(param)
            | OpKind::Gather(param)
            | OpKind::Scatter(param) => write!(self.out, " {}", kernel.params[*param].name),
            OpKind::Atomic(param, op) => {
                write!(self.out, " {} {}", name_of(ATOMIC, *op), kernel.params[*param].name)
            }
            OpKind::Const(Literal::Float(value)) => write!(self.out, " {value:?}"),
            OpKind::Const(Literal::Int(value)) => write!(self.out, " {value}"),
            OpKind::Const(Literal::Bool(value)) => write!(self.out, " {value}"),
            OpKind::Iota(n) => write!(self.out, " {n}"),
            OpKind::Slice { axis, start } => write!(self.out, " {axis} {start}"),
            OpKind::Reduce { axis, combine } | OpKind::Scan { axis, combine } => {
                write!(self.out, " {} {axis}", name_of(COMBINE, *combine))
            }
            OpKind::Cast(elem) | OpKind::Bitcast(elem) => write!(self.out, " {elem}"),
            OpKind::Encode(element) => write!(self.out, " {}", element.name()),
            OpKind::Quantize(format) => write!(self.out, " {}", format.name),
            OpKind::For { step } => write!(self.out, " {step}"),
            OpKind::Assert(message) | OpKind::Print(message) => {
                write!(self.out, " {message:?}")
            }
            OpKind::Broadcast
            | OpKind::Reshape
            | OpKind::Transpose
            | OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Cmp(_)
            | OpKind::Select
            | OpKind::Fma
            | OpKind::Decode
            | OpKind::Dot
            | OpKind::DotScaled
            | OpKind::If
            | OpKind::Yield => Ok(()),
        }
    }
}
