//! A kernel: its parameters, its grid and its body, in arenas.

use crate::error::Loc;
use crate::op::OpKind;
use crate::types::{Elem, Type};

/// Handle of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// Handle of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// An op in the arena.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// What it reads.
    pub operands: Vec<Value>,
    /// What it makes.
    pub results: Vec<Value>,
    /// Bodies of loops and branches.
    pub regions: Vec<Region>,
    /// Who wrote it.
    pub loc: Loc,
}

impl Op {
    /// The window that the op loads or stores, if it does.
    pub fn window(&self) -> Option<Window<'_>> {
        let (param, at, end) = match (&self.kind, self.operands.as_slice()) {
            (OpKind::Load(param), at) | (OpKind::Store(param), [at @ .., _]) => (*param, at, None),
            (OpKind::LoadUntil(param), [at @ .., end])
            | (OpKind::StoreUntil(param), [at @ .., end, _]) => (*param, at, Some(*end)),
            _ => return None,
        };
        Some(Window { param, at, end })
    }
}

/// A window of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window<'a> {
    /// The view, by its index in the kernel's params.
    pub param: usize,
    /// Where the window starts, one index an axis.
    pub at: &'a [Value],
    /// Where the view's first axis ends for this op, if that is before its extent.
    pub end: Option<Value>,
}

/// Ops in order, the last one a [`OpKind::Yield`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Region {
    /// Values the region is entered with.
    pub args: Vec<Value>,
    /// Its ops.
    pub ops: Vec<OpId>,
}

/// Type and origin of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
    /// Who made it.
    pub loc: Loc,
}

/// What a kernel may do with a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `In`.
    Read,
    /// `Out`.
    Write,
    /// `InOut`.
    ReadWrite,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// The author's name for it.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
    /// Where it is declared.
    pub loc: Loc,
}

/// What a parameter is.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamKind {
    /// A bounded strided view of an array; the last axis is contiguous.
    View {
        /// Element.
        elem: Elem,
        /// Direction.
        access: Access,
        /// One extent an axis, as the author wrote it: a sum of dims (by index) and a constant.
        dims: Vec<Extent>,
    },
    /// A number.
    Scalar(Elem),
}

/// `constant + dims`: what an axis of a view must measure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the two parts of a sum")]
pub struct Extent {
    pub dims: Vec<usize>,
    pub constant: usize,
}

/// A kernel, built for one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Name of the function.
    pub name: String,
    /// Formats it was built for, in the order of its type parameters.
    pub formats: Vec<String>,
    /// Tuning constants it was built with, in the order declared.
    pub consts: Vec<(String, usize)>,
    /// Names of its launch extents.
    pub dims: Vec<String>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Number of programs along each axis: reads dims only, yields `i64` scalars.
    pub grid: Region,
    /// What one program does.
    pub body: Region,
    /// Every op.
    pub ops: Vec<Op>,
    /// Every value.
    pub values: Vec<ValueInfo>,
    /// Where the kernel is declared.
    pub loc: Loc,
}

impl Kernel {
    /// The op behind a handle.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0 as usize]
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.0 as usize].ty
    }

    /// `name<formats>[consts]`, unique among variants: `w_gemm<int4-g32>[BM=4, BN=32]`.
    pub fn label(&self) -> String {
        let mut label = self.name.clone();
        if !self.formats.is_empty() {
            label += &format!("<{}>", self.formats.join(", "));
        }
        if !self.consts.is_empty() {
            let consts: Vec<_> = self.consts.iter().map(|(n, v)| format!("{n}={v}")).collect();
            label += &format!("[{}]", consts.join(", "));
        }
        label
    }
}
