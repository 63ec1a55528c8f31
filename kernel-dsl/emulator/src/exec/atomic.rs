//! Atomic operations, and what ordered accesses publish and observe.

use super::access::{Issue, addresses, count, is_shared, lanes};
use super::cta::Cta;
use super::ordering;
use super::reach::{Who, reach};
use super::space::{SHARED_WINDOW, aligned, window};
use super::{Trouble, World};
use crate::program::{Access, Lanes, Reg, Src, Update};

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
        warp.note_written(*dst, issue.mask);
    }
    Ok(())
}

/// One address has one key, generic or not.
fn key(address: u64) -> u64 {
    window(address, SHARED_WINDOW).unwrap_or(address)
}

pub(super) fn observe(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    access: &Access,
    addresses: &Lanes,
) {
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

pub(super) fn publish(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    access: &Access,
    addresses: &Lanes,
) {
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
