//! What the lanes of a warp tell each other.

use super::access::{Issue, lanes};
use super::cta::{Cta, Wait, Warp};
use super::step::{Flow, Members, check, members};
use super::{Trouble, World};
use crate::decode::float::pick;
use crate::fault::FaultKind;
use crate::number::F32;
use crate::program::{Lanes, Op, Pred, Redux, Reg, Shuffle, Src, Vote, VoteDst};
use crate::types::{Ty, low_mask, sign_extend};

/// Executes a warp-wide instruction.
pub(super) fn execute(
    world: &World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (op, group): (&Op, u32),
) -> Result<Flow, Trouble> {
    let consts = world.setup.consts;
    let warp = &mut cta.warps[issue.warp];
    let named = match op {
        Op::Shfl { members, .. }
        | Op::Vote { members, .. }
        | Op::Match { members, .. }
        | Op::Redux { members, .. }
        | Op::Elect { members, .. }
        | Op::WarpSync { members } => *members,
        _ => return Ok(Flow::Next),
    };
    match members(warp, named, consts, (issue.mask, group))? {
        Members::Wait => return Ok(Flow::Again(Wait::Lanes)),
        Members::Complete => {}
    }
    let mask = issue.mask;
    match op {
        Op::Shfl { .. } => shuffle(warp, consts, mask, op)?,
        Op::Vote { way, dst, pred, .. } => {
            let (holds, missing) = warp.condition(*pred);
            if missing & mask != 0 {
                let message = "a predicate is used before it was set".to_owned();
                return Err(Trouble::new(FaultKind::Uninitialised, message));
            }
            let ballot = holds & mask;
            let value = match way {
                Vote::All => ballot == mask,
                Vote::Any => ballot != 0,
                Vote::Uni => ballot == mask || ballot == 0,
                Vote::Ballot => false,
            };
            match *dst {
                VoteDst::Reg(reg) => warp.set_register(reg, &[u64::from(ballot); 32], mask),
                VoteDst::Pred(pred) => {
                    warp.set_predicate(pred, if value { u32::MAX } else { 0 }, mask);
                }
            }
        }
        Op::Match { all, dst, pred, src, .. } => {
            check(warp, &[*src], mask)?;
            let values = *warp.value(*src, consts);
            find_equal(warp, &values, mask, (*all, *dst, *pred));
        }
        Op::Redux { way, ty, dst, src, .. } => {
            check(warp, &[*src], mask)?;
            let value = reduce(warp, consts, mask, (*way, *ty, *src));
            warp.set_register(*dst, &[value; 32], mask);
        }
        Op::Elect { dst, pred, .. } => {
            let leader = mask.trailing_zeros();
            if let Some(dst) = dst {
                warp.set_register(*dst, &[u64::from(leader); 32], mask);
            }
            warp.set_predicate(*pred, 1 << leader, mask);
        }
        _ => {}
    }
    Ok(Flow::Next)
}

/// `match.sync`: the lanes that hold the same value.
fn find_equal(
    warp: &mut Warp,
    values: &Lanes,
    mask: u32,
    (all, dst, pred): (bool, Reg, Option<Pred>),
) {
    let equal = |lane: usize| {
        let same = lanes(mask).filter(|&other| values[other] == values[lane]);
        same.fold(0u32, |found, other| found | 1 << other)
    };
    let first = mask.trailing_zeros() as usize;
    let everyone = equal(first) == mask;
    let out: Lanes = std::array::from_fn(|lane| match all {
        true => u64::from(if everyone { mask } else { 0 }),
        false => u64::from(equal(lane)),
    });
    warp.set_register(dst, &out, mask);
    if let Some(pred) = pred {
        warp.set_predicate(pred, if everyone { u32::MAX } else { 0 }, mask);
    }
}

fn reduce(warp: &Warp, consts: &[Lanes], mask: u32, (way, ty, src): (Redux, Ty, Src)) -> u64 {
    let values = warp.value(src, consts);
    let values = lanes(mask).map(|lane| values[lane]);
    if ty == Ty::F32 {
        let picked = values.map(|bits| F32.decode(bits));
        let picked = picked.reduce(|a, b| pick(way == Redux::Max, false, a, b));
        return F32.encode(picked.unwrap_or(0.0), crate::number::Round::Nearest, false);
    }
    let key = |value: u64| match ty.is_signed() {
        true => sign_extend(value, 32),
        false => value as i64,
    };
    let result = values.reduce(|a, b| match way {
        Redux::Add | Redux::Popc => a.wrapping_add(b),
        Redux::Min => {
            if key(b) < key(a) {
                b
            } else {
                a
            }
        }
        Redux::Max => {
            if key(b) > key(a) {
                b
            } else {
                a
            }
        }
        Redux::And => a & b,
        Redux::Or => a | b,
        Redux::Xor => a ^ b,
    });
    result.unwrap_or(0) & low_mask(32)
}

fn shuffle(warp: &mut Warp, consts: &[Lanes], mask: u32, op: &Op) -> Result<(), Trouble> {
    let Op::Shfl { way, dst, valid, src, .. } = op else { return Ok(()) };
    check(warp, src, mask)?;
    let [values, by, control] = src.map(|src| *warp.value(src, consts));
    let mut out = [0; 32];
    let mut inside = 0u32;
    for lane in lanes(mask) {
        let (by, control) = (by[lane] as i64 & 0x1f, control[lane] as i64);
        let (clamp, segment) = (control & 0x1f, control >> 8 & 0x1f);
        let here = lane as i64;
        let most = here & segment | clamp & !segment;
        let least = here & segment;
        let (from, valid) = match way {
            Shuffle::Up => (here - by, here - by >= most),
            Shuffle::Down => (here + by, here + by <= most),
            Shuffle::Bfly => (here ^ by, here ^ by <= most),
            Shuffle::Idx => (least | by & !segment, (least | by & !segment) <= most),
        };
        let from = if valid { from as usize } else { lane };
        if mask >> from & 1 == 0 {
            let message = format!("takes the value of lane {from}, which does not take part");
            return Err(Trouble::new(FaultKind::Operand, message).lane(lane));
        }
        out[lane] = values[from];
        inside |= u32::from(valid) << lane;
    }
    warp.set_register(*dst, &out, mask);
    if let Some(valid) = valid {
        warp.set_predicate(*valid, inside, mask);
    }
    Ok(())
}
