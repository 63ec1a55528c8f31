//! Barriers in shared memory: arrivals, expected bytes, phases, and who learns what from them.

use super::access::{Issue, lanes};
use super::copies;
use super::cta::{Cta, Wait};
use super::reach::spaces;
use super::shared::{Agent, SharedMemory};
use super::space::{Location, aligned};
use super::step::{Flow, check};
use super::{Trouble, World};
use crate::clock::Clock;
use crate::fault::FaultKind;
use crate::machine::Schedule;
use crate::program::{Mbarrier, MbarrierOp, Reg, Src};
use std::collections::HashMap;

/// The most that a barrier can count.
const MOST: i64 = (1 << 20) - 1;

/// An initialised barrier.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    expected: i64,
    pending: i64,
    bytes: i64,
    phase: u64,
    /// Which one of the CTA's it is, and the stamp of copies that complete on it now.
    slot: usize,
    stamp: u32,
    /// Who initialised it, and whether a fence showed that to the asynchronous proxy.
    maker: usize,
    shown: bool,
    /// What those who arrived in this phase published.
    gathering: Clock,
    /// What is known to those who saw a phase end.
    complete: Clock,
}

/// The barriers of a CTA, by where they stand.
pub(crate) type Barriers = HashMap<usize, Barrier>;

fn misuse<T>(message: String) -> Result<T, Trouble> {
    Err(Trouble::new(FaultKind::BarrierMisuse, message))
}

impl Barrier {
    fn new(count: i64, clock: &Clock, (slot, maker): (usize, usize)) -> Barrier {
        let nothing = Clock::new(clock.cta, clock.own.len(), 0);
        Barrier {
            expected: count,
            pending: count,
            bytes: 0,
            phase: 0,
            slot,
            stamp: clock.latest() + 1,
            maker,
            shown: false,
            gathering: nothing.clone(),
            complete: nothing,
        }
    }

    /// The engine of copies that complete here, and what they are stamped with.
    pub(super) fn engine(&self) -> (usize, u32) {
        (self.slot, self.stamp)
    }

    pub(super) fn latest(&self) -> u32 {
        self.stamp
    }

    fn arrive(&mut self, count: i64) -> Result<(), Trouble> {
        if count < 1 || count > self.pending {
            let pending = self.pending;
            return misuse(format!("{count} arrivals, the phase still waits for {pending}"));
        }
        self.pending -= count;
        Ok(())
    }

    fn expect(&mut self, bytes: i64) -> Result<(), Trouble> {
        self.bytes += bytes;
        if self.bytes.abs() > MOST {
            return misuse(format!(
                "{} pending bytes are more than a barrier can count",
                self.bytes
            ));
        }
        Ok(())
    }

    /// Ends the phase if nothing is missing. Returns whether it did.
    fn settle(&mut self) -> bool {
        if self.pending != 0 || self.bytes != 0 {
            return false;
        }
        self.phase += 1;
        self.stamp += 1;
        self.pending = self.expected;
        let gathered = self.gathering.clone();
        self.complete.join(&gathered);
        true
    }
}

/// The initialised barrier at a place.
pub(super) fn at(barriers: &mut Barriers, offset: usize) -> Result<&mut Barrier, Trouble> {
    match barriers.get_mut(&offset) {
        Some(barrier) => Ok(barrier),
        None => {
            let address = crate::body::SHARED_BASE + offset as u64;
            misuse(format!("there is no initialised mbarrier at {address:#x}"))
        }
    }
}

/// A fence of a warp shows the barriers that it initialised to the asynchronous proxy.
pub(super) fn show(barriers: &mut Barriers, warp: usize) {
    let made = barriers.values_mut().filter(|barrier| barrier.maker == warp);
    made.for_each(|barrier| barrier.shown = true);
}

/// A copy that completes on a barrier must find it.
pub(super) fn check_shown(barriers: &Barriers, offset: usize) -> Result<(), Trouble> {
    if barriers.get(&offset).is_none_or(|barrier| barrier.shown) {
        return Ok(());
    }
    let address = crate::body::SHARED_BASE + offset as u64;
    let message = format!(
        "the mbarrier at {address:#x} was initialised without a fence that shows it to copies"
    );
    Err(Trouble::new(FaultKind::MissingProxyFence, message))
}

/// Bytes of a bulk copy have come.
pub(super) fn complete_bytes(
    cta: &mut Cta,
    offset: usize,
    bytes: i64,
    clock: &Clock,
) -> Result<(), Trouble> {
    let barrier = at(&mut cta.mbarriers, offset)?;
    barrier.gathering.join(clock);
    barrier.expect(-bytes)?;
    cta.event += u64::from(barrier.settle());
    Ok(())
}

/// Copies that an arrival waited for are done.
pub(super) fn arrive_late(cta: &mut Cta, offset: usize, clock: &Clock) -> Result<(), Trouble> {
    let barrier = at(&mut cta.mbarriers, offset)?;
    barrier.gathering.join(clock);
    barrier.arrive(1)?;
    cta.event += u64::from(barrier.settle());
    Ok(())
}

/// Raises the count for an arrival that will come when copies are done.
pub(super) fn announce(cta: &mut Cta, offset: usize) -> Result<(), Trouble> {
    let barrier = at(&mut cta.mbarriers, offset)?;
    barrier.pending += 1;
    if barrier.pending > MOST {
        return misuse("more arrivals than a barrier can count".to_owned());
    }
    Ok(())
}

/// Where a lane's barrier is.
pub(super) fn place(
    world: &World<'_>,
    cta: &Cta,
    mbarrier: &Mbarrier,
    address: u64,
) -> Result<usize, Trouble> {
    aligned(address, 8)?;
    let spaces = spaces(world, cta);
    match spaces.locate(mbarrier.space, address, 8)? {
        Location::Shared(offset) => Ok(offset),
        _ => {
            let message = format!("an mbarrier at {address:#x} is not in shared memory");
            Err(Trouble::new(FaultKind::WrongSpace, message))
        }
    }
}

/// Records that a warp used a barrier object, which must not race with its initialisation.
fn touch(
    shared: &mut SharedMemory,
    offset: usize,
    clock: &Clock,
    (issue, initialises): (Issue, bool),
) -> Result<(), Trouble> {
    let agent = Agent {
        agent: issue.warp,
        stamp: clock.own[issue.warp],
        clock,
        writes: clock,
        strong: !initialises,
        pc: issue.pc,
    };
    match initialises {
        true => shared.record_write(offset, 8, &agent),
        false => shared.record_read(offset, 8, &agent),
    }
}

pub(super) fn execute(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    mbarrier: &Mbarrier,
) -> Result<Flow, Trouble> {
    let base = mbarrier.address.base;
    check(&cta.warps[issue.warp], &[base], issue.mask)?;
    let consts = world.setup.consts;
    let offset = mbarrier.address.offset;
    let addresses =
        cta.warps[issue.warp].value(base, consts).map(|a| a.wrapping_add_signed(offset));
    if let MbarrierOp::Wait { suspends, dst, .. } = mbarrier.op {
        return wait(world, cta, issue, (mbarrier, &addresses), (suspends, dst));
    }
    for lane in lanes(issue.mask) {
        let offset = place(world, cta, mbarrier, addresses[lane]).map_err(|t| t.lane(lane))?;
        let initialises = matches!(mbarrier.op, MbarrierOp::Init { .. } | MbarrierOp::Invalidate);
        let clock = &cta.warps[issue.warp].clock;
        touch(&mut cta.shared, offset, clock, (issue, initialises)).map_err(|t| t.lane(lane))?;
        let one = One { issue, lane, offset };
        change(world, cta, one, mbarrier.op).map_err(|t| t.lane(lane))?;
    }
    Ok(Flow::Next)
}

/// One lane's operation.
#[derive(Clone, Copy)]
struct One {
    issue: Issue,
    lane: usize,
    offset: usize,
}

fn operand(world: &World<'_>, cta: &Cta, one: One, src: Src) -> Result<i64, Trouble> {
    let warp = &cta.warps[one.issue.warp];
    check(warp, &[src], 1 << one.lane)?;
    Ok(i64::from(warp.value(src, world.setup.consts)[one.lane] as u32))
}

fn change(world: &mut World<'_>, cta: &mut Cta, one: One, op: MbarrierOp) -> Result<(), Trouble> {
    let One { issue, offset, .. } = one;
    match op {
        MbarrierOp::Init { count } => {
            let count = operand(world, cta, one, count)?;
            if !(1..=MOST).contains(&count) {
                return misuse(format!("an mbarrier for {count} arrivals"));
            }
            let clock = &cta.warps[issue.warp].clock;
            let barrier = Barrier::new(count, clock, (cta.mbarrier_count, issue.warp));
            cta.mbarrier_count += 1;
            cta.mbarriers.insert(offset, barrier);
            cta.shared.reserve(offset);
        }
        MbarrierOp::Invalidate => {
            cta.retired = cta.retired.max(at(&mut cta.mbarriers, offset)?.latest());
            cta.mbarriers.remove(&offset);
            cta.shared.release(offset);
        }
        MbarrierOp::Expect { bytes } => {
            let bytes = operand(world, cta, one, bytes)?;
            at(&mut cta.mbarriers, offset)?.expect(bytes)?;
        }
        MbarrierOp::Complete { bytes } => {
            let bytes = operand(world, cta, one, bytes)?;
            let clock = cta.warps[issue.warp].publish();
            complete_bytes(cta, offset, bytes, &clock)?;
        }
        MbarrierOp::Arrive { count, expect, drops, incomplete, relaxed, dst } => {
            let count = operand(world, cta, one, count)?;
            let bytes = match expect {
                Some(bytes) => operand(world, cta, one, bytes)?,
                None => 0,
            };
            let arrival = Arrival { count, bytes, drops, incomplete, relaxed };
            arrive(cta, one, arrival, dst)?;
        }
        MbarrierOp::ArriveAfterCopies { counted } => {
            at(&mut cta.mbarriers, offset)?;
            if counted {
                announce(cta, offset)?;
            }
            copies::arrive_after(world, cta, issue, offset)?;
        }
        MbarrierOp::Wait { .. } => {}
    }
    Ok(())
}

/// An arrival's numbers.
struct Arrival {
    count: i64,
    bytes: i64,
    drops: bool,
    incomplete: bool,
    relaxed: bool,
}

fn arrive(cta: &mut Cta, one: One, arrival: Arrival, dst: Option<Reg>) -> Result<(), Trouble> {
    let warp = &mut cta.warps[one.issue.warp];
    let barrier = at(&mut cta.mbarriers, one.offset)?;
    if !arrival.relaxed {
        barrier.gathering.join(&warp.publish());
    }
    let phase = barrier.phase;
    barrier.expect(arrival.bytes)?;
    barrier.arrive(arrival.count)?;
    if arrival.drops {
        barrier.expected -= arrival.count;
    }
    if arrival.incomplete && barrier.pending == 0 {
        return misuse("an arrival marked `.noComplete` completes the phase".to_owned());
    }
    cta.event += u64::from(barrier.settle());
    if let Some(dst) = dst {
        warp.registers[dst.0 as usize][one.lane] = phase;
        warp.note_written(dst, 1 << one.lane);
    }
    Ok(())
}

fn wait(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (mbarrier, addresses): (&Mbarrier, &[u64; 32]),
    (suspends, dst): (bool, crate::program::Pred),
) -> Result<Flow, Trouble> {
    let MbarrierOp::Wait { parity, relaxed, phase, .. } = mbarrier.op else {
        return Ok(Flow::Next);
    };
    check(&cta.warps[issue.warp], &[phase], issue.mask)?;
    let mut done = 0u32;
    for lane in lanes(issue.mask) {
        let offset = place(world, cta, mbarrier, addresses[lane]).map_err(|t| t.lane(lane))?;
        let warp = &mut cta.warps[issue.warp];
        touch(&mut cta.shared, offset, &warp.clock, (issue, false)).map_err(|t| t.lane(lane))?;
        let barrier = at(&mut cta.mbarriers, offset).map_err(|t| t.lane(lane))?;
        let asked = warp.value(phase, world.setup.consts)[lane];
        let complete = match parity {
            true => barrier.phase & 1 != asked & 1,
            false if asked == barrier.phase || asked + 1 == barrier.phase => asked < barrier.phase,
            false => {
                let now = barrier.phase;
                let message = format!("waits for phase {asked}, the barrier is in phase {now}");
                return Err(Trouble::new(FaultKind::BarrierMisuse, message).lane(lane));
            }
        };
        if complete {
            done |= 1 << lane;
            if !relaxed {
                warp.clock.join(&barrier.complete);
            }
        }
    }
    let missing = done != issue.mask;
    let random = matches!(world.setup.config.schedule, Schedule::Random(_));
    // A wait that suspends may still give up early: sometimes it does.
    if missing && suspends && !(random && world.random.below(4) == 0) && done == 0 {
        return Ok(Flow::Again(Wait::Event(cta.event)));
    }
    cta.warps[issue.warp].set_predicate(dst, done, issue.mask);
    Ok(if missing { Flow::Yield } else { Flow::Next })
}
