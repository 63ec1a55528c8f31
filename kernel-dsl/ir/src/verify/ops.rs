//! The rule of each op: what it takes and gives.

use super::{Checker, Wrong};
use crate::format::{Format, ScaleTile, WHOLE};
use crate::kernel::{Op, ParamKind, Value};
use crate::op::{Binary, Cmp, Combine, Literal, OpKind, Unary};
use crate::types::{Elem, Type};

impl Checker<'_> {
    /// Checks one op whose operands and regions are sound.
    pub(super) fn rule(&self, op: &Op, yields: &[&[Value]]) -> Result<(), Wrong> {
        let ty = |value: &Value| self.kernel.ty(*value);
        let x: Vec<&Type> = op.operands.iter().map(ty).collect();
        let out: Vec<&Type> = op.results.iter().map(ty).collect();
        match &op.kind {
            OpKind::For { step } => return self.repeat(op, *step, yields),
            OpKind::If => return self.branch(op, yields),
            _ if !op.regions.is_empty() => {
                return Err(("K010", format!("`{}` has no regions", op.kind.name())));
            }
            _ => {}
        }
        if let Some(wrong) = packed_misuse(&op.kind, &x) {
            return Err(wrong);
        }
        if let Some(access) = self.access(op, &x, &out) {
            return access;
        }
        self.index(&op.kind)?;
        let fits = match out.as_slice() {
            [] => effect(&op.kind, &x),
            [out] => moves(&op.kind, &x, out).or_else(|| computes(&op.kind, &x, out)),
            _ => None,
        };
        if fits != Some(true) {
            return Err(mismatch(&op.kind, &x, &out));
        }
        match &op.kind {
            OpKind::Const(literal) => constant(*literal, out[0].elem),
            OpKind::Quantize(format) => quantize(format, x[0]),
            OpKind::DotScaled => nested_groups(x[0], x[1]),
            _ => Ok(()),
        }
    }

    /// Indices of dims, scalars and grid axes.
    fn index(&self, kind: &OpKind) -> Result<(), Wrong> {
        let kernel = self.kernel;
        match *kind {
            OpKind::ProgramId(axis) if axis >= self.grid_axes => {
                Err(("K013", format!("the grid has {} axes, no axis {axis}", self.grid_axes)))
            }
            OpKind::Dim(dim) if dim >= kernel.dims.len() => {
                Err(("K013", format!("there is no dim {dim}")))
            }
            OpKind::Scalar(param) => match kernel.params.get(param).map(|param| &param.kind) {
                Some(ParamKind::Scalar(_)) => Ok(()),
                _ => Err(("K013", format!("parameter {param} is no scalar"))),
            },
            _ => Ok(()),
        }
    }

    fn repeat(&self, op: &Op, step: usize, yields: &[&[Value]]) -> Result<(), Wrong> {
        let (Some(region), [yielded]) = (op.regions.first(), yields) else {
            return Err(("K010", "a loop has one region".to_owned()));
        };
        if step == 0 {
            return Err(("K011", "a loop with a step of 0 never ends".to_owned()));
        }
        let types = |values: &[Value]| -> Vec<Type> {
            values.iter().map(|&value| self.kernel.ty(value).clone()).collect()
        };
        let (operands, args) = (types(&op.operands), types(&region.args));
        let bound = Type::scalar(Elem::I64);
        let ([start, end, carried @ ..], [index, inside @ ..]) =
            (operands.as_slice(), args.as_slice())
        else {
            return Err(("K010", "a loop has two bounds, and its region an index".to_owned()));
        };
        if [start, end, index].iter().any(|ty| **ty != bound) {
            return Err(("K011", "the bounds and the index of a loop are i64".to_owned()));
        }
        let (yielded, results) = (types(yielded), types(&op.results));
        if [inside, yielded.as_slice(), results.as_slice()].iter().any(|tys| *tys != carried) {
            let message = format!(
                "a loop carries ({}), enters with ({}), yields ({}) and gives ({})",
                list(carried),
                list(inside),
                list(&yielded),
                list(&results)
            );
            return Err(("K011", message));
        }
        Ok(())
    }

    fn branch(&self, op: &Op, yields: &[&[Value]]) -> Result<(), Wrong> {
        let types = |values: &[Value]| -> Vec<&Type> {
            values.iter().map(|&value| self.kernel.ty(value)).collect()
        };
        let [yes, no] = yields else {
            return Err(("K010", "a branch has two regions".to_owned()));
        };
        if op.regions.iter().any(|region| !region.args.is_empty()) {
            return Err(("K010", "the regions of a branch have no arguments".to_owned()));
        }
        match types(&op.operands).as_slice() {
            [condition] if condition.elem == Elem::Bool && condition.len() == 1 => {}
            other => {
                return Err(("K011", format!("a branch takes one truth, not ({})", list(other))));
            }
        }
        let (yes, no, results) = (types(yes), types(no), types(&op.results));
        if yes != no || yes != results {
            let (yes, no, results) = (list(&yes), list(&no), list(&results));
            let message = format!("a branch yields ({yes}) or ({no}) and gives ({results})");
            return Err(("K011", message));
        }
        Ok(())
    }
}

/// Codes and their scales stay together until they are decoded.
fn packed_misuse(kind: &OpKind, x: &[&Type]) -> Option<Wrong> {
    let packed = x.iter().find(|ty| matches!(ty.elem, Elem::Packed(_)))?;
    let allowed = matches!(kind, OpKind::Decode | OpKind::DotScaled | OpKind::Print(_));
    (!allowed).then(|| ("K017", format!("`{}` of {packed}: decode it first", kind.name())))
}

pub(super) fn mismatch(kind: &OpKind, x: &[&Type], out: &[&Type]) -> Wrong {
    let takes = takes(kind);
    let gives = if out.is_empty() { "nothing".to_owned() } else { list(out) };
    let message =
        format!("`{}` takes {takes}; this takes ({}), gives {gives}", kind.name(), list(x));
    ("K011", message)
}

/// What an op takes, for messages.
fn takes(kind: &OpKind) -> &'static str {
    match kind {
        OpKind::ProgramId(_) | OpKind::Dim(_) | OpKind::Iota(_) => "nothing and gives i64",
        OpKind::Scalar(_) | OpKind::Const(_) => "nothing and gives a scalar",
        OpKind::Broadcast => "a tile whose extents are 1, missing or those of the result",
        OpKind::Reshape => "a tile of as many elements as the result",
        OpKind::Transpose => "a tile of rank 2 and swaps its extents",
        OpKind::Slice { .. } => "a tile that has that range",
        OpKind::Concat(_) => "two tiles that differ along that axis only",
        OpKind::Unary(Unary::Neg | Unary::Abs) => "numbers",
        OpKind::Unary(Unary::Not) => "integers or truths",
        OpKind::Binary(Binary::And | Binary::Or | Binary::Xor) => {
            "two tiles of integers or truths of one type"
        }
        OpKind::Binary(Binary::Rem | Binary::Shl | Binary::Shr) => {
            "two tiles of integers of one type"
        }
        OpKind::Binary(_) | OpKind::Cmp(_) => "two tiles of numbers of one type",
        OpKind::Unary(_) | OpKind::Encode(_) | OpKind::Quantize(_) => "f32 and keeps the shape",
        OpKind::Select => "truths and two tiles of one type, all of one shape",
        OpKind::Fma => "three f32 tiles of one shape",
        OpKind::Cast(_) => "numbers",
        OpKind::Bitcast(_) => "numbers of the same width",
        OpKind::Reduce { .. } | OpKind::Scan { .. } => {
            "numbers (or truths, to combine bits) along an axis it has"
        }
        OpKind::ArgMax(_) => "numbers along an axis it has, and gives i64",
        OpKind::Decode => "codes and gives f32",
        OpKind::Dot => "f32 of [m, k], [k, n] and [m, n]",
        OpKind::DotScaled => "packed [m, k], packed [n, k] and f32 [m, n]",
        OpKind::Assert(_) => "truths",
        _ => "other types",
    }
}

/// Ops without a result.
fn effect(kind: &OpKind, x: &[&Type]) -> Option<bool> {
    match (kind, x) {
        (OpKind::Assert(_), [condition]) => Some(condition.elem == Elem::Bool),
        (OpKind::Print(_), [_]) => Some(true),
        _ => None,
    }
}

/// Ops that make or move elements; `None` for another op.
fn moves(kind: &OpKind, x: &[&Type], out: &Type) -> Option<bool> {
    let i64s = |shape: &[usize]| *out == Type::tile(Elem::I64, shape);
    Some(match (kind, x) {
        (OpKind::ProgramId(_) | OpKind::Dim(_), []) => i64s(&[]),
        (OpKind::Scalar(_) | OpKind::Const(_), []) => out.shape.is_empty(),
        (OpKind::Iota(n), []) => i64s(&[*n]),
        (OpKind::Broadcast, [x]) => x.elem == out.elem && broadcasts(&x.shape, &out.shape),
        (OpKind::Reshape, [x]) => x.elem == out.elem && x.len() == out.len(),
        (OpKind::Transpose, [x]) => {
            let swapped: Vec<usize> = x.shape.iter().rev().copied().collect();
            x.elem == out.elem && x.shape.len() == 2 && swapped == out.shape
        }
        (OpKind::Slice { axis, start }, [x]) => {
            let end = out.shape.get(*axis).and_then(|extent| start.checked_add(*extent));
            x.elem == out.elem
                && differs_only_along(*axis, &x.shape, &out.shape)
                && end.is_some_and(|end| end <= x.shape[*axis])
        }
        (OpKind::Concat(axis), [a, b]) => {
            a.elem == b.elem
                && a.elem == out.elem
                && differs_only_along(*axis, &a.shape, &b.shape)
                && differs_only_along(*axis, &a.shape, &out.shape)
                && a.shape[*axis] + b.shape[*axis] == out.shape[*axis]
        }
        (OpKind::Select, [condition, yes, no]) => {
            condition.elem == Elem::Bool
                && condition.shape == out.shape
                && *yes == out
                && *no == out
        }
        _ => return None,
    })
}

/// Ops that compute; `None` for another op.
fn computes(kind: &OpKind, x: &[&Type], out: &Type) -> Option<bool> {
    let same = |ty: &Type| ty == out;
    let bits = |elem: Elem| elem.is_int() || elem == Elem::Bool;
    Some(match (kind, x) {
        (OpKind::Unary(op), [x]) => {
            let takes = match op {
                Unary::Neg | Unary::Abs => x.elem.is_arith(),
                Unary::Not => bits(x.elem),
                _ => x.elem == Elem::F32,
            };
            let gives = if *op == Unary::IsNan { Elem::Bool } else { x.elem };
            takes && out.elem == gives && x.shape == out.shape
        }
        (OpKind::Binary(op), [a, b]) => {
            let takes = match op {
                Binary::And | Binary::Or | Binary::Xor => bits(a.elem),
                Binary::Rem | Binary::Shl | Binary::Shr => a.elem.is_int(),
                _ => a.elem.is_arith(),
            };
            takes && same(a) && same(b)
        }
        (OpKind::Cmp(op), [a, b]) => {
            let truths = a.elem == Elem::Bool && matches!(op, Cmp::Eq | Cmp::Ne);
            a == b && (a.elem.is_arith() || truths) && *out == Type::tile(Elem::Bool, &a.shape)
        }
        (OpKind::Fma, [a, b, c]) => out.elem == Elem::F32 && same(a) && same(b) && same(c),
        (OpKind::Cast(to), [x]) => {
            x.elem.is_arith() && to.is_arith() && *out == Type::tile(*to, &x.shape)
        }
        (OpKind::Bitcast(to), [x]) => {
            let width = |elem| matches!(elem, Elem::I64 | Elem::U64);
            x.elem.is_arith()
                && to.is_arith()
                && width(x.elem) == width(*to)
                && *out == Type::tile(*to, &x.shape)
        }
        (OpKind::Reduce { axis, combine }, [x]) => {
            combines(*combine, x.elem) && *out == shrunk(x, *axis, x.elem)?
        }
        (OpKind::Scan { axis, combine }, [x]) => {
            combines(*combine, x.elem) && *axis < x.shape.len() && same(x)
        }
        (OpKind::ArgMax(axis), [x]) => x.elem.is_arith() && *out == shrunk(x, *axis, Elem::I64)?,
        (OpKind::Decode, [x]) => {
            let codes = matches!(x.elem, Elem::Stored(_) | Elem::Packed(_));
            codes && *out == Type::tile(Elem::F32, &x.shape)
        }
        (OpKind::Encode(element), [x]) => {
            x.elem == Elem::F32 && *out == Type::tile(Elem::Stored(*element), &x.shape)
        }
        (OpKind::Quantize(format), [x]) => {
            let matrix = x.elem == Elem::F32 && x.shape.len() == 2;
            matrix && *out == Type::tile(Elem::Packed(format), &x.shape)
        }
        (OpKind::Dot, [a, b, c]) => {
            let floats = a.elem == Elem::F32 && b.elem == Elem::F32 && out.elem == Elem::F32;
            floats && same(c) && product([&a.shape, &b.shape], &out.shape, false)
        }
        (OpKind::DotScaled, [a, b, c]) => {
            let packed = [a, b].iter().all(|ty| matches!(ty.elem, Elem::Packed(_)));
            let floats = packed && out.elem == Elem::F32;
            floats && same(c) && product([&a.shape, &b.shape], &out.shape, true)
        }
        _ => return None,
    })
}

fn combines(combine: Combine, elem: Elem) -> bool {
    match combine {
        Combine::Sum | Combine::Min | Combine::Max => elem.is_arith(),
        Combine::And | Combine::Or | Combine::Xor => elem.is_int() || elem == Elem::Bool,
    }
}

fn shrunk(ty: &Type, axis: usize, elem: Elem) -> Option<Type> {
    let mut shape = ty.shape.clone();
    *shape.get_mut(axis)? = 1;
    Some(Type { elem, shape })
}

fn broadcasts(from: &[usize], to: &[usize]) -> bool {
    to.len()
        .checked_sub(from.len())
        .is_some_and(|lead| from.iter().zip(&to[lead..]).all(|(from, to)| from == to || *from == 1))
}

fn differs_only_along(axis: usize, a: &[usize], b: &[usize]) -> bool {
    let same = |(i, (a, b)): (usize, (&usize, &usize))| i == axis || a == b;
    a.len() == b.len() && axis < a.len() && a.iter().zip(b).enumerate().all(same)
}

fn product([a, b]: [&[usize]; 2], out: &[usize], b_transposed: bool) -> bool {
    match (a, b, out) {
        ([m, k], [k2, n], [m2, n2]) if !b_transposed => m == m2 && n == n2 && k == k2,
        ([m, k], [n, k2], [m2, n2]) => m == m2 && n == n2 && k == k2,
        _ => false,
    }
}

fn constant(literal: Literal, elem: Elem) -> Result<(), Wrong> {
    let fits = match (literal, elem) {
        (Literal::Float(_), Elem::F32) | (Literal::Bool(_), Elem::Bool) => true,
        (Literal::Int(value), Elem::I32) => i32::try_from(value).is_ok(),
        (Literal::Int(value), Elem::U32) => {
            i32::try_from(value).is_ok() || u32::try_from(value).is_ok()
        }
        (Literal::Int(_), Elem::I64 | Elem::U64) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(("K022", format!("{literal:?} is no constant of {elem}"))) }
}

fn quantize(format: &Format, x: &Type) -> Result<(), Wrong> {
    let [_, cols] = x.rows_cols();
    let name = format.name;
    if format.zero_point || format.tensor_scale {
        let message = format!("a kernel cannot quantize to {name}: it has more than scales");
        return Err(("K018", message));
    }
    match &format.scale_tile {
        Some(tile) if tile.rows != 1 || tile.cols == WHOLE => {
            let message = format!("a kernel cannot quantize to {name}: rows share its scales");
            Err(("K018", message))
        }
        Some(ScaleTile { cols: group, .. }) if !cols.is_multiple_of(*group) => {
            let message = format!("{cols} columns cut the scale groups of {name}, {group} wide");
            Err(("K018", message))
        }
        _ => Ok(()),
    }
}

/// Scale groups along `k` of one side are multiples of the other's, and the tile does not cut
/// them.
fn nested_groups(x: &Type, w: &Type) -> Result<(), Wrong> {
    let [_, k] = x.rows_cols();
    let group = |ty: &Type| match ty.elem {
        Elem::Packed(Format { scale_tile: Some(tile), .. }) => tile.cols,
        _ => WHOLE,
    };
    let nests = |a: usize, b: usize| {
        let (small, large) = (a.min(b), a.max(b));
        large == WHOLE || large.is_multiple_of(small)
    };
    let (left, right) = (group(x), group(w));
    if !nests(left, right) {
        let message = format!("scale groups of {left} ({x}) and {right} ({w}) do not nest");
        return Err(("K019", message));
    }
    match [left, right].into_iter().find(|&group| !nests(group, k)) {
        Some(group) => Err(("K019", format!("{k} columns cut scale groups of {group}"))),
        None => Ok(()),
    }
}

fn list<T: std::fmt::Display>(types: &[T]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
