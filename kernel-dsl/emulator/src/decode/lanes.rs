//! Functions of one lane made into functions of all lanes of a warp.

use super::call::Call;
use crate::ParseError;
use crate::program::{Class, Compute, Op, Src};
use crate::types::Ty;
use std::sync::Arc;

/// What an instruction decodes to.
pub(crate) type Decoded = Result<(Op, Class), ParseError>;

pub(crate) fn map1(f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Compute {
    Arc::new(move |out, [a, _, _]| {
        for (out, &a) in out.iter_mut().zip(a) {
            *out = f(a);
        }
    })
}

pub(crate) fn map2(f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    Arc::new(move |out, [a, b, _]| {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = f(a, b);
        }
    })
}

pub(crate) fn map3(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    Arc::new(move |out, [a, b, c]| {
        for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *out = f(a, b, c);
        }
    })
}

/// An instruction that computes one register from others: `dst, src...` of the given types.
pub(crate) fn compute(call: &mut Call<'_, '_>, dst: Ty, src: &[Ty], f: Compute) -> Decoded {
    call.count(src.len() + 1..=src.len() + 1)?;
    let mut sources = [Src::Const(0); 3];
    for (index, &ty) in src.iter().enumerate() {
        sources[index] = call.src(index + 1, ty)?;
    }
    // A source that is not used still names a constant that exists.
    let zero = call.constant(0);
    sources[src.len()..].fill(zero);
    let dst = call.dst(0, dst)?;
    call.finish()?;
    let class = class_of(call.name, src);
    Ok((Op::Compute { f, dst, src: sources, count: src.len() as u8 }, class))
}

fn class_of(name: &str, src: &[Ty]) -> Class {
    match (name, src.first()) {
        ("cvt", _) => Class::Convert,
        ("mov" | "selp", _) => Class::Move,
        (_, Some(Ty::Bits(_) | Ty::Unsigned(_) | Ty::Signed(_) | Ty::U16x2 | Ty::S16x2)) => {
            Class::Integer
        }
        _ => Class::Float,
    }
}
