//! What a host computes before a launch: the grid, and whether a variant fits. Expressions over
//! the launch's extents, small enough to travel in a manifest.

use serde::{Deserialize, Serialize};
use tessera_tile_ir::op::{Binary, Cmp, Literal, OpKind};
use tessera_tile_ir::{Kernel, Op, Value};

/// A number made of a launch's extents. Truths are 0 and 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// A constant.
    Const(i64),
    /// A named extent, by its index in the manifest's `dims`.
    Dim(usize),
    /// Two numbers combined.
    Op(ExprOp, Box<[Expr; 2]>),
}

/// How two numbers combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named after what they compute")]
pub enum ExprOp {
    Add,
    Sub,
    Mul,
    /// Towards zero; by zero gives zero.
    Div,
    /// With the sign of the left; by zero gives zero.
    Rem,
    Min,
    Max,
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Expr {
    /// The number for these extents.
    ///
    /// # Panics
    /// If there are fewer extents than the expression names.
    pub fn value(&self, dims: &[i64]) -> i64 {
        match self {
            Self::Const(value) => *value,
            Self::Dim(dim) => dims[*dim],
            Self::Op(op, sides) => op.apply(sides[0].value(dims), sides[1].value(dims)),
        }
    }

    /// The expression behind a scalar of a kernel, if it reads nothing but extents.
    pub(crate) fn of(kernel: &Kernel, value: Value) -> Option<Self> {
        let op = kernel.ops.iter().find(|op| op.results.contains(&value))?;
        if !kernel.ty(value).shape.is_empty() {
            return None;
        }
        Self::of_op(kernel, op)
    }

    fn of_op(kernel: &Kernel, op: &Op) -> Option<Self> {
        let two = |how| {
            let sides = [Self::of(kernel, op.operands[0])?, Self::of(kernel, op.operands[1])?];
            Some(Self::Op(how, Box::new(sides)))
        };
        match &op.kind {
            OpKind::Const(Literal::Int(value)) => Some(Self::Const(*value)),
            OpKind::Const(Literal::Bool(value)) => Some(Self::Const(i64::from(*value))),
            OpKind::Dim(dim) => Some(Self::Dim(*dim)),
            OpKind::Binary(binary) => two(match binary {
                Binary::Add => ExprOp::Add,
                Binary::Sub => ExprOp::Sub,
                Binary::Mul => ExprOp::Mul,
                Binary::Div => ExprOp::Div,
                Binary::Rem => ExprOp::Rem,
                Binary::Min => ExprOp::Min,
                Binary::Max => ExprOp::Max,
                Binary::And => ExprOp::And,
                Binary::Or => ExprOp::Or,
                Binary::Xor | Binary::Shl | Binary::Shr => return None,
            }),
            OpKind::Cmp(cmp) => two(match cmp {
                Cmp::Eq => ExprOp::Eq,
                Cmp::Ne => ExprOp::Ne,
                Cmp::Lt => ExprOp::Lt,
                Cmp::Le => ExprOp::Le,
                Cmp::Gt => ExprOp::Gt,
                Cmp::Ge => ExprOp::Ge,
            }),
            _ => None,
        }
    }
}

impl ExprOp {
    fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => a.checked_div(b).unwrap_or(0),
            Self::Rem => a.checked_rem(b).unwrap_or(0),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Eq => i64::from(a == b),
            Self::Ne => i64::from(a != b),
            Self::Lt => i64::from(a < b),
            Self::Le => i64::from(a <= b),
            Self::Gt => i64::from(a > b),
            Self::Ge => i64::from(a >= b),
        }
    }
}
