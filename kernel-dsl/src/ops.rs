//! Free functions of the language, and the shape rules that operators share.

use crate::elem::{Arith, Elem, Int, Packed};
use crate::tile::{Index, Operand, Tile};
use crate::trace::{effect, mistake, push, with};
use tessera_tile_ir::op::{Binary, Combine, Literal, OpKind, Unary};
use tessera_tile_ir::{self as ir, Loc, Type, Value};

/// Index of this program along a grid axis.
#[track_caller]
pub fn program_id(axis: usize) -> Tile<i64> {
    push(Loc::caller(), OpKind::ProgramId(axis), &[], Type::scalar(ir::Elem::I64))
}

/// `0, 1, .., n - 1`.
#[track_caller]
pub fn iota(n: usize) -> Tile<i64> {
    push(Loc::caller(), OpKind::Iota(n), &[], Type::tile(ir::Elem::I64, &[n]))
}

/// A tile of zeros.
#[track_caller]
pub fn zeros<T: Arith, const R: usize>(shape: [usize; R]) -> Tile<T> {
    let loc = Loc::caller();
    let zero = match T::ELEM {
        ir::Elem::F32 => Literal::Float(0.0),
        _ => Literal::Int(0),
    };
    let scalar: Tile<T> = literal(loc, T::ELEM, zero);
    Tile::from_value(broadcast_to(loc, scalar.value(), &shape))
}

/// A tile of one value.
#[track_caller]
pub fn full<T: Elem, const R: usize>(shape: [usize; R], value: impl Operand<T>) -> Tile<T> {
    let loc = Loc::caller();
    Tile::from_value(broadcast_to(loc, value.operand(loc).value(), &shape))
}

/// `a / b` rounded up, for extents: `b` above 0.
#[track_caller]
pub fn cdiv(a: impl Into<Index>, b: impl Into<Index>) -> Tile<i64> {
    let loc = Loc::caller();
    let (a, b) = (a.into().tile(), b.into().tile());
    let one = literal(loc, ir::Elem::I64, Literal::Int(1));
    let above = binary(loc, Binary::Sub, binary(loc, Binary::Add, a, b), one);
    binary(loc, Binary::Div, above, b)
}

/// The remainder of a division, with the sign of `a`.
#[track_caller]
pub fn rem<T: Int>(a: Tile<T>, b: impl Operand<T>) -> Tile<T> {
    let loc = Loc::caller();
    binary(loc, Binary::Rem, a, b.operand(loc))
}

/// The smaller, elementwise; NaN if either is.
#[track_caller]
pub fn min<T: Arith>(a: Tile<T>, b: impl Operand<T>) -> Tile<T> {
    let loc = Loc::caller();
    binary(loc, Binary::Min, a, b.operand(loc))
}

/// The larger, elementwise; NaN if either is.
#[track_caller]
pub fn max<T: Arith>(a: Tile<T>, b: impl Operand<T>) -> Tile<T> {
    let loc = Loc::caller();
    binary(loc, Binary::Max, a, b.operand(loc))
}

/// Sine of radians.
#[track_caller]
pub fn sin(x: Tile<f32>) -> Tile<f32> {
    unary(Loc::caller(), Unary::Sin, x)
}

/// Cosine of radians.
#[track_caller]
pub fn cos(x: Tile<f32>) -> Tile<f32> {
    unary(Loc::caller(), Unary::Cos, x)
}

/// `a * b + c`, rounded once.
#[track_caller]
pub fn fma(a: Tile<f32>, b: impl Operand<f32>, c: impl Operand<f32>) -> Tile<f32> {
    let loc = Loc::caller();
    let operands = [a.value(), b.operand(loc).value(), c.operand(loc).value()];
    let (operands, ty) = unify(loc, "fma", &operands, ir::Elem::F32);
    push(loc, OpKind::Fma, &operands, ty)
}

/// `yes` where the condition holds, `no` elsewhere.
#[track_caller]
pub fn select<T: Elem>(
    condition: Tile<bool>,
    yes: impl Operand<T>,
    no: impl Operand<T>,
) -> Tile<T> {
    let loc = Loc::caller();
    let operands = [condition.value(), yes.operand(loc).value(), no.operand(loc).value()];
    let (operands, ty) = unify(loc, "select", &operands, T::ELEM);
    push(loc, OpKind::Select, &operands, ty)
}

/// The launch fails with `message` unless all of `condition` is true.
#[track_caller]
pub fn assert_all(condition: Tile<bool>, message: &str) {
    effect(Loc::caller(), OpKind::Assert(message.to_owned()), &[condition.value()]);
}

/// `a * b + acc`: `[m, k] * [k, n]`.
#[track_caller]
pub fn dot(a: Tile<f32>, b: Tile<f32>, acc: Tile<f32>) -> Tile<f32> {
    let (loc, types) = (Loc::caller(), [a.ty(), b.ty(), acc.ty()]);
    let [[m, k], [k2, n], [m2, n2]] = [0, 1, 2].map(|i| types[i].rows_cols());
    if types.iter().any(|ty| ty.shape.len() != 2) || k != k2 || m != m2 || n != n2 {
        let message = format!("dot of {} and {} onto {}", types[0], types[1], types[2]);
        mistake("K004", loc, message, vec!["it takes [m, k], [k, n] and [m, n]".to_owned()]);
    }
    let ty = Type::tile(ir::Elem::F32, &[m, n]);
    push(loc, OpKind::Dot, &[a.value(), b.value(), acc.value()], ty)
}

/// `x * w^T + acc` with codes and scales kept together: `[m, k] * [n, k]`. The scale groups of one
/// side are multiples of the other's.
#[track_caller]
pub fn dot_scaled<X: Packed, W: Packed>(x: Tile<X>, w: Tile<W>, acc: Tile<f32>) -> Tile<f32> {
    let (loc, types) = (Loc::caller(), [x.ty(), w.ty(), acc.ty()]);
    let [[m, k], [n, k2], [m2, n2]] = [0, 1, 2].map(|i| types[i].rows_cols());
    if types.iter().any(|ty| ty.shape.len() != 2) || k != k2 || m != m2 || n != n2 {
        let message = format!("scaled dot of {} and {} onto {}", types[0], types[1], types[2]);
        mistake("K004", loc, message, vec!["it takes [m, k], [n, k] and [m, n]".to_owned()]);
    }
    let ty = Type::tile(ir::Elem::F32, &[m, n]);
    push(loc, OpKind::DotScaled, &[x.value(), w.value(), acc.value()], ty)
}

pub(crate) fn literal<T>(loc: Loc, elem: ir::Elem, literal: Literal) -> Tile<T> {
    push(loc, OpKind::Const(literal), &[], Type::scalar(elem))
}

pub(crate) fn unary<T: Elem>(loc: Loc, op: Unary, x: Tile<T>) -> Tile<T> {
    push(loc, OpKind::Unary(op), &[x.value()], x.ty())
}

pub(crate) fn binary<T: Elem>(loc: Loc, op: Binary, a: Tile<T>, b: Tile<T>) -> Tile<T> {
    let (operands, ty) =
        unify(loc, &format!("{op:?}").to_lowercase(), &[a.value(), b.value()], T::ELEM);
    push(loc, OpKind::Binary(op), &operands, ty)
}

pub(crate) fn reduce<T: Elem>(loc: Loc, x: Tile<T>, axis: usize, combine: Combine) -> Tile<T> {
    let mut ty = x.ty();
    shrink(loc, &mut ty, axis);
    push(loc, OpKind::Reduce { axis, combine }, &[x.value()], ty)
}

/// Makes the extent of `axis` 1.
pub(crate) fn shrink(loc: Loc, ty: &mut Type, axis: usize) {
    match ty.shape.get_mut(axis) {
        Some(extent) => *extent = 1,
        None => mistake("K003", loc, format!("{ty} has no axis {axis}"), vec![]),
    }
}

/// Broadcasts operands to their common shape; the type has element `elem`.
pub(crate) fn unify(
    loc: Loc,
    what: &str,
    operands: &[Value],
    elem: ir::Elem,
) -> (Vec<Value>, Type) {
    let types: Vec<Type> = with(|b| operands.iter().map(|&v| b.ty(v).clone()).collect());
    let rank = types.iter().map(|ty| ty.shape.len()).max().unwrap_or(0);
    let mut shape = vec![1; rank];
    for ty in &types {
        let lead = rank - ty.shape.len();
        for (axis, &extent) in ty.shape.iter().enumerate() {
            let known = &mut shape[lead + axis];
            if extent != *known && *known == 1 {
                *known = extent;
            } else if extent != *known && extent != 1 {
                let all: Vec<String> = types.iter().map(ToString::to_string).collect();
                let made = with(|b| {
                    let kernel = b.kernel();
                    operands.iter().map(|v| kernel.values[v.0 as usize].loc).collect::<Vec<_>>()
                });
                let notes = made.iter().zip(&all).map(|(loc, ty)| format!("{ty} made at {loc}"));
                let message = format!("tile shapes differ: {what} of {}", all.join(" and "));
                mistake("K001", loc, message, notes.collect());
                return (operands.to_vec(), Type { elem, shape: types[0].shape.clone() });
            }
        }
    }
    let operands = operands.iter().map(|&v| broadcast_to(loc, v, &shape)).collect();
    (operands, Type { elem, shape })
}

/// Broadcasts a value, or gives it back if it has that shape.
pub(crate) fn broadcast_to(loc: Loc, value: Value, shape: &[usize]) -> Value {
    let ty = with(|b| b.ty(value).clone());
    if ty.shape == shape {
        return value;
    }
    let lead = shape.len().checked_sub(ty.shape.len());
    let fits = lead.is_some_and(|lead| {
        ty.shape.iter().zip(&shape[lead..]).all(|(from, to)| from == to || *from == 1)
    });
    if !fits {
        mistake("K001", loc, format!("{ty} does not broadcast to {shape:?}"), vec![]);
    }
    let result = Type { elem: ty.elem, shape: shape.to_vec() };
    with(|b| b.push(loc, OpKind::Broadcast, &[value], &[result]))[0]
}
