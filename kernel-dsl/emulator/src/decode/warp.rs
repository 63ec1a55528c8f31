//! Exchanges between the lanes of a warp.

use super::call::{Call, Width};
use super::lanes::Decoded;
use crate::ParseError;
use crate::program::{Class, Op, Redux, Shuffle, Src, Vote, VoteDst};
use crate::syntax::Arg;
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);

fn sync(call: &mut Call<'_, '_>) -> Result<(), ParseError> {
    if call.has("sync") { Ok(()) } else { call.error("`.sync` is missing") }
}

/// `shfl.sync`
pub(crate) fn shuffle(call: &mut Call<'_, '_>) -> Decoded {
    sync(call)?;
    let way = call.pick(|name| match name {
        "up" => Some(Shuffle::Up),
        "down" => Some(Shuffle::Down),
        "bfly" => Some(Shuffle::Bfly),
        "idx" => Some(Shuffle::Idx),
        _ => None,
    });
    let Some(way) = way else {
        return call.error("the way is missing");
    };
    if call.ty()? != B32 {
        return call.error("`.b32` is missing");
    }
    call.count(5..=5)?;
    let (name, valid) = match call.args[0] {
        Arg::Both(name, pred) => (name, Some(call.pred_named(pred)?)),
        Arg::Word(name) => (name, None),
        _ => return call.error("the destination is no register"),
    };
    let dst = call.target(&Arg::Word(name), B32, Width::Exact)?.0;
    let src = [call.src(1, B32)?, call.src(2, B32)?, call.src(3, B32)?];
    let members = call.src(4, B32)?;
    call.finish()?;
    Ok((Op::Shfl { way, dst, valid, src, members }, Class::Warp))
}

/// `vote.sync`
pub(crate) fn vote(call: &mut Call<'_, '_>) -> Decoded {
    sync(call)?;
    let way = call.pick(|name| match name {
        "all" => Some(Vote::All),
        "any" => Some(Vote::Any),
        "uni" => Some(Vote::Uni),
        "ballot" => Some(Vote::Ballot),
        _ => None,
    });
    let Some(way) = way else {
        return call.error("the way is missing");
    };
    let ty = call.ty()?;
    call.count(3..=3)?;
    let dst = match (way, ty) {
        (Vote::Ballot, Ty::Bits(32)) => VoteDst::Reg(call.dst(0, B32)?),
        (Vote::All | Vote::Any | Vote::Uni, Ty::Pred) => VoteDst::Pred(call.pred(0)?),
        _ => return call.unsupported(ty),
    };
    let (pred, members) = (call.condition(1)?, call.src(2, B32)?);
    call.finish()?;
    Ok((Op::Vote { way, dst, pred, members }, Class::Warp))
}

/// `match.sync`
pub(crate) fn matches(call: &mut Call<'_, '_>) -> Decoded {
    let all = call.has("all");
    if !all && !call.has("any") {
        return call.error("`.all` or `.any` is missing");
    }
    sync(call)?;
    let ty = call.ty()?;
    if !matches!(ty, Ty::Bits(32 | 64)) {
        return call.unsupported(ty);
    }
    call.count(3..=3)?;
    let (name, pred) = match call.args[0] {
        Arg::Both(name, pred) if all => (name, Some(call.pred_named(pred)?)),
        Arg::Word(name) => (name, None),
        _ => return call.error("the destination is no register"),
    };
    let dst = call.target(&Arg::Word(name), B32, Width::Exact)?.0;
    let (src, members) = (call.src(1, ty)?, call.src(2, B32)?);
    call.finish()?;
    Ok((Op::Match { all, dst, pred, src, members }, Class::Warp))
}

/// The reductions over integers.
pub(crate) fn reduction(name: &str) -> Option<Redux> {
    Some(match name {
        "add" => Redux::Add,
        "min" => Redux::Min,
        "max" => Redux::Max,
        "and" => Redux::And,
        "or" => Redux::Or,
        "xor" => Redux::Xor,
        "popc" => Redux::Popc,
        _ => return None,
    })
}

/// `redux.sync`
pub(crate) fn redux(call: &mut Call<'_, '_>) -> Decoded {
    sync(call)?;
    let Some(way) = call.pick(reduction) else {
        return call.error("the reduction is missing");
    };
    let (absolute, nan) = (call.has("abs"), call.has("NaN"));
    let ty = call.ty()?;
    let known = matches!(
        (way, ty),
        (Redux::Add | Redux::Min | Redux::Max, Ty::Unsigned(32) | Ty::Signed(32))
            | (Redux::Min | Redux::Max, Ty::F32)
            | (Redux::And | Redux::Or | Redux::Xor, Ty::Bits(32))
    );
    if !known {
        return call.unsupported(ty);
    }
    if absolute || nan {
        return call.error("`.abs` and `.NaN` are not known here");
    }
    call.count(3..=3)?;
    let (dst, src, members) = (call.dst(0, ty)?, call.src(1, ty)?, call.src(2, B32)?);
    call.finish()?;
    Ok((Op::Redux { way, ty, dst, src, members }, Class::Warp))
}

/// `elect.sync`
pub(crate) fn elect(call: &mut Call<'_, '_>) -> Decoded {
    sync(call)?;
    call.count(2..=2)?;
    let Arg::Both(name, pred) = call.args[0] else {
        return call.error("the destination is no pair of a register and a predicate");
    };
    let dst = call.dst_or_sink(&Arg::Word(name), B32, Width::Exact)?.map(|(reg, _)| reg);
    let (pred, members) = (call.pred_named(pred)?, call.src(1, B32)?);
    call.finish()?;
    Ok((Op::Elect { dst, pred, members }, Class::Warp))
}

/// `activemask`
pub(crate) fn active_mask(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.ty()?;
    call.count(1..=1)?;
    let dst = call.dst(0, ty)?;
    call.finish()?;
    Ok((Op::ActiveMask { dst }, Class::Warp))
}

/// `bar.warp.sync`
pub(crate) fn warp_barrier(call: &mut Call<'_, '_>) -> Decoded {
    sync(call)?;
    call.count(1..=1)?;
    let members: Src = call.src(0, B32)?;
    call.finish()?;
    Ok((Op::WarpSync { members }, Class::Barrier))
}
