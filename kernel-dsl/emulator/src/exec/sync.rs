//! Barriers of a CTA.

use super::access::{Issue, lanes};
use super::cta::{Cta, Group, Wait, Waiting};
use super::step::{Flow, check};
use super::{Trouble, World};
use crate::fault::FaultKind;
use crate::program::{BarDst, BarKind, Condition, Op, Redux, Src};

fn misuse<T>(message: String) -> Result<T, Trouble> {
    Err(Trouble::new(FaultKind::BarrierMisuse, message))
}

/// A source that must be the same for all lanes.
fn uniform(
    world: &World<'_>,
    cta: &Cta,
    issue: Issue,
    (src, what): (Src, &str),
) -> Result<u32, Trouble> {
    let warp = &cta.warps[issue.warp];
    check(warp, &[src], issue.mask)?;
    let values = warp.value(src, world.setup.consts);
    let mut values = lanes(issue.mask).map(|lane| values[lane] as u32);
    let first = values.next().unwrap_or(0);
    if values.any(|value| value != first) {
        return misuse(format!("lanes of one warp give different values for {what}"));
    }
    Ok(first)
}

/// `bar.sync` and its kin.
pub(super) fn bar(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (op, group): (&Op, u32),
) -> Result<Flow, Trouble> {
    let Op::Bar { kind, id, count, aligned, pred, .. } = op else { return Ok(Flow::Next) };
    let warp = &cta.warps[issue.warp];
    if issue.mask != group && *aligned {
        let message = "a barrier is predicated off for some lanes of a warp".to_owned();
        return Err(Trouble::new(FaultKind::DivergentBarrier, message));
    }
    let id = uniform(world, cta, issue, (*id, "the barrier"))?;
    if id >= 16 {
        return misuse(format!("barrier {id}: there are sixteen"));
    }
    if warp.exited & warp.live != 0 {
        let gone = warp.exited & warp.live;
        let message = format!("a warp whose lanes {gone:#x} have ended comes to a barrier");
        return Err(Trouble::new(FaultKind::DivergentBarrier, message));
    }
    // A warp counts as a whole, so all of its lanes must have come.
    if issue.mask != warp.live {
        return Ok(Flow::Again(Wait::Lanes));
    }
    let warps = cta.warps.len() as u32;
    let expected = match count {
        None => warps,
        Some(count) => {
            let threads = uniform(world, cta, issue, (*count, "the number of threads"))?;
            if threads == 0 || threads % 32 != 0 || threads > warps * 32 {
                let most = warps * 32;
                return misuse(format!(
                    "a barrier for {threads} threads: a multiple of 32 up to {most} is possible"
                ));
            }
            threads / 32
        }
    };
    world.counts[issue.pc as usize].barriers += 1;
    vote(cta, issue, id as usize, *pred)?;
    arrive(cta, issue, (id as usize, expected), *kind)?;
    let barrier = &mut cta.barriers[id as usize];
    let waits = *kind != BarKind::Arrive;
    if waits {
        let Issue { warp, mask, pc } = issue;
        barrier.waiting.push(Waiting { warp, mask, pc });
    }
    let complete = barrier.arrived == barrier.expected;
    if complete {
        release(world, cta, id as usize, issue.warp);
    }
    Ok(if waits && !complete { Flow::Then(Wait::Barrier) } else { Flow::Next })
}

fn arrive(
    cta: &mut Cta,
    issue: Issue,
    (id, expected): (usize, u32),
    kind: BarKind,
) -> Result<(), Trouble> {
    let barrier = &mut cta.barriers[id];
    if barrier.waiting.iter().any(|waiting| waiting.warp == issue.warp) {
        return misuse(format!("warp {} comes to barrier {id} twice", issue.warp));
    }
    let reduction = match kind {
        BarKind::Reduce(way) => Some(way),
        BarKind::Sync | BarKind::Arrive => None,
    };
    if barrier.arrived == 0 {
        barrier.expected = expected;
        barrier.reduction = reduction;
    } else if barrier.expected != expected {
        let other = barrier.expected * 32;
        let mine = expected * 32;
        return misuse(format!("barrier {id} is for {mine} threads here, for {other} elsewhere"));
    } else if barrier.reduction != reduction {
        return misuse(format!("barrier {id} reduces for some warps and not for others"));
    }
    barrier.arrived += 1;
    let clock = cta.warps[issue.warp].publish();
    match &mut barrier.clock {
        Some(known) => known.join(&clock),
        None => barrier.clock = Some(clock),
    }
    Ok(())
}

fn vote(cta: &mut Cta, issue: Issue, id: usize, pred: Option<Condition>) -> Result<(), Trouble> {
    let Some(pred) = pred else { return Ok(()) };
    let (holds, missing) = cta.warps[issue.warp].condition(pred);
    if missing & issue.mask != 0 {
        let message = "a predicate is used before it was set".to_owned();
        return Err(Trouble::new(FaultKind::Uninitialised, message));
    }
    let votes = &mut cta.barriers[id].votes;
    votes.for_it += (holds & issue.mask).count_ones();
    votes.against += (!holds & issue.mask).count_ones();
    Ok(())
}

/// Lets go of all who wait; `last` is the warp that completed the barrier.
fn release(world: &World<'_>, cta: &mut Cta, id: usize, last: usize) {
    let barrier = std::mem::take(&mut cta.barriers[id]);
    let code = &world.setup.entry.code;
    for Waiting { warp: index, mask, pc } in barrier.waiting {
        let warp = &mut cta.warps[index];
        if let Some(clock) = &barrier.clock {
            warp.clock.join(clock);
        }
        if let Op::Bar { kind: BarKind::Reduce(way), dst, .. } = &code[pc as usize].op {
            let votes = barrier.votes;
            let value = match way {
                Redux::And => u32::from(votes.against == 0),
                Redux::Or => u32::from(votes.for_it > 0),
                _ => votes.for_it,
            };
            match *dst {
                BarDst::Reg(reg) => warp.set_register(reg, &[u64::from(value); 32], mask),
                BarDst::Pred(pred) => {
                    warp.set_predicate(pred, if value != 0 { u32::MAX } else { 0 }, mask);
                }
                BarDst::None => {}
            }
        }
        if index != last {
            let waiting = |group: &&mut Group| group.wait == Wait::Barrier && group.mask == mask;
            if let Some(group) = warp.groups.iter_mut().find(waiting) {
                group.wait = Wait::Ready;
            }
        }
    }
}
