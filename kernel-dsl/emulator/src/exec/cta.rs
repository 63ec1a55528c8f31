//! The state of a CTA that runs: its warps, their lanes, and what they wait for.

use super::Setup;
use super::copies::{Groups, Pending};
use super::custody::Custody;
use super::mbarrier::Barriers;
use super::shared::SharedMemory;
use crate::clock::{Agents, Clock};
use crate::program::{Condition, Lanes, Pred, Queue, Redux, Reg, Src};
use std::collections::HashMap;

/// What lanes that stand at one instruction wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For nothing.
    Ready,
    /// For the other lanes of the warp that the instruction names.
    Lanes,
    /// For a barrier of the CTA.
    Barrier,
    /// For anything to happen after this event.
    Event(u64),
}

/// Lanes of a warp that stand at the same instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) wait: Wait,
    /// Looked for something in vain; others go first.
    pub(crate) yielded: bool,
}

/// Threads that share an instruction stream, as far as they do not diverge.
pub(crate) struct Warp {
    pub(crate) index: usize,
    pub(crate) registers: Vec<Lanes>,
    /// Lanes that a register was written for.
    pub(crate) written: Vec<u32>,
    pub(crate) predicates: Vec<u32>,
    pub(crate) predicates_written: Vec<u32>,
    pub(crate) groups: Vec<Group>,
    /// Lanes that the block has threads for.
    pub(crate) live: u32,
    pub(crate) exited: u32,
    pub(crate) tid: [[u32; 32]; 3],
    pub(crate) local: Vec<u8>,
    pub(crate) local_written: Vec<bool>,
    pub(crate) clock: Clock,
    /// What it knew at its last fence: a later atomic write publishes that.
    pub(crate) fenced: Option<Clock>,
    /// What atomic reads saw: the next fence makes it known.
    pub(crate) seen: Option<Clock>,
    pub(crate) copies: Groups,
    pub(crate) bulk: Groups,
    pub(crate) products: Groups,
    /// Registers that tensor-core operations work with.
    pub(crate) custody: Custody,
    /// Where it stood last, for reports.
    pub(crate) last_pc: u32,
}

impl Warp {
    /// The mask of lanes for which a condition holds, and those for which it was never set.
    pub(crate) fn condition(&self, condition: Condition) -> (u32, u32) {
        match condition {
            Condition::Const(value) => (if value { u32::MAX } else { 0 }, 0),
            Condition::Pred { pred, negated } => {
                let value = self.predicates[pred.0 as usize];
                let missing = !self.predicates_written[pred.0 as usize];
                (if negated { !value } else { value }, missing)
            }
        }
    }

    pub(crate) fn set_register(&mut self, reg: Reg, value: &Lanes, mask: u32) {
        let target = &mut self.registers[reg.0 as usize];
        if mask == u32::MAX {
            *target = *value;
        } else {
            for (lane, (target, &value)) in target.iter_mut().zip(value).enumerate() {
                if mask >> lane & 1 == 1 {
                    *target = value;
                }
            }
        }
        self.note_written(reg, mask);
    }

    /// Notes that a thread wrote a register.
    pub(crate) fn note_written(&mut self, reg: Reg, mask: u32) {
        self.written[reg.0 as usize] |= mask;
        self.custody.write(reg);
    }

    pub(crate) fn set_predicate(&mut self, pred: Pred, value: u32, mask: u32) {
        let target = &mut self.predicates[pred.0 as usize];
        *target = *target & !mask | value & mask;
        self.predicates_written[pred.0 as usize] |= mask;
    }

    /// A source's lanes.
    pub(crate) fn value<'v>(&'v self, src: Src, consts: &'v [Lanes]) -> &'v Lanes {
        match src {
            Src::Reg(reg) => &self.registers[reg.0 as usize],
            Src::Const(index) => &consts[index as usize],
        }
    }

    /// Lanes of a mask for which a source was never written.
    pub(crate) fn missing(&self, src: Src, mask: u32) -> u32 {
        match src {
            Src::Reg(reg) => mask & !self.written[reg.0 as usize],
            Src::Const(_) => 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.groups.is_empty()
    }

    /// The groups of a kind of asynchronous work.
    pub(crate) fn groups(&self, queue: Queue) -> &Groups {
        match queue {
            Queue::Copies => &self.copies,
            Queue::Bulk => &self.bulk,
            Queue::Products => &self.products,
        }
    }

    pub(crate) fn groups_mut(&mut self, queue: Queue) -> &mut Groups {
        match queue {
            Queue::Copies => &mut self.copies,
            Queue::Bulk => &mut self.bulk,
            Queue::Products => &mut self.products,
        }
    }

    /// Publishes what the warp did: returns its clock, and begins a new stretch.
    pub(crate) fn publish(&mut self) -> Clock {
        let clock = self.clock.clone();
        self.clock.tick(self.index);
        clock
    }
}

/// A barrier of a CTA.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    /// Warps that it waits for; zero while nobody came.
    pub(crate) expected: u32,
    pub(crate) arrived: u32,
    /// Warps that wait, and with which lanes.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) clock: Option<Clock>,
    pub(crate) reduction: Option<Redux>,
    pub(crate) votes: Votes,
}

/// A warp that waits at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) warp: usize,
    pub(crate) mask: u32,
    pub(crate) pc: u32,
}

/// Predicates that came to a barrier's reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Votes {
    pub(crate) for_it: u32,
    pub(crate) against: u32,
}

/// A CTA.
pub(crate) struct Cta {
    pub(crate) linear: u32,
    pub(crate) index: [u32; 3],
    pub(crate) warps: Vec<Warp>,
    pub(crate) shared: SharedMemory,
    pub(crate) barriers: Vec<Barrier>,
    /// What atomic writes to shared memory published, by address.
    pub(crate) published: HashMap<u64, Clock>,
    pub(crate) mbarriers: Barriers,
    /// Barriers that were ever initialised.
    pub(crate) mbarrier_count: usize,
    /// The latest stamp of barriers that are no more.
    pub(crate) retired: u32,
    /// Copies that were issued and not done.
    pub(crate) pending: Vec<Pending>,
    /// Counts what somebody may wait for.
    pub(crate) event: u64,
}

fn warp(setup: &Setup<'_>, index: usize, clock: &Clock, mut spare: Spare) -> Warp {
    let entry = setup.entry;
    let [x, y, z] = setup.launch.block;
    let threads = x * y * z;
    let first = index as u32 * 32;
    let mut tid = [[0; 32]; 3];
    for lane in 0..32 {
        let thread = first + lane;
        tid[0][lane as usize] = thread % x;
        tid[1][lane as usize] = thread / x % y;
        tid[2][lane as usize] = thread / x / y;
    }
    // Without the check, everything counts as written from the start.
    let unset = if setup.config.check_uninitialised { 0 } else { u32::MAX };
    // What an earlier CTA left in them is not read, because nothing counts as written.
    spare.registers.resize(entry.registers as usize, [0; 32]);
    spare.local.resize(entry.local_bytes as usize * 32, 0);
    let live = crate::types::low_mask((threads - first).min(32)) as u32;
    let mut clock = clock.clone();
    let start = clock.own[index];
    clock.tick(index);
    Warp {
        index,
        registers: spare.registers,
        written: vec![unset; entry.registers as usize],
        predicates: vec![0; entry.predicates as usize],
        predicates_written: vec![unset; entry.predicates as usize],
        groups: vec![Group { pc: 0, mask: live, wait: Wait::Ready, yielded: false }],
        live,
        exited: !live,
        tid,
        local: spare.local,
        local_written: vec![false; entry.local_bytes as usize * 32],
        clock,
        fenced: None,
        seen: None,
        copies: Groups::new(start + 1),
        bulk: Groups::new(start + 1),
        products: Groups::new(start + 1),
        custody: Custody::new(entry.registers),
        last_pc: 0,
    }
}

/// Memory of a warp that has ended, for the next one.
#[derive(Default)]
pub(crate) struct Spare {
    registers: Vec<Lanes>,
    local: Vec<u8>,
}

/// Memory of a CTA that has ended.
pub(crate) struct Remains {
    shared: SharedMemory,
    warps: Vec<Spare>,
}

impl Remains {
    pub(crate) fn new(setup: &Setup<'_>) -> Remains {
        let warps = setup.warps();
        let shared = SharedMemory::new(setup.shared_bytes() as usize, warps);
        Remains { shared, warps: (0..warps).map(|_| Spare::default()).collect() }
    }
}

impl Cta {
    pub(crate) fn new(setup: &Setup<'_>, linear: u32, start: u32, remains: Remains) -> Cta {
        let [x, y, _] = setup.launch.grid;
        let index = [linear % x, linear / x % y, linear / x / y];
        let warps = setup.warps();
        let clock = Clock::new(linear, Agents { warps }.count(), start);
        Cta {
            linear,
            index,
            warps: remains
                .warps
                .into_iter()
                .enumerate()
                .map(|(index, spare)| warp(setup, index, &clock, spare))
                .collect(),
            shared: remains.shared,
            barriers: vec![Barrier::default(); 16],
            published: HashMap::new(),
            mbarriers: Barriers::new(),
            mbarrier_count: 0,
            retired: start,
            pending: Vec::new(),
            event: 0,
        }
    }

    /// What can be used again.
    pub(crate) fn remains(mut self) -> Remains {
        self.shared.reset();
        let spare = |warp: Warp| Spare { registers: warp.registers, local: warp.local };
        Remains { shared: self.shared, warps: self.warps.into_iter().map(spare).collect() }
    }

    pub(crate) fn agents(&self) -> Agents {
        Agents { warps: self.warps.len() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.warps.iter().all(Warp::is_done)
    }

    /// A clock that is behind nothing that happened here.
    pub(crate) fn latest(&self) -> u32 {
        let warps = self.warps.iter().map(|warp| {
            warp.clock
                .latest()
                .max(warp.copies.latest())
                .max(warp.bulk.latest())
                .max(warp.products.latest())
        });
        let barriers = self.mbarriers.values().map(super::mbarrier::Barrier::latest);
        warps.chain(barriers).fold(self.retired, u32::max)
    }
}
