//! Comparisons, selection and predicates.

use super::call::Call;
use super::float::kind_test;
use super::half::format;
use super::lanes::{Decoded, compute, map2, map3};
use crate::ParseError;
use crate::number::{F32, F64, flush};
use crate::program::{Class, Combine, Condition, Op, Test};
use crate::types::{Ty, sign_extend};
use std::cmp::Ordering;
use std::sync::Arc;

/// Makes a mask of lanes of a function of one value.
pub(crate) fn mask1(f: impl Fn(u64) -> bool + Send + Sync + 'static) -> Test {
    Arc::new(move |a, _| a.iter().rev().fold(0, |mask, &a| mask << 1 | u32::from(f(a))))
}

fn mask2(f: impl Fn(u64, u64) -> bool + Send + Sync + 'static) -> Test {
    Arc::new(move |a, b| {
        let pairs = a.iter().zip(b).rev();
        pairs.fold(0, |mask, (&a, &b)| mask << 1 | u32::from(f(a, b)))
    })
}

/// Which orders a comparison is true for.
#[derive(Clone, Copy)]
struct Relation {
    less: bool,
    equal: bool,
    greater: bool,
    unordered: bool,
}

impl Relation {
    fn parse(name: &str) -> Option<Relation> {
        let relation =
            |less, equal, greater, unordered| Some(Relation { less, equal, greater, unordered });
        match name {
            "eq" => relation(false, true, false, false),
            "ne" => relation(true, false, true, false),
            "lt" | "lo" => relation(true, false, false, false),
            "le" | "ls" => relation(true, true, false, false),
            "gt" | "hi" => relation(false, false, true, false),
            "ge" | "hs" => relation(false, true, true, false),
            "equ" => relation(false, true, false, true),
            "neu" => relation(true, false, true, true),
            "ltu" => relation(true, false, false, true),
            "leu" => relation(true, true, false, true),
            "gtu" => relation(false, false, true, true),
            "geu" => relation(false, true, true, true),
            "num" => relation(true, true, true, false),
            "nan" => relation(false, false, false, true),
            _ => None,
        }
    }

    fn holds(self, order: Option<Ordering>) -> bool {
        match order {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

type Order = Box<dyn Fn(u64, u64) -> Option<Ordering> + Send + Sync>;

fn order(call: &Call<'_, '_>, ty: Ty, ftz: bool) -> Result<Order, ParseError> {
    if ftz && !matches!(ty, Ty::F32 | Ty::F16 | Ty::F16x2) {
        return call.error("`.ftz` is not known here");
    }
    Ok(match ty {
        Ty::Bits(16 | 32 | 64) | Ty::Unsigned(16 | 32 | 64) => Box::new(|a, b| Some(a.cmp(&b))),
        Ty::Signed(bits @ (16 | 32 | 64)) => {
            Box::new(move |a, b| Some(sign_extend(a, bits).cmp(&sign_extend(b, bits))))
        }
        Ty::F32 if ftz => Box::new(|a, b| {
            let value = |bits: u64| flush(f32::from_bits(bits as u32));
            value(a).partial_cmp(&value(b))
        }),
        Ty::F32 => Box::new(|a, b| F32.decode(a).partial_cmp(&F32.decode(b))),
        Ty::F64 => Box::new(|a, b| F64.decode(a).partial_cmp(&F64.decode(b))),
        _ => match format(ty) {
            Some((format, _)) => Box::new(move |a, b| {
                let value = |bits: u64| match ftz && bits & 0x7c00 == 0 {
                    true => 0.0,
                    false => format.decode(bits & 0xffff),
                };
                value(a).partial_cmp(&value(b))
            }),
            None => return call.unsupported(ty),
        },
    })
}

/// A comparison and the predicate it may be combined with.
struct Comparison {
    relation: Relation,
    combine: Option<Combine>,
    ftz: bool,
}

fn comparison(call: &mut Call<'_, '_>) -> Result<Comparison, ParseError> {
    let Some(relation) = call.pick(Relation::parse) else {
        return call.error("the comparison is missing");
    };
    let combine = call.pick(|name| match name {
        "and" => Some(Combine::And),
        "or" => Some(Combine::Or),
        "xor" => Some(Combine::Xor),
        _ => None,
    });
    Ok(Comparison { relation, combine, ftz: call.has("ftz") })
}

/// `setp`
pub(crate) fn setp(call: &mut Call<'_, '_>) -> Decoded {
    let Comparison { relation, combine, ftz } = comparison(call)?;
    let ty = call.ty()?;
    let order = order(call, ty, ftz)?;
    let pair = format(ty).is_some_and(|(_, pair)| pair);
    let expected = 3 + usize::from(combine.is_some());
    call.count(expected..=expected)?;
    let src = [call.src(1, ty)?, call.src(2, ty)?];
    let combine = match combine {
        Some(combine) => Some((combine, call.condition(3)?)),
        None => None,
    };
    let dst = call.pred_pair(0)?;
    call.finish()?;
    if pair {
        // Each half has a predicate of its own.
        let order = Arc::new(order);
        let upper = order.clone();
        let low = mask2(move |a, b| relation.holds(order(a & 0xffff, b & 0xffff)));
        let high = mask2(move |a, b| relation.holds(upper(a >> 16, b >> 16)));
        let line = call.line;
        let first = Op::Setp { f: low, src, combine, dst: [dst[0], None] };
        let guard = call.guard;
        call.body.push(first, guard, Class::Float, line);
        return Ok((Op::Setp { f: high, src, combine, dst: [dst[1], None] }, Class::Float));
    }
    let f = mask2(move |a, b| relation.holds(order(a, b)));
    let integer = matches!(ty, Ty::Bits(_) | Ty::Unsigned(_) | Ty::Signed(_));
    let class = if integer { Class::Integer } else { Class::Float };
    Ok((Op::Setp { f, src, combine, dst }, class))
}

/// `set`: a comparison into a register.
pub(crate) fn set(call: &mut Call<'_, '_>) -> Decoded {
    let Comparison { relation, combine, ftz } = comparison(call)?;
    if combine.is_some() {
        return call.error("combining with a predicate is not known here");
    }
    let (dst, ty) = (call.ty()?, call.ty()?);
    let truth = match dst {
        Ty::Unsigned(32) | Ty::Signed(32) => 0xffff_ffff,
        Ty::F32 => 0x3f80_0000,
        _ => return call.unsupported(dst),
    };
    let order = order(call, ty, ftz)?;
    let f = map2(move |a, b| if relation.holds(order(a, b)) { truth } else { 0 });
    compute(call, dst, &[ty, ty], f)
}

/// `selp`
pub(crate) fn selp(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.ty()?;
    if ty.bits() < 16 || ty.bits() > 64 {
        return call.unsupported(ty);
    }
    call.count(4..=4)?;
    let src = [call.src(1, ty)?, call.src(2, ty)?];
    let (when, dst) = (call.condition(3)?, call.dst(0, ty)?);
    call.finish()?;
    Ok((Op::Select { dst, src, when }, Class::Move))
}

/// `slct`
pub(crate) fn slct(call: &mut Call<'_, '_>) -> Decoded {
    let ftz = call.has("ftz");
    let (ty, by) = (call.ty()?, call.ty()?);
    let f = match by {
        Ty::Signed(32) => map3(|a, b, c| if sign_extend(c, 32) >= 0 { a } else { b }),
        Ty::F32 => map3(move |a, b, c| {
            let c = f32::from_bits(c as u32);
            let c = if ftz { flush(c) } else { c };
            if c >= 0.0 { a } else { b }
        }),
        _ => return call.unsupported(by),
    };
    compute(call, ty, &[ty, ty, by], f)
}

/// `testp`
pub(crate) fn testp(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.peek_ty();
    let f = kind_test(call)?;
    call.count(2..=2)?;
    let value = call.src(1, ty.unwrap_or(Ty::F32))?;
    let dst = [Some(call.pred(0)?), None];
    call.finish()?;
    Ok((Op::Setp { f, src: [value, value], combine: None, dst }, Class::Float))
}

/// Logic on predicates, and their moves.
pub(crate) fn predicates(call: &mut Call<'_, '_>) -> Decoded {
    call.ty()?;
    call.finish()?;
    // Bit `2a + b` of the table is the result for `a` and `b`.
    let (table, two) = match call.name {
        "and" => (0b1000, true),
        "or" => (0b1110, true),
        "xor" => (0b0110, true),
        "not" => (0b0011, false),
        "mov" => (0b1100, false),
        _ => return call.unsupported(Ty::Pred),
    };
    let expected = if two { 3 } else { 2 };
    call.count(expected..=expected)?;
    let a = call.condition(1)?;
    let b = if two { call.condition(2)? } else { Condition::Const(false) };
    Ok((Op::PredLogic { dst: call.pred(0)?, table, src: [a, b] }, Class::Move))
}
