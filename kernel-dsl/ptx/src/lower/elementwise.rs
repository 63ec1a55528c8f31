//! Ops that compute each element from elements at the same place.

use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use crate::layout::Layout;
use tessera_tile_ir::op::{Binary, Cmp, OpKind, Unary};
use tessera_tile_ir::{Elem, Op};

impl Lower<'_> {
    /// The registers of an elementwise op in a layout.
    pub(crate) fn elementwise(&mut self, op: &Op, want: &Layout) -> Vec<Reg> {
        let operands: Vec<Held> =
            op.operands.iter().map(|operand| self.get(*operand, want)).collect();
        let elem = self.elem(op.operands[0]);
        let result = self.elem(op.results[0]);
        if let Elem::Stored(_) = result {
            return self.select_codes(&operands, result, want);
        }
        let mut done: Vec<Reg> = Vec::with_capacity(want.num_regs());
        for reg in 0..want.num_regs() {
            // Registers that hold the same are computed once.
            let same =
                |other: &usize| operands.iter().all(|held| held.regs[*other] == held.regs[reg]);
            if let Some(other) = (0..reg).find(same) {
                done.push(done[other]);
                continue;
            }
            let x: Vec<Reg> = operands.iter().map(|held| held.regs[reg]).collect();
            let result = self.element(op, elem, &x);
            done.push(result);
        }
        done
    }

    fn element(&mut self, op: &Op, elem: Elem, x: &[Reg]) -> Reg {
        let result = self.elem(op.results[0]);
        match &op.kind {
            OpKind::Unary(unary) => self.unary(*unary, elem, x[0]),
            OpKind::Binary(binary) => self.binary(*binary, elem, x[0], x[1]),
            OpKind::Cmp(cmp) => self.compare(*cmp, elem, x[0], x[1]),
            OpKind::Select => self.choose(result, x[0], x[1], x[2]),
            OpKind::Fma => {
                let sources = [x[0].into(), x[1].into(), x[2].into()];
                self.code.op(Class::B32, "fma.rn.f32", sources)
            }
            OpKind::Cast(to) => self.cast(elem, *to, x[0]),
            // The same bits in a register of the same width.
            OpKind::Bitcast(_) => x[0],
            _ => unreachable!("only elementwise ops are asked for"),
        }
    }

    fn select_codes(&mut self, operands: &[Held], elem: Elem, want: &Layout) -> Vec<Reg> {
        let [yes, no] = [1, 2].map(|i| self.unpacked(elem, &operands[i]));
        let both = yes.into_iter().zip(no);
        let chosen: Vec<Reg> = operands[0]
            .regs
            .iter()
            .zip(both)
            .map(|(condition, (yes, no))| self.choose(elem, *condition, yes, no))
            .collect();
        self.packed(elem, &chosen, Self::pack(elem, want))
    }

    /// `yes` where the condition holds, else `no`.
    pub(crate) fn choose(&mut self, elem: Elem, condition: Reg, yes: Reg, no: Reg) -> Reg {
        if yes == no {
            return yes;
        }
        let sources = [yes.into(), no.into(), condition.into()];
        match Self::class(elem) {
            Class::Pred => {
                let a = self.both(condition, yes);
                let not = self.not(condition);
                let b = self.both(not, no);
                self.code.op(Class::Pred, "or.pred", [a.into(), b.into()])
            }
            Class::B64 => self.code.op(Class::B64, "selp.b64", sources),
            class => self.code.op(class, "selp.b32", sources),
        }
    }

    pub(crate) fn not(&mut self, condition: Reg) -> Reg {
        self.code.op(Class::Pred, "not.pred", [condition.into()])
    }

    fn unary(&mut self, op: Unary, elem: Elem, x: Reg) -> Reg {
        let class = Self::class(elem);
        let ty = signed(elem);
        match (op, elem) {
            (Unary::Not, Elem::Bool) => self.not(x),
            (Unary::Not, _) => self.code.op(class, format!("not.b{}", width(elem)), [x.into()]),
            (Unary::Neg, Elem::F32) => self.code.op(class, "neg.f32", [x.into()]),
            (Unary::Abs, Elem::F32) => self.code.op(class, "abs.f32", [x.into()]),
            (Unary::Neg, Elem::U32 | Elem::U64) => {
                let op = format!("sub.{ty}");
                self.code.op(class, op, [Operand::Int(0), x.into()])
            }
            (Unary::Abs, Elem::U32 | Elem::U64) => x,
            (Unary::Neg, _) => self.code.op(class, format!("neg.{ty}"), [x.into()]),
            (Unary::Abs, _) => self.code.op(class, format!("abs.{ty}"), [x.into()]),
            (Unary::IsNan, _) => self.code.op(Class::Pred, "testp.notanumber.f32", [x.into()]),
            (Unary::Exp, _) => self.exp(x),
            (Unary::Exp2, _) => self.exp2(x),
            (Unary::Ln, _) => self.ln(x),
            (Unary::Log2, _) => self.log2(x),
            (Unary::Sin, _) => self.sin(x),
            (Unary::Cos, _) => self.cos(x),
            (Unary::Sqrt, _) => self.code.op(class, "sqrt.rn.f32", [x.into()]),
            (Unary::Rsqrt, _) => {
                let root = self.code.op(class, "sqrt.rn.f32", [x.into()]);
                self.code.op(class, "rcp.rn.f32", [root.into()])
            }
            (Unary::Recip, _) => self.code.op(class, "rcp.rn.f32", [x.into()]),
            (Unary::Floor, _) => self.code.op(class, "cvt.rmi.f32.f32", [x.into()]),
            (Unary::Round, _) => self.code.op(class, "cvt.rni.f32.f32", [x.into()]),
        }
    }

    pub(crate) fn binary(&mut self, op: Binary, elem: Elem, a: Reg, b: Reg) -> Reg {
        let class = Self::class(elem);
        let ty = signed(elem);
        let sources = [a.into(), b.into()];
        match (op, elem) {
            (Binary::And, Elem::Bool) => self.both(a, b),
            (Binary::Or, Elem::Bool) => self.code.op(class, "or.pred", sources),
            (Binary::Xor, Elem::Bool) => self.code.op(class, "xor.pred", sources),
            (Binary::And, _) => self.code.op(class, format!("and.b{}", width(elem)), sources),
            (Binary::Or, _) => self.code.op(class, format!("or.b{}", width(elem)), sources),
            (Binary::Xor, _) => self.code.op(class, format!("xor.b{}", width(elem)), sources),
            (Binary::Add, Elem::F32) => self.code.op(class, "add.rn.f32", sources),
            (Binary::Sub, Elem::F32) => self.code.op(class, "sub.rn.f32", sources),
            (Binary::Mul, Elem::F32) => self.code.op(class, "mul.rn.f32", sources),
            (Binary::Div, Elem::F32) => self.code.op(class, "div.rn.f32", sources),
            (Binary::Min, Elem::F32) => self.code.op(class, "min.NaN.f32", sources),
            (Binary::Max, Elem::F32) => self.code.op(class, "max.NaN.f32", sources),
            (Binary::Add, _) => self.code.op(class, format!("add.{ty}"), sources),
            (Binary::Sub, _) => self.code.op(class, format!("sub.{ty}"), sources),
            (Binary::Mul, _) => self.code.op(class, format!("mul.lo.{ty}"), sources),
            (Binary::Min, _) => self.code.op(class, format!("min.{ty}"), sources),
            (Binary::Max, _) => self.code.op(class, format!("max.{ty}"), sources),
            (Binary::Div | Binary::Rem, _) => self.divide(op, elem, a, b),
            (Binary::Shl | Binary::Shr, _) => self.shift(op, elem, a, b),
        }
    }

    /// By zero gives zero.
    fn divide(&mut self, op: Binary, elem: Elem, a: Reg, b: Reg) -> Reg {
        let class = Self::class(elem);
        let ty = signed(elem);
        let name = if op == Binary::Div { "div" } else { "rem" };
        let test = [b.into(), 0.into()];
        let by_zero = self.code.op(Class::Pred, format!("setp.eq.{ty}"), test);
        let bits = width(elem);
        let selp = format!("selp.b{bits}");
        let divisor = self.code.op(class, selp.clone(), [1.into(), b.into(), by_zero.into()]);
        let result = match elem {
            Elem::I64 => self.divide_i64(name, a, divisor),
            _ => self.code.op(class, format!("{name}.{ty}"), [a.into(), divisor.into()]),
        };
        self.code.op(class, selp, [0.into(), result.into(), by_zero.into()])
    }

    /// Indices are small and rarely negative: 32 bits do where both sides fit, for a tenth of
    /// the instructions.
    fn divide_i64(&mut self, name: &str, a: Reg, b: Reg) -> Reg {
        let result = self.code.reg(Class::B64);
        let either = self.code.op(Class::B64, "or.b64", [a.into(), b.into()]);
        let limit = Operand::Int(0xffff_ffff);
        let fits = self.code.op(Class::Pred, "setp.le.u64", [either.into(), limit]);
        self.code.begin();
        let [short_a, short_b] =
            [a, b].map(|side| self.code.op(Class::B32, "cvt.u32.u64", [side.into()]));
        let short =
            self.code.op(Class::B32, format!("{name}.u32"), [short_a.into(), short_b.into()]);
        self.code.push("cvt.u64.u32", vec![result.into(), short.into()]);
        let yes = self.code.close();
        self.code.begin();
        self.code.push(format!("{name}.s64"), vec![result.into(), a.into(), b.into()]);
        let no = self.code.close();
        self.code.node(crate::code::Node::If { condition: fits, yes, no, together: false });
        result
    }

    /// A distance of the width or more, or below zero, shifts everything out.
    fn shift(&mut self, op: Binary, elem: Elem, a: Reg, b: Reg) -> Reg {
        let class = Self::class(elem);
        let bits = width(elem);
        // PTX takes the distance as 32 bits without a sign and clamps it.
        let distance = if class == Class::B64 {
            let limit = [b.into(), 64.into()];
            let clamped = self.code.op(Class::B64, "min.u64", limit);
            self.code.op(Class::B32, "cvt.u32.u64", [clamped.into()])
        } else {
            b
        };
        let name = match op {
            Binary::Shl => format!("shl.b{bits}"),
            _ => format!("shr.{}", signed(elem)),
        };
        self.code.op(class, name, [a.into(), distance.into()])
    }

    pub(crate) fn compare(&mut self, op: Cmp, elem: Elem, a: Reg, b: Reg) -> Reg {
        if elem == Elem::Bool {
            let differ = self.code.op(Class::Pred, "xor.pred", [a.into(), b.into()]);
            return if op == Cmp::Ne { differ } else { self.not(differ) };
        }
        let name = match op {
            Cmp::Eq => "eq",
            Cmp::Ne if elem == Elem::F32 => "neu",
            Cmp::Ne => "ne",
            Cmp::Lt => "lt",
            Cmp::Le => "le",
            Cmp::Gt => "gt",
            Cmp::Ge => "ge",
        };
        let ty = signed(elem);
        self.code.op(Class::Pred, format!("setp.{name}.{ty}"), [a.into(), b.into()])
    }

    fn cast(&mut self, from: Elem, to: Elem, x: Reg) -> Reg {
        let class = Self::class(to);
        let (source, target) = (signed(from), signed(to));
        match (from, to) {
            (Elem::F32, Elem::F32) => x,
            (_, Elem::F32) => self.code.op(class, format!("cvt.rn.f32.{source}"), [x.into()]),
            (Elem::F32, _) => {
                let number = self.code.op(class, format!("cvt.rzi.{target}.f32"), [x.into()]);
                let nan = self.code.op(Class::Pred, "testp.notanumber.f32", [x.into()]);
                let selp = format!("selp.b{}", width(to));
                self.code.op(class, selp, [0.into(), number.into(), nan.into()])
            }
            _ if Self::class(from) == class => x,
            _ if class == Class::B64 => {
                self.code.op(class, format!("cvt.{target}.{source}"), [x.into()])
            }
            _ => self.code.op(class, "cvt.u32.u64", [x.into()]),
        }
    }
}

/// PTX's type of an element, as arithmetic wants it.
pub(crate) const fn signed(elem: Elem) -> &'static str {
    match elem {
        Elem::F32 => "f32",
        Elem::I32 => "s32",
        Elem::I64 => "s64",
        Elem::U64 => "u64",
        Elem::Bool => "pred",
        Elem::U32 | Elem::Stored(_) | Elem::Packed(_) => "u32",
    }
}

pub(crate) const fn width(elem: Elem) -> usize {
    match elem {
        Elem::I64 | Elem::U64 => 64,
        _ => 32,
    }
}
