//! Loads and stores of a warp's lanes.

use super::atomic::{observe, publish};
use super::cta::{Cta, Warp};
use super::reach::{Reach, Who, reach, uninitialised};
use super::space::{LOCAL_WINDOW, Location, SHARED_WINDOW, aligned, window};
use super::{Trouble, World};
use crate::body::LOCAL_BASE;
use crate::fault::FaultKind;
use crate::program::{Access, Lanes, Order, Reg, Space, Src};
use crate::types::{low_mask, sign_extend};

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// The addresses that lanes access.
pub(super) fn addresses(warp: &Warp, access: &Access, consts: &[Lanes]) -> Lanes {
    let mut out = *warp.value(access.address.base, consts);
    for address in &mut out {
        *address = address.wrapping_add_signed(access.address.offset);
    }
    out
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
        f(run.address.wrapping_add(at as u64), at..at + total)
            .map_err(|trouble| trouble.lane(lane))?;
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
        warp.note_written(*dst, issue.mask);
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

/// Counts the sectors or the passes that an access takes.
pub(super) fn count(
    world: &mut World<'_>,
    issue: Issue,
    space: Space,
    (addresses, total): (&Lanes, usize),
) {
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

/// Whether lanes' addresses are of shared memory, and what to key them by.
pub(super) fn is_shared(space: Space, address: u64) -> bool {
    space == Space::Shared || space == Space::Generic && window(address, SHARED_WINDOW).is_some()
}
