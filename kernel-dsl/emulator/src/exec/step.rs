//! One warp's turn: picks lanes that stand together, executes their instruction, moves them on.

use super::access::{self, Issue, Target, lanes};
use super::atomic::{self, AtomicParts};
use super::cta::{Cta, Group, Wait, Warp};
use super::space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::{Trouble, World, copies, exchange, matrix, mbarrier, ordering, sync, wgmma};
use crate::fault::FaultKind;
use crate::program::{Combine, Condition, Fence, Instr, Lanes, MaskKind, Op, Pred, Reg, Space};
use crate::program::{Special, Src};
use crate::types::low_mask;

/// What lanes do after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    /// These lanes jump.
    Jump(u32, u32),
    /// These lanes end.
    Exit(u32),
    /// All wait, and execute the instruction again.
    Again(Wait),
    /// All wait, then go on behind it.
    Then(Wait),
    /// Goes on, but lets others run first.
    Yield,
}

/// What came of a warp's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// It could do nothing.
    Stuck,
    /// It looked for something that has not happened yet.
    Vain,
    Moved,
}

/// Lets a warp run until it must wait, or its quantum is over.
pub(super) fn run_warp(
    world: &mut World<'_>,
    cta: &mut Cta,
    index: usize,
    quantum: u32,
) -> Result<Turn, Trouble> {
    let mut turn = Turn::Stuck;
    for _ in 0..quantum {
        let Some(group) = pick(&mut cta.warps[index], cta.event) else { break };
        let looked_in_vain = step(world, cta, index, group)?;
        if looked_in_vain {
            return Ok(Turn::Vain);
        }
        turn = Turn::Moved;
    }
    Ok(turn)
}

/// The lanes that go next: of those that can, the ones furthest behind, so that others catch up.
fn pick(warp: &mut Warp, event: u64) -> Option<usize> {
    if let [group] = warp.groups.as_slice() {
        return can_go(group, event).then_some(0);
    }
    merge(warp);
    let groups = &mut warp.groups;
    let ready = |group: &&(usize, Group)| can_go(&group.1, event);
    let all: Vec<(usize, Group)> = groups.iter().copied().enumerate().collect();
    let next = all.iter().filter(ready).min_by_key(|(_, group)| (group.yielded, group.pc));
    let &(index, group) = next?;
    if group.yielded {
        groups.iter_mut().for_each(|group| group.yielded = false);
    }
    Some(index)
}

fn can_go(group: &Group, event: u64) -> bool {
    match group.wait {
        Wait::Ready => true,
        Wait::Event(seen) => event != seen,
        Wait::Lanes | Wait::Barrier => false,
    }
}

/// Joins lanes that stand at the same instruction.
fn merge(warp: &mut Warp) {
    let joinable = |group: &Group| matches!(group.wait, Wait::Ready | Wait::Lanes);
    let mut first = 0;
    while first < warp.groups.len() {
        let mut second = first + 1;
        while second < warp.groups.len() {
            let (a, b) = (warp.groups[first], warp.groups[second]);
            if a.pc == b.pc && joinable(&a) && joinable(&b) {
                warp.groups[first] =
                    Group { mask: a.mask | b.mask, wait: Wait::Ready, yielded: false, pc: a.pc };
                warp.groups.swap_remove(second);
            } else {
                second += 1;
            }
        }
        first += 1;
    }
}

/// Executes one instruction of a group. Returns whether it looked for something in vain.
fn step(world: &mut World<'_>, cta: &mut Cta, index: usize, slot: usize) -> Result<bool, Trouble> {
    let entry = world.setup.entry;
    let warp = &mut cta.warps[index];
    let group = warp.groups[slot];
    let pc = group.pc;
    let instr = &entry.code[pc as usize];
    warp.last_pc = pc;
    let mask = match instr.guard {
        None => group.mask,
        Some((pred, negated)) => {
            let (holds, missing) = warp.condition(Condition::Pred { pred, negated });
            check_predicates(missing, group.mask)?;
            group.mask & holds
        }
    };
    world.executed += 1;
    let counts = &mut world.counts[pc as usize];
    counts.warp_instructions += 1;
    counts.lane_instructions += u64::from(mask.count_ones());
    let flow = match mask {
        0 => Flow::Next,
        _ => {
            let issue = Issue { warp: index, mask, pc };
            execute(world, cta, issue, (instr, group.mask))?
        }
    };
    cta.warps[index].custody.check()?;
    advance(&mut cta.warps[index], slot, flow);
    Ok(matches!(flow, Flow::Yield | Flow::Again(_)))
}

fn advance(warp: &mut Warp, slot: usize, flow: Flow) {
    let group = &mut warp.groups[slot];
    group.wait = Wait::Ready;
    match flow {
        Flow::Next => group.pc += 1,
        Flow::Yield => {
            group.pc += 1;
            group.yielded = true;
        }
        Flow::Again(wait) => group.wait = wait,
        Flow::Then(wait) => {
            group.pc += 1;
            group.wait = wait;
        }
        Flow::Jump(mask, target) => {
            let stay = group.mask & !mask;
            if stay == 0 {
                group.pc = target;
            } else {
                group.pc += 1;
                group.mask = stay;
                let jumped = Group { pc: target, mask, wait: Wait::Ready, yielded: false };
                warp.groups.push(jumped);
            }
        }
        Flow::Exit(mask) => {
            group.mask &= !mask;
            group.pc += 1;
            warp.exited |= mask;
            if group.mask == 0 {
                warp.groups.swap_remove(slot);
            }
        }
    }
}

fn check_predicates(missing: u32, mask: u32) -> Result<(), Trouble> {
    match missing & mask {
        0 => Ok(()),
        lanes => {
            let message = "a predicate is used before it was set".to_owned();
            let lane = lanes.trailing_zeros() as usize;
            Err(Trouble::new(FaultKind::Uninitialised, message).lane(lane))
        }
    }
}

/// Refuses sources that were not written, or whose value a tensor core still works on.
pub(super) fn check(warp: &Warp, sources: &[Src], mask: u32) -> Result<(), Trouble> {
    for &src in sources {
        let missing = warp.missing(src, mask);
        if missing != 0 {
            let (kind, message) = match src {
                Src::Reg(reg) if warp.custody.is_awaited(reg) => {
                    (FaultKind::MissingWait, "a result of wgmma is used before it was waited for")
                }
                _ => (FaultKind::Uninitialised, "a register is used before it was written"),
            };
            let lane = missing.trailing_zeros() as usize;
            return Err(Trouble::new(kind, message.to_owned()).lane(lane));
        }
    }
    Ok(())
}

/// Executes what needs nothing but the warp's own registers; the rest is passed on.
fn execute(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (instr, group): (&Instr, u32),
) -> Result<Flow, Trouble> {
    let consts = world.setup.consts;
    let Issue { mask, .. } = issue;
    let warp = &mut cta.warps[issue.warp];
    match &instr.op {
        Op::Compute { f, dst, src, count } => {
            check(warp, &src[..usize::from(*count)], mask)?;
            let mut out = [0; 32];
            f(&mut out, src.map(|src| warp.value(src, consts)));
            warp.set_register(*dst, &out, mask);
        }
        Op::Setp { f, src, combine, dst } => {
            check(warp, src, mask)?;
            let holds = f(warp.value(src[0], consts), warp.value(src[1], consts));
            set_predicates(warp, holds, *combine, (*dst, mask))?;
        }
        Op::Select { dst, src, when } => {
            let (holds, missing) = warp.condition(*when);
            check_predicates(missing, mask)?;
            check(warp, &src[..1], mask & holds)?;
            check(warp, &src[1..], mask & !holds)?;
            let (a, b) = (warp.value(src[0], consts), warp.value(src[1], consts));
            let pick = |lane: usize| if holds >> lane & 1 == 1 { a[lane] } else { b[lane] };
            let out: Lanes = std::array::from_fn(pick);
            warp.set_register(*dst, &out, mask);
        }
        Op::PredLogic { dst, table, src } => {
            let [(a, a_missing), (b, b_missing)] = src.map(|src| warp.condition(src));
            check_predicates(a_missing | b_missing, mask)?;
            let row = |bit: u8, lanes: u32| if table >> bit & 1 == 1 { lanes } else { 0 };
            let value = row(0, !a & !b) | row(1, !a & b) | row(2, a & !b) | row(3, a & b);
            warp.set_predicate(*dst, value, mask);
        }
        Op::Unpack { dst, bits, src } => {
            check(warp, &[*src], mask)?;
            let value = *warp.value(*src, consts);
            for (dst, part) in dst.iter().zip(0..) {
                let Some(dst) = dst else { continue };
                let out = value.map(|value| value >> (part * bits) & low_mask(*bits));
                warp.set_register(*dst, &out, mask);
            }
        }
        Op::Pack { dst, bits, src } => {
            check(warp, src, mask)?;
            let mut out = [0; 32];
            for (&src, part) in src.iter().zip(0..) {
                for (out, &value) in out.iter_mut().zip(warp.value(src, consts)) {
                    *out |= (value & low_mask(*bits)) << (part * bits);
                }
            }
            warp.set_register(*dst, &out, mask);
        }
        Op::Branch { target, uniform } => {
            if *uniform && mask != group {
                let message = "a branch that is marked uniform diverges".to_owned();
                return Err(Trouble::new(FaultKind::DivergentWarp, message));
            }
            return Ok(Flow::Jump(mask, *target));
        }
        Op::Exit => return Ok(Flow::Exit(mask)),
        Op::Trap => {
            return Err(Trouble::new(FaultKind::Trap, "the program stopped itself".to_owned()));
        }
        Op::Nop => {}
        Op::ActiveMask { dst } => {
            let out = [u64::from(mask); 32];
            warp.set_register(*dst, &out, mask);
        }
        _ => return execute_outside(world, cta, issue, (instr, group)),
    }
    Ok(Flow::Next)
}

type Combination = Option<(Combine, Condition)>;

fn set_predicates(
    warp: &mut Warp,
    holds: u32,
    combine: Combination,
    (dst, mask): ([Option<Pred>; 2], u32),
) -> Result<(), Trouble> {
    let join = |value: u32| -> Result<u32, Trouble> {
        let Some((how, with)) = combine else { return Ok(value) };
        let (with, missing) = warp.condition(with);
        check_predicates(missing, mask)?;
        Ok(match how {
            Combine::And => value & with,
            Combine::Or => value | with,
            Combine::Xor => value ^ with,
        })
    };
    let values = [join(holds)?, join(!holds)?];
    for (dst, value) in dst.into_iter().zip(values) {
        if let Some(dst) = dst {
            warp.set_predicate(dst, value, mask);
        }
    }
    Ok(())
}

/// Executes what reaches memory, other lanes or other warps.
fn execute_outside(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (instr, group): (&Instr, u32),
) -> Result<Flow, Trouble> {
    let mask = issue.mask;
    match &instr.op {
        Op::Special { dst, what } => special(world, cta, issue, (*dst, *what)),
        Op::Load { access, dst, sign, dst_bits } => {
            check(&cta.warps[issue.warp], &[access.address.base], mask)?;
            let target = Target { dst, sign: *sign, bits: *dst_bits };
            access::load(world, cta, issue, access, &target)?;
        }
        Op::Store { access, src } => {
            let warp = &cta.warps[issue.warp];
            check(warp, &[access.address.base], mask)?;
            check(warp, src, mask)?;
            access::store(world, cta, issue, access, src)?;
        }
        Op::Atomic { access, f, dst, src } => {
            let warp = &cta.warps[issue.warp];
            check(warp, &[access.address.base], mask)?;
            src.iter().try_for_each(|src| check(warp, src, mask))?;
            let parts = AtomicParts { f, dst: dst.as_deref(), src };
            atomic::atomic(world, cta, issue, access, &parts)?;
        }
        Op::ToGeneric { dst, src, space } => {
            convert_address(world, cta, issue, (*dst, *src, offset(*space)))?;
        }
        Op::FromGeneric { dst, src, space } => {
            convert_address(world, cta, issue, (*dst, *src, offset(*space).wrapping_neg()))?;
        }
        Op::IsSpace { dst, src, space } => {
            let warp = &mut cta.warps[issue.warp];
            check(warp, &[*src], mask)?;
            let start = offset(*space);
            let inside = |address: u64| match space {
                Space::Shared | Space::Local | Space::Param => {
                    address.wrapping_sub(start) < 1 << 32
                }
                _ => address >= crate::global::GLOBAL_BASE,
            };
            let value = warp.value(*src, world.setup.consts);
            let holds = (0..32).filter(|&lane| inside(value[lane]));
            let holds = holds.fold(0, |mask, lane| mask | 1 << lane);
            warp.set_predicate(*dst, holds, mask);
        }
        Op::Fence(fence) => {
            ordering::fence(&mut cta.warps[issue.warp], *fence);
            if *fence != Fence::Memory {
                mbarrier::show(&mut cta.mbarriers, issue.warp);
            }
        }
        Op::AsyncCopy(copy) => copies::issue_rows(world, cta, issue, copy)?,
        Op::BulkCopy(copy) => copies::issue_bulk(world, cta, issue, copy)?,
        Op::TensorCopy(copy) => copies::issue_tensor(world, cta, issue, copy)?,
        Op::CommitGroup { queue } => copies::commit(cta, issue, *queue),
        Op::WaitGroup { queue, read, left } => {
            copies::wait(world, cta, issue, (*queue, *read, *left))?;
        }
        Op::WgmmaFence => cta.warps[issue.warp].custody.fence(),
        Op::Wgmma(wgmma) => wgmma::issue(world, cta, issue, wgmma)?,
        Op::Mbarrier(object) => return mbarrier::execute(world, cta, issue, object),
        Op::Mma(mma) => matrix::mma(world, cta, issue, mma)?,
        Op::LoadMatrix { matrix, dst } => matrix::load(world, cta, issue, (matrix, dst))?,
        Op::StoreMatrix { matrix, src } => matrix::store(world, cta, issue, (matrix, src))?,
        Op::MoveMatrix { dst, src } => matrix::transpose(world, cta, issue, (*dst, *src))?,
        Op::Bar { .. } => return sync::bar(world, cta, issue, (&instr.op, group)),
        _ => return exchange::execute(world, cta, issue, (&instr.op, group)),
    }
    Ok(Flow::Next)
}

/// Where a space stands among generic addresses.
fn offset(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Const | Space::Generic => 0,
    }
}

fn convert_address(
    world: &World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (dst, src, add): (Reg, Src, u64),
) -> Result<(), Trouble> {
    let warp = &mut cta.warps[issue.warp];
    check(warp, &[src], issue.mask)?;
    let out = warp.value(src, world.setup.consts).map(|address| address.wrapping_add(add));
    warp.set_register(dst, &out, issue.mask);
    Ok(())
}

fn special(world: &World<'_>, cta: &mut Cta, issue: Issue, (dst, what): (Reg, Special)) {
    let launch = world.setup.launch;
    let shared = world.setup.shared_bytes();
    let (linear, index, warps) = (cta.linear, cta.index, cta.warps.len());
    let warp = &mut cta.warps[issue.warp];
    let all = |value: u32| [u64::from(value); 32];
    let each = |f: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
    let below = |lane: u32| low_mask(lane) as u32;
    let out: Lanes = match what {
        Special::Tid(axis) => warp.tid[axis].map(u64::from),
        Special::Ntid(axis) => all(launch.block[axis]),
        Special::Ctaid(axis) => all(index[axis]),
        Special::Nctaid(axis) => all(launch.grid[axis]),
        Special::LaneId => each(&|lane| lane),
        Special::WarpId => all(issue.warp as u32),
        Special::NumWarps => all(warps as u32),
        Special::SmId => all(linear % 132),
        Special::Clock { bits } => [world.executed & low_mask(bits); 32],
        Special::LaneMask(MaskKind::Eq) => each(&|lane| 1 << lane),
        Special::LaneMask(MaskKind::Lt) => each(&below),
        Special::LaneMask(MaskKind::Le) => each(&|lane| below(lane + 1)),
        Special::LaneMask(MaskKind::Gt) => each(&|lane| !below(lane + 1)),
        Special::LaneMask(MaskKind::Ge) => each(&|lane| !below(lane)),
        Special::DynamicShared => all(launch.shared_bytes),
        Special::TotalShared => all(shared),
        Special::Zero => all(0),
        Special::One => all(1),
    };
    warp.set_register(dst, &out, issue.mask);
}

/// The lanes that a warp-wide instruction names, once all of them are there.
pub(super) enum Members {
    Complete,
    Wait,
}

/// Checks the member mask of a warp-wide instruction against the lanes that execute it.
pub(super) fn members(
    warp: &Warp,
    members: Src,
    consts: &[Lanes],
    (mask, group): (u32, u32),
) -> Result<Members, Trouble> {
    check(warp, &[members], mask)?;
    let values = warp.value(members, consts);
    let Some(first) = lanes(mask).next() else { return Ok(Members::Complete) };
    let named = values[first] as u32;
    let divergent = |message: String| Err(Trouble::new(FaultKind::DivergentWarp, message));
    if let Some(lane) = lanes(mask).find(|&lane| values[lane] as u32 != named) {
        return divergent(format!("lane {lane} gives another member mask than lane {first}"));
    }
    if mask & !named != 0 {
        return divergent(format!("lanes {mask:#x} execute what is meant for {named:#x}"));
    }
    let missing = named & !mask;
    if missing & warp.exited != 0 {
        let gone = missing & warp.exited;
        return divergent(format!("the member mask names lanes {gone:#x}, which have ended"));
    }
    if missing & group != 0 {
        let off = missing & group;
        return divergent(format!("lanes {off:#x} are named, but predicated off"));
    }
    Ok(if missing == 0 { Members::Complete } else { Members::Wait })
}
