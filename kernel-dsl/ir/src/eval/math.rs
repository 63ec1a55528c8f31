//! Elementwise ops.

use super::cells::{Cells, cell, number, round_f32};
use super::error::Fault;
use crate::op::{Binary, Cmp, Unary};
use crate::types::Elem;

pub(super) fn unary(op: Unary, elem: Elem, x: &Cells) -> Result<Cells, Fault> {
    Ok(match x {
        Cells::Float(x) if op == Unary::IsNan => {
            Cells::Bool(x.iter().map(|x| x.is_nan()).collect())
        }
        Cells::Float(x) => Cells::Float(float_unary(op, x)),
        Cells::Bool(x) => Cells::Bool(x.iter().map(|x| !x).collect()),
        Cells::Int(x) => {
            let overflow = |x: i128| Fault::Overflow {
                op: unary_name(op),
                operands: x.to_string(),
                elem: elem.to_string(),
            };
            let each = x.iter().map(|&x| {
                let x = number(elem, x);
                let result = match op {
                    Unary::Neg => -x,
                    Unary::Abs => x.abs(),
                    _ => !x,
                };
                cell(elem, result).ok_or_else(|| overflow(x))
            });
            Cells::Int(each.collect::<Result<_, _>>()?)
        }
    })
}

fn float_unary(op: Unary, x: &[f64]) -> Vec<f64> {
    let map = |f: fn(f64) -> f64| x.iter().map(|&x| f(x)).collect();
    match op {
        Unary::Neg => map(|x| -x),
        Unary::Abs => map(f64::abs),
        Unary::Exp => map(f64::exp),
        Unary::Exp2 => map(f64::exp2),
        Unary::Ln => map(f64::ln),
        Unary::Log2 => map(f64::log2),
        Unary::Sin => map(f64::sin),
        Unary::Cos => map(f64::cos),
        Unary::Sqrt => map(f64::sqrt),
        Unary::Rsqrt => map(|x| x.sqrt().recip()),
        Unary::Recip => map(f64::recip),
        Unary::Floor => map(f64::floor),
        Unary::Round => map(f64::round_ties_even),
        Unary::Not | Unary::IsNan => unreachable!("the verifier checked the element"),
    }
}

pub(super) fn binary(op: Binary, elem: Elem, a: &Cells, b: &Cells) -> Result<Cells, Fault> {
    Ok(match (a, b) {
        (Cells::Float(a), Cells::Float(b)) => Cells::Float(match op {
            Binary::Add => zip(a, b, |a, b| a + b),
            Binary::Sub => zip(a, b, |a, b| a - b),
            Binary::Mul => zip(a, b, |a, b| a * b),
            Binary::Div => zip(a, b, |a, b| a / b),
            Binary::Min => zip(a, b, min),
            Binary::Max => zip(a, b, max),
            _ => unreachable!("the verifier checked the element"),
        }),
        (Cells::Bool(a), Cells::Bool(b)) => Cells::Bool(match op {
            Binary::And => zip(a, b, |a, b| a && b),
            Binary::Or => zip(a, b, |a, b| a || b),
            _ => zip(a, b, |a, b| a != b),
        }),
        (Cells::Int(a), Cells::Int(b)) => Cells::Int(int_binary(op, elem, a, b)?),
        _ => unreachable!("the verifier checked the elements"),
    })
}

fn int_binary(op: Binary, elem: Elem, a: &[i64], b: &[i64]) -> Result<Vec<i64>, Fault> {
    let checked = |f: fn(i128, i128) -> i128| -> Result<Vec<i64>, Fault> {
        let each = a.iter().zip(b).map(|(&a, &b)| {
            let (a, b) = (number(elem, a), number(elem, b));
            cell(elem, f(a, b)).ok_or_else(|| Fault::Overflow {
                op: binary_name(op),
                operands: format!("{a} and {b}"),
                elem: elem.to_string(),
            })
        });
        each.collect()
    };
    match op {
        Binary::Add => checked(|a, b| a + b),
        Binary::Sub => checked(|a, b| a - b),
        Binary::Mul => checked(i128::wrapping_mul),
        Binary::Div => checked(|a, b| if b == 0 { 0 } else { a / b }),
        Binary::Rem => checked(|a, b| if b == 0 { 0 } else { a % b }),
        Binary::Min => checked(i128::min),
        Binary::Max => checked(i128::max),
        Binary::And => Ok(zip(a, b, |a, b| a & b)),
        Binary::Or => Ok(zip(a, b, |a, b| a | b)),
        Binary::Xor => Ok(zip(a, b, |a, b| a ^ b)),
        Binary::Shl | Binary::Shr => Ok(zip(a, b, |a, b| shift(op, elem, a, number(elem, b)))),
    }
}

/// A distance of the width or more, or below zero, shifts everything out.
fn shift(op: Binary, elem: Elem, a: i64, by: i128) -> i64 {
    let width = if matches!(elem, Elem::I64 | Elem::U64) { 64 } else { 32 };
    let by = u32::try_from(by).unwrap_or(width).min(width);
    match op {
        Binary::Shl if by == width => 0,
        Binary::Shl if elem == Elem::I32 => i64::from(low_i32(a << by)),
        Binary::Shl if elem == Elem::U32 => (a << by) & 0xffff_ffff,
        Binary::Shl => a << by,
        _ if elem == Elem::U64 => a.cast_unsigned().checked_shr(by).unwrap_or(0).cast_signed(),
        _ => a >> by.min(63),
    }
}

pub(super) fn cmp(op: Cmp, elem: Elem, a: &Cells, b: &Cells) -> Cells {
    Cells::Bool(match (a, b) {
        (Cells::Float(a), Cells::Float(b)) => compare(op, a, b),
        (Cells::Bool(a), Cells::Bool(b)) => compare(op, a, b),
        (Cells::Int(a), Cells::Int(b)) if elem == Elem::U64 => {
            let unsigned = |cells: &[i64]| -> Vec<u64> {
                cells.iter().map(|cell| cell.cast_unsigned()).collect()
            };
            compare(op, &unsigned(a), &unsigned(b))
        }
        (Cells::Int(a), Cells::Int(b)) => compare(op, a, b),
        _ => unreachable!("the verifier checked the elements"),
    })
}

fn compare<T: Copy + PartialOrd>(op: Cmp, a: &[T], b: &[T]) -> Vec<bool> {
    match op {
        Cmp::Eq => zip(a, b, |a, b| a == b),
        Cmp::Ne => zip(a, b, |a, b| a != b),
        Cmp::Lt => zip(a, b, |a, b| a < b),
        Cmp::Le => zip(a, b, |a, b| a <= b),
        Cmp::Gt => zip(a, b, |a, b| a > b),
        Cmp::Ge => zip(a, b, |a, b| a >= b),
    }
}

pub(super) fn select(condition: &Cells, yes: &Cells, no: &Cells) -> Cells {
    fn choose<T: Copy>(condition: &[bool], yes: &[T], no: &[T]) -> Vec<T> {
        let both = yes.iter().zip(no);
        condition.iter().zip(both).map(|(&c, (&yes, &no))| if c { yes } else { no }).collect()
    }
    let condition = condition.bools();
    match (yes, no) {
        (Cells::Float(yes), Cells::Float(no)) => Cells::Float(choose(condition, yes, no)),
        (Cells::Int(yes), Cells::Int(no)) => Cells::Int(choose(condition, yes, no)),
        (Cells::Bool(yes), Cells::Bool(no)) => Cells::Bool(choose(condition, yes, no)),
        _ => unreachable!("the verifier checked the elements"),
    }
}

/// In f64 the product is exact enough that one rounding, that of the store, is left.
pub(super) fn fma(a: &Cells, b: &Cells, c: &Cells) -> Cells {
    let products = a.floats().iter().zip(b.floats());
    Cells::Float(products.zip(c.floats()).map(|((a, b), c)| a.mul_add(*b, *c)).collect())
}

pub(super) fn cast(from: Elem, to: Elem, x: &Cells) -> Result<Cells, Fault> {
    Ok(match x {
        Cells::Float(x) if to == Elem::F32 => Cells::Float(x.clone()),
        Cells::Float(x) => Cells::Int(x.iter().map(|&x| saturate(to, x)).collect()),
        Cells::Int(x) if to == Elem::F32 => {
            Cells::Float(x.iter().map(|&x| to_float(from, x)).collect())
        }
        Cells::Int(x) => {
            let each = x.iter().map(|&x| {
                let x = number(from, x);
                cell(to, x).ok_or_else(|| Fault::Overflow {
                    op: "conversion",
                    operands: x.to_string(),
                    elem: to.to_string(),
                })
            });
            Cells::Int(each.collect::<Result<_, _>>()?)
        }
        Cells::Bool(_) => unreachable!("the verifier checked the element"),
    })
}

#[expect(clippy::cast_precision_loss, reason = "rounds once, as the op says")]
fn to_float(from: Elem, cell: i64) -> f64 {
    if from == Elem::U64 { cell.cast_unsigned() as f64 } else { cell as f64 }
}

/// Towards zero, saturating, NaN to 0: what `as` does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates on purpose")]
fn saturate(to: Elem, x: f64) -> i64 {
    match to {
        Elem::I32 => i64::from(x as i32),
        Elem::U32 => i64::from(x as u32),
        Elem::U64 => (x as u64).cast_signed(),
        _ => x as i64,
    }
}

pub(super) fn bitcast(to: Elem, x: &Cells) -> Cells {
    match x {
        Cells::Float(x) if to == Elem::F32 => Cells::Float(x.clone()),
        Cells::Float(x) => {
            let bits = x.iter().map(|&x| i64::from(round_f32(x).to_bits()));
            Cells::Int(bits.map(|bits| as_32(to, bits)).collect())
        }
        Cells::Int(x) if to == Elem::F32 => {
            let float = |&x: &i64| f64::from(f32::from_bits(low_i32(x).cast_unsigned()));
            Cells::Float(x.iter().map(float).collect())
        }
        Cells::Int(x) => Cells::Int(x.iter().map(|&x| as_32(to, x)).collect()),
        Cells::Bool(_) => unreachable!("the verifier checked the element"),
    }
}

fn as_32(to: Elem, cell: i64) -> i64 {
    match to {
        Elem::I32 => i64::from(low_i32(cell)),
        Elem::U32 => cell & 0xffff_ffff,
        _ => cell,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keeps the low half on purpose")]
fn low_i32(cell: i64) -> i32 {
    cell as i32
}

pub(super) fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

pub(super) fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn zip<T: Copy, U>(a: &[T], b: &[T], f: impl Fn(T, T) -> U) -> Vec<U> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn unary_name(op: Unary) -> &'static str {
    if op == Unary::Abs { "abs" } else { "neg" }
}

pub(super) fn binary_name(op: Binary) -> &'static str {
    match op {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        _ => "div",
    }
}
