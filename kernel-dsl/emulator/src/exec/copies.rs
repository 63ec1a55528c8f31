//! Asynchronous copies: queued when they are issued, done when the schedule says so, at the latest
//! when somebody waits for them.

use super::access::{Issue, lanes};
use super::cta::Cta;
use super::mbarrier;
use super::reach::{Reach, Who, global, reach_all, spaces};
use super::space::{Location, PARAM_WINDOW, aligned};
use super::step::check;
use super::tensor_map::{MAP_BYTES, Piece, TensorMap};
use super::wgmma::{self, Multiply};
use super::{Trouble, World, traffic};
use crate::clock::Clock;
use crate::fault::FaultKind;
use crate::machine::Schedule;
use crate::program::{Address, AsyncCopy, BulkCopy, CopyLimit, Lanes, Queue, Space, TensorCopy};

/// Groups of one warp's copies of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Groups that each lane has closed.
    closed: [u32; 32],
    /// What accesses of the engine are stamped with.
    stamp: u32,
    /// The stamp of each closed group.
    stamps: Vec<u32>,
}

impl Groups {
    pub(crate) fn new(stamp: u32) -> Groups {
        Groups { stamp, ..Groups::default() }
    }

    /// The group that is open; for work of whole warps, whose lanes are alike.
    pub(crate) fn open_group(&self) -> u32 {
        self.closed[0]
    }

    pub(crate) fn latest(&self) -> u32 {
        self.stamp
    }
}

/// A row of a copy: what one lane asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    lane: usize,
    dst: usize,
    src: u64,
    /// Bytes that are read; zeros fill the rest.
    read: usize,
}

/// What is left to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Rows {
        rows: Vec<Row>,
        bytes: usize,
    },
    /// Arrives at an mbarrier once earlier rows are done.
    Arrive {
        barrier: usize,
    },
    Inwards {
        pieces: Vec<Piece>,
        bytes: usize,
        barrier: usize,
    },
    Outwards {
        pieces: Vec<Piece>,
        data: Option<Vec<u8>>,
    },
    Multiply(Box<Multiply>),
}

impl Work {
    fn queue(&self) -> Queue {
        match self {
            Work::Rows { .. } | Work::Arrive { .. } => Queue::Copies,
            Work::Inwards { .. } | Work::Outwards { .. } => Queue::Bulk,
            Work::Multiply(_) => Queue::Products,
        }
    }
}

/// Work that an engine has not done yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    warp: usize,
    agent: usize,
    pc: u32,
    mask: u32,
    /// The open group of each lane when it was issued.
    group: [u32; 32],
    /// What the engine knew when it was asked.
    clock: Clock,
    /// What it knew of writes of others.
    writes: Clock,
    work: Work,
}

impl Pending {
    /// Whether it belongs to a group that lanes no longer allow to be pending.
    fn is_due(&self, mask: u32, closed: &[u32; 32], left: u32) -> bool {
        lanes(self.mask & mask).any(|lane| self.group[lane] + left < closed[lane])
    }
}

/// The engine that does some work for a warp, and the stamp of what it will do.
fn engine(cta: &mut Cta, warp: usize, work: &Work) -> Result<(usize, u32), Trouble> {
    let agents = cta.agents();
    let state = &mut cta.warps[warp];
    match work {
        Work::Rows { .. } | Work::Arrive { .. } => Ok((agents.copies(warp), state.copies.stamp)),
        Work::Outwards { .. } => Ok((agents.stores(warp), state.bulk.stamp)),
        Work::Multiply(_) => Ok((agents.products(warp), state.products.stamp)),
        Work::Inwards { barrier, .. } => {
            let (slot, stamp) = mbarrier::at(&mut cta.mbarriers, *barrier)?.engine();
            Ok((agents.barrier(slot), stamp))
        }
    }
}

fn addresses(
    world: &World<'_>,
    cta: &Cta,
    issue: Issue,
    address: Address,
) -> Result<Lanes, Trouble> {
    let warp = &cta.warps[issue.warp];
    check(warp, &[address.base], issue.mask)?;
    let values = warp.value(address.base, world.setup.consts);
    Ok(values.map(|base| base.wrapping_add_signed(address.offset)))
}

fn shared(world: &World<'_>, cta: &Cta, address: u64, bytes: usize) -> Result<usize, Trouble> {
    let spaces = spaces(world, cta);
    match spaces.locate(Space::Shared, address, bytes as u64)? {
        Location::Shared(offset) => Ok(offset),
        _ => Err(Trouble::new(FaultKind::WrongSpace, "not in shared memory".to_owned())),
    }
}

/// `cp.async`
pub(super) fn issue_rows(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    copy: &AsyncCopy,
) -> Result<(), Trouble> {
    let bytes = copy.bytes as usize;
    let dst = addresses(world, cta, issue, copy.dst)?;
    let src = addresses(world, cta, issue, copy.src)?;
    let reads = read_bytes(world, cta, issue, copy)?;
    let mut rows = Vec::with_capacity(32);
    let mut from = 0;
    for lane in lanes(issue.mask) {
        let row = || -> Result<Row, Trouble> {
            aligned(dst[lane], bytes as u64)?;
            if reads[lane] > 0 {
                aligned(src[lane], bytes as u64)?;
            }
            let dst = shared(world, cta, dst[lane], bytes)?;
            Ok(Row { lane, dst, src: src[lane], read: reads[lane] })
        };
        rows.push(row().map_err(|t| t.lane(lane))?);
        from |= u32::from(reads[lane] > 0) << lane;
    }
    let counts = &mut world.counts[issue.pc as usize];
    counts.global_bytes += u64::from(from.count_ones()) * bytes as u64;
    counts.global_sectors += if from == 0 { 0 } else { traffic::sectors(from, &src, bytes) };
    counts.shared_bytes += u64::from(issue.mask.count_ones()) * bytes as u64;
    counts.shared_conflicts += traffic::conflicts(issue.mask, &dst, bytes);
    queue(world, cta, issue, Work::Rows { rows, bytes })
}

fn read_bytes(
    world: &World<'_>,
    cta: &Cta,
    issue: Issue,
    copy: &AsyncCopy,
) -> Result<[usize; 32], Trouble> {
    let all = [copy.bytes as usize; 32];
    let warp = &cta.warps[issue.warp];
    match copy.limit {
        CopyLimit::None => Ok(all),
        CopyLimit::Ignore(condition) => {
            let (holds, missing) = warp.condition(condition);
            if missing & issue.mask != 0 {
                let message = "a predicate is used before it was set".to_owned();
                return Err(Trouble::new(FaultKind::Uninitialised, message));
            }
            let read = |lane: usize| if holds >> lane & 1 == 1 { 0 } else { all[lane] };
            Ok(std::array::from_fn(read))
        }
        CopyLimit::Bytes(src) => {
            check(warp, &[src], issue.mask)?;
            let sizes = warp.value(src, world.setup.consts).map(|size| size as u32 as usize);
            if let Some(lane) = lanes(issue.mask).find(|&lane| sizes[lane] > all[lane]) {
                let message = format!("copies {} of {} bytes", sizes[lane], copy.bytes);
                return Err(Trouble::new(FaultKind::Operand, message).lane(lane));
            }
            Ok(sizes)
        }
    }
}

/// `cp.async.bulk`: each lane asks for a copy of its own.
pub(super) fn issue_bulk(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    copy: &BulkCopy,
) -> Result<(), Trouble> {
    let dst = addresses(world, cta, issue, copy.dst)?;
    let src = addresses(world, cta, issue, copy.src)?;
    check(&cta.warps[issue.warp], &[copy.bytes], issue.mask)?;
    let sizes = *cta.warps[issue.warp].value(copy.bytes, world.setup.consts);
    let barriers = match copy.barrier {
        Some(address) => Some(addresses(world, cta, issue, address)?),
        None => None,
    };
    for lane in lanes(issue.mask) {
        let bytes = sizes[lane] as u32 as usize;
        let (dst, src) = (dst[lane], src[lane]);
        let work = || -> Result<Work, Trouble> {
            for value in [dst, src, bytes as u64] {
                aligned(value, 16)?;
            }
            let (inside, outside) = if barriers.is_some() { (dst, src) } else { (src, dst) };
            let offset = shared(world, cta, inside, bytes)?;
            let piece = |at: usize| Piece {
                shared: offset + at,
                global: Some(outside.wrapping_add(at as u64)),
                bytes: 16,
            };
            let pieces = (0..bytes).step_by(16).map(piece).collect();
            into_work(world, cta, pieces, barriers.map(|barriers| barriers[lane]))
        };
        let work = work().map_err(|t| t.lane(lane))?;
        count_bulk(world, issue, bytes);
        queue(world, cta, Issue { mask: 1 << lane, ..issue }, work)?;
    }
    Ok(())
}

fn count_bulk(world: &mut World<'_>, issue: Issue, bytes: usize) {
    let counts = &mut world.counts[issue.pc as usize];
    counts.global_bytes += bytes as u64;
    counts.global_sectors += bytes.div_ceil(32) as u64;
    counts.shared_bytes += bytes as u64;
}

/// A bulk copy of pieces, inwards if there is a barrier to complete on.
fn into_work(
    world: &World<'_>,
    cta: &Cta,
    pieces: Vec<Piece>,
    barrier: Option<u64>,
) -> Result<Work, Trouble> {
    let Some(barrier) = barrier else {
        return Ok(Work::Outwards { pieces, data: None });
    };
    aligned(barrier, 8)?;
    let barrier = shared(world, cta, barrier, 8)?;
    mbarrier::check_shown(&cta.mbarriers, barrier)?;
    let bytes = pieces.iter().map(|piece| piece.bytes).sum();
    Ok(Work::Inwards { pieces, bytes, barrier })
}

/// `cp.async.bulk.tensor`: each lane asks for a box of its own.
pub(super) fn issue_tensor(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    copy: &TensorCopy,
) -> Result<(), Trouble> {
    let inside = addresses(world, cta, issue, copy.shared)?;
    let maps = addresses(world, cta, issue, copy.map)?;
    let barriers = match copy.barrier {
        Some(address) => Some(addresses(world, cta, issue, address)?),
        None => None,
    };
    check(&cta.warps[issue.warp], &copy.coordinates, issue.mask)?;
    for lane in lanes(issue.mask) {
        let mut coordinates = [0; 5];
        for (coordinate, &src) in coordinates.iter_mut().zip(&copy.coordinates) {
            *coordinate = cta.warps[issue.warp].value(src, world.setup.consts)[lane] as i32;
        }
        let bytes = map_bytes(world, maps[lane]).map_err(|t| t.lane(lane))?;
        let work = || -> Result<(Work, usize), Trouble> {
            let map = TensorMap::parse(&bytes, copy.coordinates.len())?;
            aligned(inside[lane], 128)?;
            let offset = shared(world, cta, inside[lane], map.bytes())?;
            let pieces = map.pieces(coordinates, offset);
            let barrier = barriers.map(|barriers| barriers[lane]);
            Ok((into_work(world, cta, pieces, barrier)?, map.bytes()))
        };
        let (work, bytes) = work().map_err(|t| t.lane(lane))?;
        count_bulk(world, issue, bytes);
        queue(world, cta, Issue { mask: 1 << lane, ..issue }, work)?;
    }
    Ok(())
}

/// The bytes of a tensor map, which is a parameter or lies in global memory.
fn map_bytes(world: &mut World<'_>, address: u64) -> Result<[u8; MAP_BYTES], Trouble> {
    aligned(address, 64)?;
    let params = world.setup.launch.params;
    let offset = match address.wrapping_sub(PARAM_WINDOW) {
        offset if offset < params.len() as u64 => offset,
        _ => address,
    };
    let mut out = [0; MAP_BYTES];
    if let Some(bytes) = params.get(offset as usize..).and_then(|rest| rest.get(..MAP_BYTES)) {
        out.copy_from_slice(bytes);
        return Ok(out);
    }
    let (block, offset) = global(world.memory, address, MAP_BYTES as u64)?;
    out.copy_from_slice(block.bytes(offset, MAP_BYTES));
    Ok(out)
}

/// `cp.async.mbarrier.arrive`
pub(super) fn arrive_after(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    barrier: usize,
) -> Result<(), Trouble> {
    queue(world, cta, issue, Work::Arrive { barrier })?;
    cta.warps[issue.warp].copies.stamp += 1;
    Ok(())
}

pub(super) fn queue(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    work: Work,
) -> Result<(), Trouble> {
    let (agent, stamp) = engine(cta, issue.warp, &work)?;
    cta.shared.used_by(agent, issue.warp);
    let fenced = cta.agents().fenced();
    let warp = &mut cta.warps[issue.warp];
    // What the warp does from here on is not known to the engine.
    let mut clock = warp.publish();
    clock.own[agent] = stamp;
    let mut writes = clock.clone();
    let queue = work.queue();
    if queue != Queue::Copies {
        // Of writes through the generic proxy, what the last proxy fence covered.
        writes.own[..fenced].copy_from_slice(&warp.clock.proxied[..fenced]);
    }
    let group = warp.groups(queue).closed;
    let Issue { warp, mask, pc } = issue;
    cta.pending.push(Pending { warp, agent, pc, mask, group, clock, writes, work });
    if world.setup.config.schedule == Schedule::Earliest {
        complete(world, cta, cta.pending.len() - 1)?;
    }
    Ok(())
}

/// `commit_group`
pub(super) fn commit(cta: &mut Cta, issue: Issue, queue: Queue) {
    let warp = &mut cta.warps[issue.warp];
    let groups = warp.groups_mut(queue);
    for lane in lanes(issue.mask) {
        groups.closed[lane] += 1;
    }
    let most = lanes(issue.mask).map(|lane| groups.closed[lane]).max().unwrap_or(0);
    // A lane that lags behind closes groups that have a stamp already; the later one covers both.
    groups.stamps.resize((most as usize).max(groups.stamps.len()), groups.stamp);
    groups.stamps[most as usize - 1] = groups.stamp;
    groups.stamp += 1;
}

/// `wait_group` and `wait_all`
pub(super) fn wait(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (queue, read, left): (Queue, bool, Option<u32>),
) -> Result<(), Trouble> {
    if left.is_none() {
        commit(cta, issue, queue);
    }
    let left = left.unwrap_or(0);
    let warp = &cta.warps[issue.warp];
    let groups = warp.groups(queue);
    let closed = groups.closed;
    let least = lanes(issue.mask).map(|lane| closed[lane]).min().unwrap_or(0);
    let known = least.checked_sub(left + 1).map(|group| groups.stamps[group as usize]);
    let mut index = 0;
    while index < cta.pending.len() {
        let pending = &cta.pending[index];
        let mine = pending.warp == issue.warp && pending.work.queue() == queue;
        let due = mine
            && !matches!(pending.work, Work::Arrive { .. } | Work::Inwards { .. })
            && pending.is_due(issue.mask, &closed, left);
        if !due {
            index += 1;
        } else if read {
            fetch(world, cta, index)?;
            index += 1;
        } else {
            complete(world, cta, index)?;
            index = 0;
        }
    }
    let agents = cta.agents();
    let agent = match queue {
        Queue::Copies => agents.copies(issue.warp),
        Queue::Bulk => agents.stores(issue.warp),
        Queue::Products => agents.products(issue.warp),
    };
    if queue == Queue::Products {
        wgmma::settle(&mut cta.warps[issue.warp], least.saturating_sub(left));
    }
    if let Some(known) = known {
        let own = &mut cta.warps[issue.warp].clock.own[agent];
        *own = known.max(*own);
    }
    Ok(())
}

/// Does one piece of work that the schedule picks. Returns whether there was any.
pub(super) fn progress(world: &mut World<'_>, cta: &mut Cta) -> Result<bool, Trouble> {
    let count = cta.pending.len();
    if count == 0 {
        return Ok(false);
    }
    let index = match world.setup.config.schedule {
        Schedule::Random(_) => world.random.below(count as u32) as usize,
        Schedule::Earliest | Schedule::Latest => 0,
    };
    complete(world, cta, index)?;
    Ok(true)
}

/// What a CTA leaves undone when it ends.
pub(super) fn finish(world: &mut World<'_>, cta: &mut Cta) -> Result<(), Trouble> {
    let unread = |pending: &&Pending| match &pending.work {
        Work::Inwards { .. } => true,
        Work::Outwards { data, .. } => data.is_none(),
        Work::Rows { .. } | Work::Arrive { .. } | Work::Multiply(_) => false,
    };
    if let Some(pending) = cta.pending.iter().find(unread) {
        let message = "a CTA ends while a bulk copy still uses its shared memory".to_owned();
        let trouble = Trouble::new(FaultKind::MissingWait, message);
        return Err(trouble.at(pending.warp, pending.pc));
    }
    while progress(world, cta)? {}
    Ok(())
}

/// Does a piece of work, and what it must come behind.
fn complete(world: &mut World<'_>, cta: &mut Cta, index: usize) -> Result<(), Trouble> {
    let mut pending = cta.pending.remove(index);
    if matches!(pending.work, Work::Arrive { .. } | Work::Multiply(_)) {
        // Those in front of it are in front of it in the queue, too.
        let mut earlier = 0;
        let mut end = index;
        while earlier < end {
            let other = &cta.pending[earlier];
            if other.warp == pending.warp && other.work.queue() == pending.work.queue() {
                complete(world, cta, earlier)?;
                end = end.saturating_sub(1);
                earlier = 0;
            } else {
                earlier += 1;
            }
        }
    }
    let (warp, pc) = (pending.warp, pending.pc);
    run(world, cta, &mut pending).map_err(|trouble| trouble.at(warp, pc))
}

fn who(pending: &Pending) -> Who<'_> {
    Who {
        agent: pending.agent,
        clock: &pending.clock,
        writes: &pending.writes,
        strong: false,
        pc: pending.pc,
    }
}

/// What a completed piece of work lets others know: that it was done, and nothing else.
fn done(pending: &Pending) -> Clock {
    let mut clock = Clock::new(pending.clock.cta, pending.clock.own.len(), 0);
    clock.own[pending.agent] = pending.clock.own[pending.agent];
    clock
}

fn run(world: &mut World<'_>, cta: &mut Cta, pending: &mut Pending) -> Result<(), Trouble> {
    let done = done(pending);
    let who = who(pending);
    match &pending.work {
        Work::Rows { rows, bytes } => {
            let mut reach = reach_all(world, cta);
            rows.iter().try_for_each(|row| copy_row(&mut reach, row, *bytes, &who))
        }
        Work::Arrive { barrier } => mbarrier::arrive_late(cta, *barrier, &done),
        Work::Inwards { pieces, bytes, barrier } => {
            let mut reach = reach_all(world, cta);
            for piece in pieces {
                let mut data = [0; 16];
                let data = &mut data[..piece.bytes];
                if let Some(address) = piece.global {
                    reach.read(Location::Global(address), data, &who)?;
                }
                reach.write(Location::Shared(piece.shared), data, &who)?;
            }
            mbarrier::complete_bytes(cta, *barrier, *bytes as i64, &done)
        }
        Work::Multiply(multiply) => wgmma::run(world, cta, (pending.warp, &who), multiply),
        Work::Outwards { pieces, data } => {
            let mut reach = reach_all(world, cta);
            let data = match data {
                Some(data) => data.clone(),
                None => read_shared(&mut reach, pieces, &who)?,
            };
            let mut rest = data.as_slice();
            for piece in pieces {
                let (bytes, behind) = rest.split_at(piece.bytes);
                rest = behind;
                if let Some(address) = piece.global {
                    reach.write(Location::Global(address), bytes, &who)?;
                }
            }
            Ok(())
        }
    }
}

fn copy_row(reach: &mut Reach<'_>, row: &Row, bytes: usize, who: &Who<'_>) -> Result<(), Trouble> {
    let mut data = [0; 16];
    let lane = |trouble: Trouble| trouble.lane(row.lane);
    if row.read > 0 {
        reach.read(Location::Global(row.src), &mut data[..row.read], who).map_err(lane)?;
    }
    reach.write(Location::Shared(row.dst), &data[..bytes], who).map_err(lane)
}

fn read_shared(reach: &mut Reach<'_>, pieces: &[Piece], who: &Who<'_>) -> Result<Vec<u8>, Trouble> {
    let mut data = vec![0; pieces.iter().map(|piece| piece.bytes).sum()];
    let mut rest = data.as_mut_slice();
    for piece in pieces {
        let (bytes, behind) = rest.split_at_mut(piece.bytes);
        rest = behind;
        reach.read(Location::Shared(piece.shared), bytes, who)?;
    }
    Ok(data)
}

/// Reads a store's source, so that it may be used again.
fn fetch(world: &mut World<'_>, cta: &mut Cta, index: usize) -> Result<(), Trouble> {
    let pending = cta.pending[index].clone();
    let Work::Outwards { pieces, data: None } = &pending.work else { return Ok(()) };
    let who = who(&pending);
    let read = read_shared(&mut reach_all(world, cta), pieces, &who);
    let read = read.map_err(|trouble| trouble.at(pending.warp, pending.pc))?;
    if let Work::Outwards { data, .. } = &mut cta.pending[index].work {
        *data = Some(read);
    }
    Ok(())
}
