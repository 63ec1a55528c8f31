//! Loads, stores and atomic operations of a warp's lanes.

use super::cta::{Cta, Warp};
use super::ordering::{self, Toucher};
use super::shared::{Agent, SharedMemory};
use super::{Trouble, World};
use crate::body::{LOCAL_BASE, SHARED_BASE};
use crate::clock::{Agents, Clock};
use crate::fault::FaultKind;
use crate::global::{GLOBAL_BASE, GlobalMemory, Miss};
use crate::program::{Access, Lanes, Order, Reg, Space, Src, Update};
use crate::types::{low_mask, sign_extend};

/// Where shared memory stands among generic addresses.
pub(super) const SHARED_WINDOW: u64 = 0x5000_0000_0000;
/// Where local memory stands among generic addresses.
pub(super) const LOCAL_WINDOW: u64 = 0x6000_0000_0000;
/// Where parameters stand among generic addresses.
pub(super) const PARAM_WINDOW: u64 = 0x4000_0000_0000;
const WINDOW_BYTES: u64 = 1 << 32;

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Global(u64),
    Shared(usize),
    Local(usize),
    Param(usize),
}

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// How large the spaces are that an address may lie in.
#[derive(Clone, Copy)]
pub(super) struct Spaces {
    pub(super) shared: u64,
    pub(super) local: u64,
    pub(super) param: u64,
}

fn window(address: u64, start: u64) -> Option<u64> {
    let offset = address.wrapping_sub(start);
    (offset < WINDOW_BYTES).then_some(offset)
}

/// What an address is called in messages.
fn describe(address: u64) -> &'static str {
    match address {
        GLOBAL_BASE.. => "a global address",
        _ if window(address, SHARED_WINDOW).is_some() => "a generic address of shared memory",
        _ if window(address, LOCAL_WINDOW).is_some() => "a generic address of local memory",
        0..SHARED_BASE => "next to null",
        SHARED_BASE..WINDOW_BYTES => "an address inside a small space",
        _ => "an address in no space",
    }
}

impl Spaces {
    fn inside(
        (space, name): (Space, &str),
        address: u64,
        (base, size, bytes): (u64, u64, u64),
    ) -> Result<usize, Trouble> {
        let offset = address.wrapping_sub(base);
        if offset < size && bytes <= size - offset {
            return Ok(offset as usize);
        }
        let kind = match address {
            0..WINDOW_BYTES => FaultKind::OutOfBounds,
            _ => FaultKind::WrongSpace,
        };
        let what = describe(address);
        Err(Trouble::new(
            kind,
            format!(
                "{bytes} bytes at {name} address {address:#x}, which is {what}; {space:?} memory \
                 has {size} bytes from {base:#x}"
            ),
        ))
    }

    pub(super) fn locate(
        self,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Result<Location, Trouble> {
        let shared = (SHARED_BASE, self.shared, bytes);
        let local = (LOCAL_BASE, self.local, bytes);
        match space {
            Space::Param => {
                let param = (0, self.param, bytes);
                Self::inside((space, "param"), address, param).map(Location::Param)
            }
            Space::Shared => Self::inside((space, "shared"), address, shared).map(Location::Shared),
            Space::Local => Self::inside((space, "local"), address, local).map(Location::Local),
            Space::Global | Space::Const if address < GLOBAL_BASE => {
                let kind = match address {
                    0..SHARED_BASE => FaultKind::OutOfBounds,
                    _ => FaultKind::WrongSpace,
                };
                let what = describe(address);
                let message = format!("{bytes} bytes at global address {address:#x}: it is {what}");
                Err(Trouble::new(kind, message))
            }
            Space::Global | Space::Const => Ok(Location::Global(address)),
            Space::Generic => {
                if let Some(address) = window(address, SHARED_WINDOW) {
                    return Self::inside((Space::Shared, "shared"), address, shared)
                        .map(Location::Shared);
                }
                if let Some(address) = window(address, LOCAL_WINDOW) {
                    return Self::inside((Space::Local, "local"), address, local)
                        .map(Location::Local);
                }
                if let Some(address) = window(address, PARAM_WINDOW) {
                    return self.locate(Space::Param, address, bytes);
                }
                self.locate(Space::Global, address, bytes)
            }
        }
    }
}

/// Finds a global range, or says what is there instead.
pub(super) fn global(
    memory: &mut GlobalMemory,
    address: u64,
    bytes: u64,
) -> Result<(&mut crate::global::Block, usize), Trouble> {
    memory.find(address, bytes).map_err(|miss| {
        let (kind, what) = match miss {
            Miss::Outside => (FaultKind::OutOfBounds, "outside every allocation".to_owned()),
            Miss::PastEnd(base, len) => (
                FaultKind::OutOfBounds,
                format!(
                    "{} bytes into the allocation at {base:#x}, which has {len}",
                    address - base
                ),
            ),
            Miss::Freed(base, len) => {
                (FaultKind::Freed, format!("in {len} bytes at {base:#x} that were freed"))
            }
        };
        Trouble::new(kind, format!("{bytes} bytes at global address {address:#x} are {what}"))
    })
}

pub(super) fn aligned(address: u64, bytes: u64) -> Result<(), Trouble> {
    if address.is_multiple_of(bytes) {
        return Ok(());
    }
    let message = format!("address {address:#x} is no multiple of the access's {bytes} bytes");
    Err(Trouble::new(FaultKind::Misaligned, message))
}

/// The addresses that lanes access.
pub(super) fn addresses(warp: &Warp, access: &Access, consts: &[Lanes]) -> Lanes {
    let mut out = *warp.value(access.address.base, consts);
    for address in &mut out {
        *address = address.wrapping_add_signed(access.address.offset);
    }
    out
}

/// The memory that an instruction of one warp reaches.
pub(super) struct Reach<'m> {
    pub(super) memory: &'m mut GlobalMemory,
    pub(super) shared: &'m mut SharedMemory,
    pub(super) spaces: Spaces,
    pub(super) params: &'m [u8],
    pub(super) agents: Agents,
    pub(super) start: u32,
    pub(super) check_uninitialised: bool,
}

/// Who accesses memory: a warp, or an engine that works for it.
#[derive(Clone, Copy)]
pub(super) struct Who<'c> {
    pub(super) agent: usize,
    pub(super) clock: &'c Clock,
    /// What it knows of others' writes to shared memory.
    pub(super) writes: &'c Clock,
    pub(super) strong: bool,
    pub(super) pc: u32,
}

impl<'c> Who<'c> {
    /// A warp that makes plain accesses.
    pub(super) fn weak(issue: Issue, clock: &'c Clock) -> Who<'c> {
        Who { agent: issue.warp, clock, writes: clock, strong: false, pc: issue.pc }
    }

    pub(super) fn agent(&self) -> Agent<'c> {
        Agent {
            agent: self.agent,
            stamp: self.clock.own[self.agent],
            clock: self.clock,
            writes: self.writes,
            strong: self.strong,
            pc: self.pc,
        }
    }

    fn toucher(&self, (agents, start): (Agents, u32)) -> Toucher<'c> {
        let Who { agent, clock, strong, pc, .. } = *self;
        Toucher { clock, agents, agent, strong, pc, start }
    }
}

fn uninitialised(space: &str, address: u64) -> Trouble {
    let message = format!("{space} memory at {address:#x} is read before it was written");
    Trouble::new(FaultKind::Uninitialised, message)
}

impl Reach<'_> {
    /// Reads bytes from global or shared memory, with every check.
    pub(super) fn read(
        &mut self,
        location: Location,
        out: &mut [u8],
        who: &Who<'_>,
    ) -> Result<(), Trouble> {
        let len = out.len();
        match location {
            Location::Global(address) => {
                let (block, offset) = global(self.memory, address, len as u64)?;
                if self.check_uninitialised && !block.is_written(offset, len) {
                    return Err(uninitialised("global", address));
                }
                out.copy_from_slice(block.bytes(offset, len));
                if block.read_only {
                    return Ok(());
                }
                who.toucher((self.agents, self.start)).read(block, offset, len)
            }
            Location::Shared(offset) => {
                self.shared.read(offset, len, &who.agent())?;
                if self.check_uninitialised && !self.shared.is_written(offset, len) {
                    return Err(uninitialised("shared", SHARED_BASE + offset as u64));
                }
                out.copy_from_slice(&self.shared.bytes[offset..offset + len]);
                Ok(())
            }
            Location::Param(offset) => {
                out.copy_from_slice(&self.params[offset..offset + len]);
                Ok(())
            }
            Location::Local(_) => {
                Err(Trouble::new(FaultKind::WrongSpace, "local memory is not allowed here".into()))
            }
        }
    }

    /// Writes bytes to global or shared memory, with every check.
    pub(super) fn write(
        &mut self,
        location: Location,
        bytes: &[u8],
        who: &Who<'_>,
    ) -> Result<(), Trouble> {
        let len = bytes.len();
        match location {
            Location::Global(address) => {
                let (block, offset) = global(self.memory, address, len as u64)?;
                if block.read_only {
                    let message = format!("constant memory at {address:#x} is written");
                    return Err(Trouble::new(FaultKind::ReadOnly, message));
                }
                who.toucher((self.agents, self.start)).write(block, offset, len)?;
                block.bytes_mut(offset, len).copy_from_slice(bytes);
                block.mark_written(offset, len);
                Ok(())
            }
            Location::Shared(offset) => {
                self.shared.write(offset, len, &who.agent())?;
                self.shared.bytes[offset..offset + len].copy_from_slice(bytes);
                self.shared.mark_written(offset, len);
                Ok(())
            }
            Location::Local(_) | Location::Param(_) => {
                let message = "this space cannot be written here".to_owned();
                Err(Trouble::new(FaultKind::WrongSpace, message))
            }
        }
    }
}

/// How large the spaces of a CTA are.
pub(super) fn spaces(world: &World<'_>, cta: &Cta) -> Spaces {
    let setup = world.setup;
    Spaces {
        shared: cta.shared.len(),
        local: u64::from(setup.entry.local_bytes),
        param: setup.launch.params.len() as u64,
    }
}

/// The memory that warp `index` reaches, and the warp.
pub(super) fn reach<'m>(
    world: &'m mut World<'_>,
    cta: &'m mut Cta,
    index: usize,
) -> (Reach<'m>, &'m mut Warp) {
    let spaces = spaces(world, cta);
    let Cta { shared, warps, .. } = cta;
    (reach_parts(world, shared, spaces), &mut warps[index])
}

/// The memory that an engine of a CTA reaches.
pub(super) fn reach_all<'m>(world: &'m mut World<'_>, cta: &'m mut Cta) -> Reach<'m> {
    let spaces = spaces(world, cta);
    reach_parts(world, &mut cta.shared, spaces)
}

fn reach_parts<'m>(
    world: &'m mut World<'_>,
    shared: &'m mut SharedMemory,
    spaces: Spaces,
) -> Reach<'m> {
    let setup = world.setup;
    Reach {
        memory: &mut *world.memory,
        shared,
        spaces,
        params: setup.launch.params,
        agents: Agents { warps: setup.warps() },
        start: setup.start,
        check_uninitialised: setup.config.check_uninitialised,
    }
}

/// What an instruction does for which lanes.
#[derive(Clone, Copy)]
pub(super) struct Issue {
    pub(super) warp: usize,
    pub(super) mask: u32,
    pub(super) pc: u32,
}

/// A number of one, two, four or eight bytes.
fn element(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        _ => bytes.first().copied().map_or(0, u64::from),
    }
}

/// Writes the low bytes of a number.
fn put(bytes: &mut [u8], value: u64) {
    match bytes.len() {
        4 => bytes.copy_from_slice(&(value as u32).to_le_bytes()),
        8 => bytes.copy_from_slice(&value.to_le_bytes()),
        2 => bytes.copy_from_slice(&(value as u16).to_le_bytes()),
        _ => bytes[0] = value as u8,
    }
}

/// A load's destination.
pub(super) struct Target<'a> {
    pub(super) dst: &'a [Option<Reg>],
    pub(super) sign: Option<u32>,
    pub(super) bits: u32,
}

/// Lanes that follow each other in memory, or that all have one address.
struct Run {
    mask: u32,
    address: u64,
    /// Bytes from one lane to the next.
    stride: usize,
    /// Bytes in all.
    bytes: usize,
}

/// Splits lanes into runs, so that what is contiguous is checked and moved at once.
fn runs(mask: u32, addresses: &Lanes, total: usize) -> impl Iterator<Item = Run> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let first = lanes(rest).next()?;
        let address = addresses[first];
        let mut run = Run { mask: 1 << first, address, stride: total, bytes: total };
        for lane in lanes(rest).skip(1) {
            let count = run.mask.count_ones() as u64;
            if count == 1 && addresses[lane] == address {
                run.stride = 0;
            }
            if addresses[lane] != address.wrapping_add(count * run.stride as u64) {
                break;
            }
            run.mask |= 1 << lane;
            run.bytes += run.stride;
        }
        rest &= !run.mask;
        Some(run)
    })
}

/// Does something for a run at once, or, if that fails, lane by lane to find out which it is.
fn attempt(
    run: &Run,
    total: usize,
    mut f: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let whole = f(run.address, 0..run.bytes);
    let Err(trouble) = whole else { return Ok(()) };
    for (index, lane) in lanes(run.mask).enumerate() {
        let at = index * run.stride;
        f(run.address + at as u64, at..at + total).map_err(|trouble| trouble.lane(lane))?;
    }
    Err(trouble)
}

/// The most bytes that a warp moves by one instruction.
const MOST_BYTES: usize = 32 * 32;

pub(super) fn load(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    access: &Access,
    target: &Target<'_>,
) -> Result<(), Trouble> {
    let consts = world.setup.consts;
    let addresses = addresses(&cta.warps[issue.warp], access, consts);
    let size = access.bytes as usize;
    let total = size * target.dst.len();
    count(world, issue, access.space, (&addresses, total));
    if access.order != Order::Weak {
        observe(world, cta, issue, access, &addresses);
    }
    let (mut reach, warp) = reach(world, cta, issue.warp);
    let mut bytes = [0; MOST_BYTES];
    let strong = access.order != Order::Weak;
    if access.space == Space::Local || is_local(access.space, issue.mask, &addresses) {
        for lane in lanes(issue.mask) {
            let part = &mut bytes[..total];
            let moved = local(&reach, access.space, (addresses[lane], total));
            let moved = moved.and_then(|offset| read_local(warp, lane, offset, part));
            moved.map_err(|trouble| trouble.lane(lane))?;
            spread(warp, target, (lane, size), &bytes[..total]);
        }
    } else {
        for run in runs(issue.mask, &addresses, total) {
            let who = Who { strong, ..Who::weak(issue, &warp.clock) };
            attempt(&run, total, |address, range| {
                aligned(address, total as u64)?;
                let location = reach.spaces.locate(access.space, address, range.len() as u64)?;
                reach.read(location, &mut bytes[range], &who)
            })?;
            for (index, lane) in lanes(run.mask).enumerate() {
                spread(warp, target, (lane, size), &bytes[index * run.stride..][..total]);
            }
        }
    }
    for dst in target.dst.iter().flatten() {
        warp.written[dst.0 as usize] |= issue.mask;
    }
    Ok(())
}

/// Gives a lane's registers what was read for it.
fn spread(warp: &mut Warp, target: &Target<'_>, (lane, size): (usize, usize), bytes: &[u8]) {
    for (dst, part) in target.dst.iter().zip(bytes.chunks_exact(size)) {
        let Some(dst) = dst else { continue };
        let value = match target.sign {
            Some(bits) => sign_extend(element(part), bits) as u64 & low_mask(target.bits),
            None => element(part),
        };
        warp.registers[dst.0 as usize][lane] = value;
    }
}

/// Whether generic addresses are of local memory, of which every lane has its own.
fn is_local(space: Space, mask: u32, addresses: &Lanes) -> bool {
    let generic = space == Space::Generic;
    generic && lanes(mask).any(|lane| window(addresses[lane], LOCAL_WINDOW).is_some())
}

fn local(
    reach: &Reach<'_>,
    space: Space,
    (address, total): (u64, usize),
) -> Result<usize, Trouble> {
    aligned(address, total as u64)?;
    match reach.spaces.locate(space, address, total as u64)? {
        Location::Local(offset) => Ok(offset),
        _ => {
            let message = "lanes of one instruction mix local memory with another".to_owned();
            Err(Trouble::new(FaultKind::WrongSpace, message))
        }
    }
}

fn read_local(warp: &Warp, lane: usize, offset: usize, out: &mut [u8]) -> Result<(), Trouble> {
    let per_lane = warp.local.len() / 32;
    let range = lane * per_lane + offset..lane * per_lane + offset + out.len();
    if !warp.local_written[range.clone()].iter().all(|&written| written) {
        return Err(uninitialised("local", LOCAL_BASE + offset as u64));
    }
    out.copy_from_slice(&warp.local[range]);
    Ok(())
}

pub(super) fn store(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    access: &Access,
    src: &[Src],
) -> Result<(), Trouble> {
    let consts = world.setup.consts;
    let addresses = addresses(&cta.warps[issue.warp], access, consts);
    let size = access.bytes as usize;
    let total = size * src.len();
    count(world, issue, access.space, (&addresses, total));
    if access.order != Order::Weak {
        publish(world, cta, issue, access, &addresses);
    }
    let (mut reach, warp) = reach(world, cta, issue.warp);
    let mut values = [0; MOST_BYTES];
    for lane in lanes(issue.mask) {
        let bytes = &mut values[lane * total..][..total];
        for (part, &src) in bytes.chunks_exact_mut(size).zip(src) {
            put(part, warp.value(src, consts)[lane]);
        }
    }
    if access.space == Space::Local || is_local(access.space, issue.mask, &addresses) {
        for lane in lanes(issue.mask) {
            let offset = local(&reach, access.space, (addresses[lane], total));
            let offset = offset.map_err(|trouble| trouble.lane(lane))?;
            write_local(warp, lane, offset, &values[lane * total..][..total]);
        }
        return Ok(());
    }
    let strong = access.order != Order::Weak;
    for run in runs(issue.mask, &addresses, total) {
        let who = Who { strong, ..Who::weak(issue, &warp.clock) };
        let bytes = gather(&run, total, &values);
        attempt(&run, total, |address, range| {
            aligned(address, total as u64)?;
            let location = reach.spaces.locate(access.space, address, range.len() as u64)?;
            reach.write(location, &bytes[range], &who)
        })?;
    }
    conflict(issue.mask, &addresses, (&values, total))
}

/// The bytes that a run stores; of lanes with one address, the last wins.
fn gather(run: &Run, total: usize, values: &[u8; MOST_BYTES]) -> [u8; MOST_BYTES] {
    let mut out = [0; MOST_BYTES];
    for (index, lane) in lanes(run.mask).enumerate() {
        out[index * run.stride..][..total].copy_from_slice(&values[lane * total..][..total]);
    }
    out
}

fn write_local(warp: &mut Warp, lane: usize, offset: usize, bytes: &[u8]) {
    let per_lane = warp.local.len() / 32;
    let start = lane * per_lane + offset;
    warp.local[start..start + bytes.len()].copy_from_slice(bytes);
    warp.local_written[start..start + bytes.len()].fill(true);
}

/// Finds two lanes that stored different values to one address.
fn conflict(
    mask: u32,
    addresses: &Lanes,
    (values, total): (&[u8; MOST_BYTES], usize),
) -> Result<(), Trouble> {
    let mut last: Option<u64> = None;
    let rising = lanes(mask).all(|lane| {
        let rises = last.is_none_or(|last| addresses[lane] >= last + total as u64);
        last = Some(addresses[lane]);
        rises
    });
    if rising {
        return Ok(());
    }
    let mut order: Vec<usize> = lanes(mask).collect();
    order.sort_by_key(|&lane| addresses[lane]);
    for pair in order.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        // Stores are aligned to their size, so two overlap only if they are equal.
        let value = |lane: usize| &values[lane * total..][..total];
        if addresses[a] == addresses[b] && value(a) != value(b) {
            let address = addresses[a];
            let message = format!("lanes {a} and {b} store different values to {address:#x}");
            return Err(Trouble::new(FaultKind::LaneConflict, message).lane(a.min(b)));
        }
    }
    Ok(())
}

/// An atomic operation's parts.
pub(super) struct AtomicParts<'a> {
    pub(super) f: &'a Update,
    pub(super) dst: Option<&'a [Reg]>,
    pub(super) src: &'a [[Src; 2]],
}

pub(super) fn atomic(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    access: &Access,
    parts: &AtomicParts<'_>,
) -> Result<(), Trouble> {
    let consts = world.setup.consts;
    let addresses = addresses(&cta.warps[issue.warp], access, consts);
    let size = access.bytes as usize;
    let total = size * parts.src.len();
    count(world, issue, access.space, (&addresses, total));
    observe(world, cta, issue, access, &addresses);
    publish(world, cta, issue, access, &addresses);
    let (mut reach, warp) = reach(world, cta, issue.warp);
    for lane in lanes(issue.mask) {
        let who = Who { strong: true, ..Who::weak(issue, &warp.clock) };
        let address = addresses[lane];
        aligned(address, total as u64).map_err(|t| t.lane(lane))?;
        for (index, &[b, c]) in parts.src.iter().enumerate() {
            let address = address + (index * size) as u64;
            let location = reach.spaces.locate(access.space, address, size as u64);
            let location = location.map_err(|t| t.lane(lane))?;
            let mut bytes = [0; 8];
            reach.read(location, &mut bytes[..size], &who).map_err(|t| t.lane(lane))?;
            let old = u64::from_le_bytes(bytes);
            let (b, c) = (warp.value(b, consts)[lane], warp.value(c, consts)[lane]);
            let new = (parts.f)(old, b, c).to_le_bytes();
            reach.write(location, &new[..size], &who).map_err(|t| t.lane(lane))?;
            if let Some(dst) = parts.dst {
                warp.registers[dst[index].0 as usize][lane] = old;
            }
        }
    }
    for dst in parts.dst.into_iter().flatten() {
        warp.written[dst.0 as usize] |= issue.mask;
    }
    Ok(())
}

/// Whether lanes' addresses are of shared memory, and what to key them by.
fn is_shared(space: Space, address: u64) -> bool {
    space == Space::Shared || space == Space::Generic && window(address, SHARED_WINDOW).is_some()
}

/// One address has one key, generic or not.
fn key(address: u64) -> u64 {
    window(address, SHARED_WINDOW).unwrap_or(address)
}

fn observe(world: &mut World<'_>, cta: &mut Cta, issue: Issue, access: &Access, addresses: &Lanes) {
    let warp = &mut cta.warps[issue.warp];
    for lane in lanes(issue.mask) {
        let address = addresses[lane];
        let published = match is_shared(access.space, address) {
            true => &cta.published,
            false => &world.published,
        };
        ordering::observe(published, warp, access.order, key(address));
    }
}

fn publish(world: &mut World<'_>, cta: &mut Cta, issue: Issue, access: &Access, addresses: &Lanes) {
    let warp = &mut cta.warps[issue.warp];
    for lane in lanes(issue.mask) {
        let address = addresses[lane];
        let published = match is_shared(access.space, address) {
            true => &mut cta.published,
            false => &mut world.published,
        };
        ordering::publish(published, warp, access.order, key(address));
    }
}

/// Counts the sectors or the passes that an access takes.
fn count(world: &mut World<'_>, issue: Issue, space: Space, (addresses, total): (&Lanes, usize)) {
    let Some(first) = lanes(issue.mask).next() else { return };
    let counts = &mut world.counts[issue.pc as usize];
    let bytes = u64::from(issue.mask.count_ones()) * total as u64;
    if is_shared(space, addresses[first]) {
        counts.shared_bytes += bytes;
        counts.shared_conflicts += super::traffic::conflicts(issue.mask, addresses, total);
    } else if matches!(space, Space::Global | Space::Generic) {
        counts.global_bytes += bytes;
        counts.global_sectors += super::traffic::sectors(issue.mask, addresses, total);
    }
}
