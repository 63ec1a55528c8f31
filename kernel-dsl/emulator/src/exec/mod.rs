//! Runs a launch: CTAs, warps, and the order in which they advance.

mod access;
mod atomic;
mod copies;
mod cta;
mod custody;
mod exchange;
mod matrix;
mod mbarrier;
mod ordering;
mod random;
mod reach;
mod shared;
mod space;
mod step;
mod sync;
mod tensor_map;
mod traffic;
mod wgmma;

use crate::clock::Clock;
use crate::fault::{Fault, FaultKind, Place};
use crate::global::GlobalMemory;
use crate::machine::{Config, Launch, Schedule};
use crate::profile::{Counts, Profile};
use crate::program::{Entry, Lanes, Module};
use cta::{Cta, Remains, Wait};
use random::Random;
use std::collections::HashMap;
use step::Turn;

/// What is launched, and on what.
pub(crate) struct Setup<'a> {
    pub(crate) module: &'a Module,
    pub(crate) entry: &'a Entry,
    pub(crate) consts: &'a [Lanes],
    pub(crate) launch: &'a Launch<'a>,
    pub(crate) config: &'a Config,
    /// A clock that is behind no earlier launch.
    pub(crate) start: u32,
    /// Which launch of the machine this is.
    pub(crate) number: u64,
}

impl Setup<'_> {
    pub(crate) fn warps(&self) -> usize {
        let threads: u32 = self.launch.block.iter().product();
        threads.div_ceil(32) as usize
    }

    /// Bytes of shared memory of a CTA.
    pub(crate) fn shared_bytes(&self) -> u32 {
        let declared = self.entry.shared_bytes.next_multiple_of(self.entry.shared_align.max(1));
        declared + self.launch.shared_bytes
    }
}

/// What everything that runs shares.
pub(crate) struct World<'a> {
    pub(crate) setup: &'a Setup<'a>,
    pub(crate) memory: &'a mut GlobalMemory,
    pub(crate) counts: Vec<Counts>,
    /// What atomic writes to global memory published, by address.
    pub(crate) published: HashMap<u64, Clock>,
    pub(crate) random: Random,
    pub(crate) executed: u64,
}

/// Where another party of a fault stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) warp: u32,
    pub(crate) pc: u32,
    /// Another CTA than the one that found it.
    pub(crate) cta: Option<u32>,
}

/// A fault before its place is known.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
    pub(crate) lane: Option<u32>,
    pub(crate) other: Option<Site>,
    /// Warp and instruction, if they are not those that run.
    pub(crate) at: Option<(u32, u32)>,
}

impl Trouble {
    pub(crate) fn new(kind: FaultKind, message: String) -> Trouble {
        Trouble { kind, message, lane: None, other: None, at: None }
    }

    pub(crate) fn lane(mut self, lane: usize) -> Trouble {
        self.lane = Some(lane as u32);
        self
    }

    pub(crate) fn at(mut self, warp: usize, pc: u32) -> Trouble {
        self.at = Some((warp as u32, pc));
        self
    }

    pub(crate) fn with(mut self, other: Site) -> Trouble {
        self.other = Some(other);
        self
    }
}

/// How a launch ended.
pub(crate) struct Outcome {
    pub(crate) result: Result<Profile, Fault>,
    pub(crate) clock: u32,
}

/// The most local memory of a thread.
const MOST_LOCAL_BYTES: u32 = 512 << 10;

/// Whether an entry can be launched so.
pub(crate) fn check_launch(
    entry: &Entry,
    launch: &Launch<'_>,
    config: &Config,
) -> Result<(), String> {
    let product = |dims: [u32; 3]| dims.iter().map(|&dim| u64::from(dim)).product::<u64>();
    let (threads, ctas) = (product(launch.block), product(launch.grid));
    if threads == 0 || threads > 1024 {
        return Err(format!("a block of {:?} has {threads} threads, not 1 to 1024", launch.block));
    }
    if ctas == 0 || ctas > u64::from(u32::MAX) {
        return Err(format!("a grid of {:?} has {ctas} CTAs", launch.grid));
    }
    if let Some(required) = entry.reqntid.filter(|&required| required != launch.block) {
        return Err(format!("the block is {:?}, `.reqntid` says {required:?}", launch.block));
    }
    if entry.maxntid.is_some_and(|most| threads > product(most)) {
        return Err(format!("a block of {threads} threads is more than `.maxntid` allows"));
    }
    if launch.params.len() != entry.param_bytes() as usize {
        let (given, want) = (launch.params.len(), entry.param_bytes());
        return Err(format!("{given} bytes of parameters, the entry takes {want}"));
    }
    if entry.local_bytes > MOST_LOCAL_BYTES {
        let local = entry.local_bytes;
        return Err(format!("{local} bytes of local memory, a thread has {MOST_LOCAL_BYTES}"));
    }
    let declared = u64::from(entry.shared_bytes) + u64::from(launch.shared_bytes);
    if declared > u64::from(config.shared_bytes) {
        let most = config.shared_bytes;
        return Err(format!("{declared} bytes of shared memory, a CTA has {most}"));
    }
    Ok(())
}

/// Runs a launch.
pub(crate) fn run(setup: &Setup<'_>, memory: &mut GlobalMemory) -> Outcome {
    let seed = match setup.config.schedule {
        Schedule::Random(seed) => seed.wrapping_add(setup.number),
        Schedule::Earliest | Schedule::Latest => 0,
    };
    let world = World {
        setup,
        memory,
        counts: vec![Counts::default(); setup.entry.code.len()],
        published: HashMap::new(),
        random: Random::new(seed),
        executed: 0,
    };
    let mut grid = Grid { world, resident: Vec::new(), spare: Vec::new(), clock: setup.start };
    let result = grid.run();
    let clock = grid.resident.iter().map(Cta::latest).fold(grid.clock, u32::max) + 1;
    let result = result.map(|ctas| Profile {
        ctas,
        ..Profile::collect(setup.module, setup.entry, &grid.world.counts)
    });
    Outcome { result, clock }
}

/// All CTAs of a launch.
struct Grid<'a> {
    world: World<'a>,
    resident: Vec<Cta>,
    /// Memory of CTAs that have ended.
    spare: Vec<Remains>,
    clock: u32,
}

/// The numbers below `count` in the order of a schedule.
fn order(schedule: Schedule, count: u32, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    match schedule {
        Schedule::Earliest => order.reverse(),
        Schedule::Latest => {}
        Schedule::Random(_) => random.shuffle(&mut order),
    }
    order
}

impl Grid<'_> {
    fn run(&mut self) -> Result<u64, Fault> {
        let setup = self.world.setup;
        let schedule = setup.config.schedule;
        let count: u32 = setup.launch.grid.iter().product();
        // Taken from the end.
        let mut waiting = order(schedule, count, &mut self.world.random);
        loop {
            while self.resident.len() < setup.config.resident_ctas.max(1) as usize {
                let Some(linear) = waiting.pop() else { break };
                self.admit(linear);
            }
            if self.resident.is_empty() {
                return Ok(u64::from(count));
            }
            self.advance()?;
            for index in (0..self.resident.len()).rev() {
                if self.resident[index].is_done() {
                    let finished = copies::finish(&mut self.world, &mut self.resident[index]);
                    finished.map_err(|trouble| self.fault(index, 0, trouble))?;
                    let cta = self.resident.remove(index);
                    self.clock = self.clock.max(cta.latest());
                    self.spare.push(cta.remains());
                }
            }
        }
    }

    fn admit(&mut self, linear: u32) {
        let setup = self.world.setup;
        let remains = self.spare.pop().unwrap_or_else(|| Remains::new(setup));
        // Old stamps in the memory of an earlier CTA must lie behind the start of this one.
        self.resident.push(Cta::new(setup, linear, self.clock, remains));
    }

    /// Lets every warp that can go on do so for a while.
    fn advance(&mut self) -> Result<(), Fault> {
        let schedule = self.world.setup.config.schedule;
        let random = matches!(schedule, Schedule::Random(_));
        let mut best = Turn::Stuck;
        let ctas = self.resident.len() as u32;
        for cta in order(schedule, ctas, &mut self.world.random).into_iter().rev() {
            while random && self.world.random.below(4) == 0 && self.copy(cta as usize)? {}
            let warps = self.resident[cta as usize].warps.len() as u32;
            for warp in order(schedule, warps, &mut self.world.random).into_iter().rev() {
                let quantum = match random {
                    true => 1 + self.world.random.below(64),
                    false => 4096,
                };
                best = best.max(self.turn(cta as usize, warp as usize, quantum)?);
            }
        }
        if self.world.executed > self.world.setup.config.max_instructions {
            return Err(self.stuck(FaultKind::Endless, "the launch does not end"));
        }
        if best == Turn::Moved {
            return Ok(());
        }
        // Nobody gets further without what the engines have not done yet.
        for cta in 0..self.resident.len() {
            if self.copy(cta)? {
                return Ok(());
            }
        }
        match best {
            Turn::Stuck => Err(self.diagnose()),
            Turn::Vain | Turn::Moved => Ok(()),
        }
    }

    fn turn(&mut self, cta: usize, warp: usize, quantum: u32) -> Result<Turn, Fault> {
        let state = &mut self.resident[cta];
        let turn = step::run_warp(&mut self.world, state, warp, quantum);
        turn.map_err(|trouble| self.fault(cta, warp, trouble))
    }

    /// Does a piece of a CTA's asynchronous work, if it has any.
    fn copy(&mut self, cta: usize) -> Result<bool, Fault> {
        let done = copies::progress(&mut self.world, &mut self.resident[cta]);
        done.map_err(|trouble| self.fault(cta, 0, trouble))
    }

    fn fault(&self, cta: usize, warp: usize, trouble: Trouble) -> Fault {
        let cta = &self.resident[cta];
        let (warp, pc) = trouble.at.unwrap_or((warp as u32, cta.warps[warp].last_pc));
        let mut place = self.world.place(cta.index, warp, pc);
        place.lane = trouble.lane;
        let others = trouble.other.map(|site| {
            let index = site.cta.map_or(cta.index, |linear| self.world.index(linear));
            self.world.place(index, site.warp, site.pc)
        });
        Fault {
            kind: trouble.kind,
            entry: self.world.setup.entry.name.clone(),
            place: Some(Box::new(place)),
            others: others.into_iter().collect(),
            message: trouble.message,
        }
    }

    /// What it is that nobody can go on.
    fn diagnose(&self) -> Fault {
        let waits = |wait: Wait| {
            let groups = self.resident.iter().flat_map(|cta| &cta.warps);
            groups.flat_map(|warp| &warp.groups).any(|group| group.wait == wait)
        };
        let ended = self.resident.iter().any(|cta| cta.warps.iter().any(cta::Warp::is_done));
        if waits(Wait::Lanes) {
            let at_barrier = self.resident.iter().flat_map(|cta| &cta.warps).any(|warp| {
                warp.groups.iter().any(|group| {
                    let op = &self.world.setup.entry.code[group.pc as usize].op;
                    group.wait == Wait::Lanes && matches!(op, crate::program::Op::Bar { .. })
                })
            });
            return match at_barrier {
                true => self.stuck(
                    FaultKind::DivergentBarrier,
                    "a warp came to a barrier with some of its lanes only",
                ),
                false => self.stuck(
                    FaultKind::DivergentWarp,
                    "lanes wait for others of their warp that do not come",
                ),
            };
        }
        if waits(Wait::Barrier) && ended {
            return self.stuck(
                FaultKind::DivergentBarrier,
                "warps wait at a barrier for others that have ended",
            );
        }
        self.stuck(FaultKind::Deadlock, "no warp can go on")
    }

    /// A fault that concerns all warps that have not ended.
    fn stuck(&self, kind: FaultKind, message: &str) -> Fault {
        let mut places = Vec::new();
        for cta in &self.resident {
            for (warp, index) in cta.warps.iter().zip(0..) {
                for group in &warp.groups {
                    // Who waits at a barrier stands behind it already.
                    let pc = group.pc - u32::from(group.wait == Wait::Barrier);
                    let mut place = self.world.place(cta.index, index, pc);
                    place.lane = Some(group.mask.trailing_zeros());
                    places.push((group.wait != Wait::Lanes, place));
                }
            }
        }
        // Lanes that others of their warp left alone are the cause, the rest waits for them.
        places.sort_by_key(|(follows, _)| *follows);
        let mut places = places.into_iter().map(|(_, place)| place);
        Fault {
            kind,
            entry: self.world.setup.entry.name.clone(),
            place: places.next().map(Box::new),
            others: places.collect(),
            message: message.to_owned(),
        }
    }
}

impl World<'_> {
    fn index(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.setup.launch.grid;
        [linear % x, linear / x % y, linear / x / y]
    }

    fn place(&self, cta: [u32; 3], warp: u32, pc: u32) -> Place {
        let instr = self.setup.entry.code.get(pc as usize);
        Place {
            cta,
            warp,
            lane: None,
            line: instr.map_or(0, |instr| instr.line),
            source: instr.and_then(|i| i.source).and_then(|s| self.setup.module.source(s)),
        }
    }
}
