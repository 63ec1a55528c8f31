//! Branches, ends and barriers of a CTA.

use super::call::Call;
use super::lanes::Decoded;
use super::warp;
use crate::program::{BarDst, BarKind, Class, Op, Redux};
use crate::syntax::Arg;
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);

/// `bra`
pub(crate) fn branch(call: &mut Call<'_, '_>) -> Decoded {
    let uniform = call.has("uni");
    call.finish()?;
    call.count(1..=1)?;
    let Arg::Word(label) = call.args[0] else {
        return call.error("the target is no label");
    };
    let line = call.line;
    call.body.branch(label, line);
    Ok((Op::Branch { target: 0, uniform }, Class::Control))
}

/// `ret`, `exit` and `trap`
pub(crate) fn end(call: &mut Call<'_, '_>) -> Decoded {
    call.has("uni");
    call.finish()?;
    call.count(0..=0)?;
    let op = if call.name == "trap" { Op::Trap } else { Op::Exit };
    Ok((op, Class::Control))
}

/// `nanosleep`, `griddepcontrol`, `setmaxnreg`: accepted, without an effect on results.
pub(crate) fn advice(call: &mut Call<'_, '_>, mods: &[&str]) -> Decoded {
    while call.pick(|name| mods.contains(&name).then_some(())).is_some() {}
    call.finish()?;
    for index in 0..call.args.len() {
        call.src(index, Ty::Unsigned(32))?;
    }
    Ok((Op::Nop, Class::Control))
}

/// `bar` and `barrier`
pub(crate) fn barrier(call: &mut Call<'_, '_>) -> Decoded {
    if call.has("warp") {
        return warp::warp_barrier(call);
    }
    call.has("cta");
    if call.has("cluster") {
        return call.error("clusters are not known here");
    }
    let aligned = call.name == "bar" || call.has("aligned");
    if call.has("sync") {
        call.count(1..=2)?;
        return plain(call, BarKind::Sync, aligned);
    }
    if call.has("arrive") {
        call.count(2..=2)?;
        return plain(call, BarKind::Arrive, aligned);
    }
    if !call.has("red") {
        return call.error("what the barrier does is missing");
    }
    let way = call.pick(|name| match name {
        "popc" | "and" | "or" => warp::reduction(name),
        _ => None,
    });
    let Some(way) = way else {
        return call.error("the reduction is missing");
    };
    let ty = call.ty()?;
    call.has("aligned");
    call.finish()?;
    call.count(3..=4)?;
    let dst = match (way, ty) {
        (Redux::Popc, Ty::Unsigned(32)) => BarDst::Reg(call.dst(0, B32)?),
        (Redux::And | Redux::Or, Ty::Pred) => BarDst::Pred(call.pred(0)?),
        _ => return call.unsupported(ty),
    };
    let id = call.src(1, B32)?;
    let last = call.args.len() - 1;
    let count = if last == 3 { Some(call.src(2, B32)?) } else { None };
    let pred = Some(call.condition(last)?);
    Ok((Op::Bar { kind: BarKind::Reduce(way), id, count, aligned, pred, dst }, Class::Barrier))
}

fn plain(call: &mut Call<'_, '_>, kind: BarKind, aligned: bool) -> Decoded {
    call.finish()?;
    let id = call.src(0, B32)?;
    let count = if call.args.len() > 1 { Some(call.src(1, B32)?) } else { None };
    let op = Op::Bar { kind, id, count, aligned, pred: None, dst: BarDst::None };
    Ok((op, Class::Barrier))
}
