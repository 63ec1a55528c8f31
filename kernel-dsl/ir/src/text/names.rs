//! Names of ops in the text form and in messages.

use crate::op::{Atomic, Binary, Cmp, Combine, OpKind, Unary};

pub(super) const UNARY: &[(Unary, &str)] = &[
    (Unary::Neg, "neg"),
    (Unary::Abs, "abs"),
    (Unary::Exp, "exp"),
    (Unary::Exp2, "exp2"),
    (Unary::Ln, "ln"),
    (Unary::Log2, "log2"),
    (Unary::Sin, "sin"),
    (Unary::Cos, "cos"),
    (Unary::Sqrt, "sqrt"),
    (Unary::Rsqrt, "rsqrt"),
    (Unary::Recip, "recip"),
    (Unary::Floor, "floor"),
    (Unary::Round, "round"),
    (Unary::Not, "not"),
    (Unary::IsNan, "is_nan"),
];

pub(super) const BINARY: &[(Binary, &str)] = &[
    (Binary::Add, "add"),
    (Binary::Sub, "sub"),
    (Binary::Mul, "mul"),
    (Binary::Div, "div"),
    (Binary::Rem, "rem"),
    (Binary::Min, "min"),
    (Binary::Max, "max"),
    (Binary::And, "and"),
    (Binary::Or, "or"),
    (Binary::Xor, "xor"),
    (Binary::Shl, "shl"),
    (Binary::Shr, "shr"),
];

pub(super) const CMP: &[(Cmp, &str)] = &[
    (Cmp::Eq, "eq"),
    (Cmp::Ne, "ne"),
    (Cmp::Lt, "lt"),
    (Cmp::Le, "le"),
    (Cmp::Gt, "gt"),
    (Cmp::Ge, "ge"),
];

pub(super) const COMBINE: &[(Combine, &str)] = &[
    (Combine::Sum, "sum"),
    (Combine::Min, "min"),
    (Combine::Max, "max"),
    (Combine::And, "and"),
    (Combine::Or, "or"),
    (Combine::Xor, "xor"),
];

pub(super) const ATOMIC: &[(Atomic, &str)] =
    &[(Atomic::Add, "add"), (Atomic::Min, "min"), (Atomic::Max, "max"), (Atomic::Or, "or")];

pub(super) fn name_of<T: Copy + PartialEq>(table: &[(T, &'static str)], op: T) -> &'static str {
    table.iter().find(|(known, _)| *known == op).map_or("?", |(_, name)| name)
}

pub(super) fn by_name<T: Copy>(table: &[(T, &'static str)], name: &str) -> Option<T> {
    table.iter().find(|(_, known)| *known == name).map(|(op, _)| *op)
}

impl OpKind {
    /// The word that stands for the op in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ProgramId(_) => "program_id",
            Self::Dim(_) => "dim",
            Self::Scalar(_) => "scalar",
            Self::Const(_) => "const",
            Self::Iota(_) => "iota",
            Self::Broadcast => "broadcast",
            Self::Reshape => "reshape",
            Self::Transpose => "transpose",
            Self::Slice { .. } => "slice",
            Self::Concat(_) => "concat",
            Self::Load(_) => "load",
            Self::Store(_) => "store",
            Self::LoadUntil(_) => "load_until",
            Self::StoreUntil(_) => "store_until",
            Self::LoadRows(_) => "load_rows",
            Self::StoreRows(_) => "store_rows",
            Self::Gather(_) => "gather",
            Self::Scatter(_) => "scatter",
            Self::Atomic(..) => "atomic",
            Self::Unary(op) => name_of(UNARY, *op),
            Self::Binary(op) => name_of(BINARY, *op),
            Self::Cmp(op) => name_of(CMP, *op),
            Self::Select => "select",
            Self::Fma => "fma",
            Self::Cast(_) => "cast",
            Self::Bitcast(_) => "bitcast",
            Self::Reduce { .. } => "reduce",
            Self::ArgMax(_) => "argmax",
            Self::Scan { .. } => "scan",
            Self::Decode => "decode",
            Self::Encode(_) => "encode",
            Self::Dot => "dot",
            Self::Quantize(_) => "quantize",
            Self::DotScaled => "dot_scaled",
            Self::For { .. } => "for",
            Self::If => "if",
            Self::Yield => "yield",
            Self::Assert(_) => "assert",
            Self::Print(_) => "print",
        }
    }
}
