//! One instruction while it is decoded: its modifiers, each to be taken once, and its operands.

use crate::ParseError;
use crate::body::{Body, Constant, Symbol};
use crate::program::{Address, Class, Condition, Op, Pred, Reg, Special, Src};
use crate::syntax::Arg;
use crate::types::{Ty, low_mask};

use super::special;

/// An instruction's text and the entry it belongs to.
pub(crate) struct Call<'b, 'a> {
    pub(crate) body: &'b mut Body<'a>,
    pub(crate) line: u32,
    /// What the instruction is predicated on; what it expands to is, too.
    pub(crate) guard: Option<(Pred, bool)>,
    /// The whole mnemonic, for messages.
    pub(crate) text: &'a str,
    pub(crate) name: &'a str,
    mods: Vec<&'a str>,
    used: Vec<bool>,
    pub(crate) args: Vec<Arg<'a>>,
}

impl<'b, 'a> Call<'b, 'a> {
    pub(crate) fn new(
        body: &'b mut Body<'a>,
        line: u32,
        (guard, text): (Option<(Pred, bool)>, &'a str),
        args: Vec<Arg<'a>>,
    ) -> Call<'b, 'a> {
        let mut parts = text.split('.');
        let name = parts.next().unwrap_or_default();
        let mods: Vec<&str> = parts.collect();
        let used = vec![false; mods.len()];
        Call { body, line, guard, text, name, mods, used, args }
    }

    pub(crate) fn error<T>(&self, message: impl std::fmt::Display) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, message: format!("`{}`: {message}", self.text) })
    }

    /// Takes a modifier, if it is there.
    pub(crate) fn has(&mut self, name: &str) -> bool {
        let found = (0..self.mods.len()).find(|&i| !self.used[i] && self.mods[i] == name);
        if let Some(index) = found {
            self.used[index] = true;
        }
        found.is_some()
    }

    /// Takes the first modifier that `read` understands.
    pub(crate) fn pick<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        for index in 0..self.mods.len() {
            if self.used[index] {
                continue;
            }
            if let Some(value) = read(self.mods[index]) {
                self.used[index] = true;
                return Some(value);
            }
        }
        None
    }

    /// The first type that was not taken, without taking it.
    pub(crate) fn peek_ty(&self) -> Option<Ty> {
        let free = self.mods.iter().zip(&self.used).filter(|(_, used)| !**used);
        free.map(|(name, _)| *name).find_map(Ty::parse)
    }

    /// Takes the next type.
    pub(crate) fn ty(&mut self) -> Result<Ty, ParseError> {
        match self.pick(Ty::parse) {
            Some(ty) => Ok(ty),
            None => self.error("a type is missing"),
        }
    }

    /// Refuses what was not taken.
    pub(crate) fn finish(&self) -> Result<(), ParseError> {
        match self.used.iter().position(|used| !used) {
            Some(index) => {
                self.error(format!("modifier `.{}` is not known here", self.mods[index]))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn unsupported<T>(&self, ty: Ty) -> Result<T, ParseError> {
        self.error(format!("type {ty:?} is not known here"))
    }

    /// Refuses another number of operands.
    pub(crate) fn count(&self, counts: std::ops::RangeInclusive<usize>) -> Result<(), ParseError> {
        if counts.contains(&self.args.len()) {
            return Ok(());
        }
        self.error(format!("{} operands, expected {counts:?}", self.args.len()))
    }

    fn arg(&self, index: usize) -> Result<Arg<'a>, ParseError> {
        match self.args.get(index) {
            Some(arg) => Ok(arg.clone()),
            None => self.error(format!("operand {} is missing", index + 1)),
        }
    }

    pub(crate) fn constant(&mut self, value: u64) -> Src {
        Src::Const(self.body.constant(Constant::Value(value)))
    }

    pub(crate) fn symbol(&mut self, name: &'a str) -> Result<Symbol, ParseError> {
        match self.body.lookup(name) {
            Some(symbol) => Ok(symbol),
            None => self.error(format!("`{name}` is not defined")),
        }
    }

    /// A source operand of a type; registers must be as wide.
    pub(crate) fn src(&mut self, index: usize, ty: Ty) -> Result<Src, ParseError> {
        let arg = self.arg(index)?;
        self.value(&arg, ty, Width::Exact)
    }

    /// A source operand whose register may be wider than its type.
    pub(crate) fn wide_src(&mut self, index: usize, ty: Ty) -> Result<Src, ParseError> {
        let arg = self.arg(index)?;
        self.value(&arg, ty, Width::AtLeast)
    }

    /// The value of a written operand.
    pub(crate) fn value(&mut self, arg: &Arg<'a>, ty: Ty, width: Width) -> Result<Src, ParseError> {
        let value = match *arg {
            Arg::Word(name) => return self.named(name, ty, width),
            Arg::Int(value) if !matches!(ty, Ty::F32 | Ty::F64) => value & low_mask(ty.bits()),
            Arg::Single(bits) if ty.bits() == 32 => u64::from(bits),
            Arg::Single(bits) if ty == Ty::F64 => f64::from(f32::from_bits(bits)).to_bits(),
            Arg::Double(bits) if ty.bits() == 64 => bits,
            Arg::Double(bits) if ty == Ty::F32 => {
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            _ => return self.error(format!("{arg:?} is no operand of type {ty:?}")),
        };
        Ok(self.constant(value))
    }

    fn named(&mut self, name: &'a str, ty: Ty, width: Width) -> Result<Src, ParseError> {
        if let Some(what) = special::parse(name) {
            let dst = self.body.register();
            let (line, guard) = (self.line, self.guard);
            self.body.push(Op::Special { dst, what }, guard, Class::Move, line);
            return Ok(Src::Reg(dst));
        }
        let constant = match self.symbol(name)? {
            Symbol::Reg { reg, bits } => {
                self.check_width(name, bits, ty, width)?;
                return Ok(Src::Reg(reg));
            }
            Symbol::Pred(_) => return self.error(format!("`{name}` is a predicate")),
            Symbol::Param { offset } => Constant::Value(u64::from(offset)),
            Symbol::Address(value) => Constant::Value(value),
            Symbol::Dynamic => Constant::Dynamic,
            Symbol::Variable(index) => Constant::Variable(index),
        };
        Ok(Src::Const(self.body.constant(constant)))
    }

    fn check_width(&self, name: &str, bits: u32, ty: Ty, width: Width) -> Result<(), ParseError> {
        let fits = match width {
            Width::Exact => bits == ty.bits().max(16) || bits == ty.bits(),
            Width::AtLeast => bits >= ty.bits(),
        };
        if fits {
            return Ok(());
        }
        self.error(format!("`{name}` has {bits} bits, the operand {}", ty.bits()))
    }

    /// A destination register, as wide as the type.
    pub(crate) fn dst(&mut self, index: usize, ty: Ty) -> Result<Reg, ParseError> {
        Ok(self.wide_dst(index, ty, Width::Exact)?.0)
    }

    /// A destination register and its width.
    pub(crate) fn wide_dst(
        &mut self,
        index: usize,
        ty: Ty,
        width: Width,
    ) -> Result<(Reg, u32), ParseError> {
        let arg = self.arg(index)?;
        self.target(&arg, ty, width)
    }

    pub(crate) fn target(
        &mut self,
        arg: &Arg<'a>,
        ty: Ty,
        width: Width,
    ) -> Result<(Reg, u32), ParseError> {
        if let Arg::Word(name) = *arg
            && let Symbol::Reg { reg, bits } = self.symbol(name)?
        {
            self.check_width(name, bits, ty, width)?;
            return Ok((reg, bits));
        }
        self.error(format!("{arg:?} is no destination of type {ty:?}"))
    }

    /// A register, or `_` for none.
    pub(crate) fn dst_or_sink(
        &mut self,
        arg: &Arg<'a>,
        ty: Ty,
        width: Width,
    ) -> Result<Option<(Reg, u32)>, ParseError> {
        if *arg == Arg::Word("_") {
            return Ok(None);
        }
        self.target(arg, ty, width).map(Some)
    }

    /// The parts of an operand in braces, or the operand itself.
    pub(crate) fn parts(&self, index: usize) -> Result<Vec<Arg<'a>>, ParseError> {
        Ok(match self.arg(index)? {
            Arg::Vector(parts) => parts,
            arg => vec![arg],
        })
    }

    /// The registers of a vector operand, each as wide as the type.
    pub(crate) fn dsts(&mut self, index: usize, ty: Ty) -> Result<Vec<Reg>, ParseError> {
        let parts = self.parts(index)?;
        parts.iter().map(|arg| Ok(self.target(arg, ty, Width::Exact)?.0)).collect()
    }

    /// The sources of a vector operand.
    pub(crate) fn srcs(&mut self, index: usize, ty: Ty) -> Result<Vec<Src>, ParseError> {
        let parts = self.parts(index)?;
        parts.iter().map(|arg| self.value(arg, ty, Width::Exact)).collect()
    }

    pub(crate) fn pred_named(&mut self, name: &'a str) -> Result<Pred, ParseError> {
        match self.symbol(name)? {
            Symbol::Pred(pred) => Ok(pred),
            _ => self.error(format!("`{name}` is no predicate")),
        }
    }

    /// Whether a name is that of a predicate.
    pub(crate) fn is_predicate(&mut self, name: &'a str) -> bool {
        matches!(self.body.lookup(name), Some(Symbol::Pred(_)))
    }

    /// A destination predicate.
    pub(crate) fn pred(&mut self, index: usize) -> Result<Pred, ParseError> {
        match self.arg(index)? {
            Arg::Word(name) => self.pred_named(name),
            other => self.error(format!("{other:?} is no predicate")),
        }
    }

    /// Destination predicates `p|q`, either of which may be `_`.
    pub(crate) fn pred_pair(&mut self, index: usize) -> Result<[Option<Pred>; 2], ParseError> {
        let arg = self.args.get(index).cloned();
        let mut one = |name: &'a str| match name {
            "_" => Ok(None),
            name => self.pred_named(name).map(Some),
        };
        match arg {
            Some(Arg::Word(name)) => Ok([one(name)?, None]),
            Some(Arg::Both(p, q)) => Ok([one(p)?, one(q)?]),
            other => self.error(format!("{other:?} is no predicate")),
        }
    }

    /// A source predicate, perhaps negated.
    pub(crate) fn condition(&mut self, index: usize) -> Result<Condition, ParseError> {
        match self.arg(index)? {
            Arg::Word(name) => Ok(Condition::Pred { pred: self.pred_named(name)?, negated: false }),
            Arg::Not(name) => Ok(Condition::Pred { pred: self.pred_named(name)?, negated: true }),
            Arg::Int(value) => Ok(Condition::Const(value != 0)),
            other => self.error(format!("{other:?} is no predicate")),
        }
    }

    /// An address operand.
    pub(crate) fn address(&mut self, index: usize) -> Result<Address, ParseError> {
        let (address, coordinates) = self.tensor(index)?;
        if !coordinates.is_empty() {
            return self.error("coordinates are not known here");
        }
        Ok(address)
    }

    /// An address operand with coordinates in a tensor.
    pub(crate) fn tensor(&mut self, index: usize) -> Result<(Address, Vec<Src>), ParseError> {
        let Arg::Address { base, offset, coordinates } = self.arg(index)? else {
            return self.error(format!("operand {} is no address", index + 1));
        };
        let coordinates = match coordinates.as_slice() {
            [Arg::Vector(parts)] => parts.clone(),
            _ => coordinates,
        };
        let coordinates: Result<Vec<Src>, ParseError> =
            coordinates.iter().map(|arg| self.value(arg, Ty::Signed(32), Width::Exact)).collect();
        let base = match *base {
            Arg::Word(name) => {
                let ty = match self.symbol(name)? {
                    Symbol::Reg { bits, .. } => Ty::Bits(bits),
                    _ => Ty::Bits(64),
                };
                self.named(name, ty, Width::Exact)?
            }
            ref other => self.value(other, Ty::Bits(64), Width::Exact)?,
        };
        Ok((Address { base, offset }, coordinates?))
    }

    pub(crate) fn special(&mut self, index: usize) -> Option<Special> {
        match self.args.get(index) {
            Some(Arg::Word(name)) => special::parse(name),
            _ => None,
        }
    }
}

/// How wide a register must be for an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Exact,
    AtLeast,
}
