//! What atomic operations and fences make known, and the record of accesses to global memory.

use super::cta::Warp;
use super::{Site, Trouble};
use crate::clock::{Agents, Clock};
use crate::fault::FaultKind;
use crate::global::{Block, Touch, WordRecord};
use crate::program::{Fence, Order};
use std::collections::HashMap;

/// Before an atomic write: publishes what a release, or a fence before it, covers.
pub(super) fn publish(
    published: &mut HashMap<u64, Clock>,
    warp: &mut Warp,
    order: Order,
    address: u64,
) {
    let clock = match (order.releases(), &warp.fenced) {
        (true, _) => warp.publish(),
        (false, Some(fenced)) => fenced.clone(),
        (false, None) => return,
    };
    match published.get_mut(&address) {
        Some(known) => known.join(&clock),
        None => {
            published.insert(address, clock);
        }
    }
}

/// After an atomic read: learns what was published there, at once or with the next fence.
pub(super) fn observe(
    published: &HashMap<u64, Clock>,
    warp: &mut Warp,
    order: Order,
    address: u64,
) {
    let Some(clock) = published.get(&address) else { return };
    if order.acquires() {
        warp.clock.join(clock);
    } else {
        match &mut warp.seen {
            Some(seen) => seen.join(clock),
            None => warp.seen = Some(clock.clone()),
        }
    }
}

/// `fence` and `membar`; a proxy fence lets the asynchronous proxy know what the warp knows.
pub(super) fn fence(warp: &mut Warp, fence: Fence) {
    if fence == Fence::Proxy {
        warp.clock.cover();
        warp.clock.tick(warp.index);
        return;
    }
    if let Some(seen) = warp.seen.take() {
        warp.clock.join(&seen);
    }
    warp.fenced = Some(warp.publish());
}

/// Who touches global memory.
pub(super) struct Toucher<'c> {
    pub(super) clock: &'c Clock,
    pub(super) agents: Agents,
    pub(super) agent: usize,
    pub(super) strong: bool,
    pub(super) pc: u32,
    /// Stamps up to this one are of earlier launches.
    pub(super) start: u32,
}

impl Toucher<'_> {
    fn touch(&self, bytes: u8) -> Touch {
        Touch {
            cta: self.clock.cta,
            warp: self.agent as u16,
            bytes,
            strong: self.strong,
            stamp: self.clock.own[self.agent],
            pc: self.pc,
        }
    }

    fn is_mine(&self, touch: &Touch) -> bool {
        touch.cta == self.clock.cta && usize::from(touch.warp) == self.agent
    }

    fn conflicts(&self, touch: &Touch, bytes: u8) -> bool {
        touch.bytes & bytes != 0
            && touch.stamp > self.start
            && !self.is_mine(touch)
            && !(touch.strong && self.strong)
            && !self.clock.knows(touch.cta, usize::from(touch.warp), touch.stamp)
    }

    fn race(&self, address: u64, touch: &Touch, (mine, theirs): (&str, &str)) -> Trouble {
        let other = if touch.cta == self.clock.cta { "another warp" } else { "another CTA" };
        let message = format!(
            "global address {address:#x} is {mine} after it was {theirs} by {other}, with nothing \
             to order the two"
        );
        let warp = self.agents.warp(usize::from(touch.warp));
        let site = Site { warp, pc: touch.pc, cta: Some(touch.cta) };
        Trouble::new(FaultKind::GlobalRace, message).with(site)
    }

    /// Calls a function with the record of every word of a range, and which of its bytes are meant.
    fn each(
        block: &mut Block,
        (offset, len): (usize, usize),
        mut f: impl FnMut(&mut WordRecord, u8) -> Option<(Touch, Words)>,
    ) -> Option<(u64, Touch, Words)> {
        let (base, end) = (block.base, offset + len);
        let mut word = offset / 4 * 4;
        while word < end {
            for record in block.records(word, end) {
                let first = offset.max(word) - word;
                let last = end.min(word + 4) - word;
                let bytes = ((1u16 << last) - (1u16 << first)) as u8;
                if let Some((other, words)) = f(record, bytes) {
                    return Some((base + word as u64, other, words));
                }
                word += 4;
            }
        }
        None
    }

    /// Records a read.
    pub(super) fn read(&self, block: &mut Block, offset: usize, len: usize) -> Result<(), Trouble> {
        let found = Self::each(block, (offset, len), |record, bytes| {
            if self.conflicts(&record.write, bytes) {
                return Some((record.write, ("read", "written")));
            }
            let mine = self.touch(bytes);
            let [first, second] = &mut record.reads;
            let stale = self.is_mine(first) || first.stamp <= self.start || first.bytes == 0;
            merge(if stale { first } else { second }, mine);
            None
        });
        self.outcome(found)
    }

    /// Records a write.
    pub(super) fn write(
        &self,
        block: &mut Block,
        offset: usize,
        len: usize,
    ) -> Result<(), Trouble> {
        let found = Self::each(block, (offset, len), |record, bytes| {
            if self.conflicts(&record.write, bytes) {
                return Some((record.write, ("written", "written")));
            }
            if let Some(read) = record.reads.iter().find(|read| self.conflicts(read, bytes)) {
                return Some((*read, ("written", "read")));
            }
            merge(&mut record.write, self.touch(bytes));
            None
        });
        self.outcome(found)
    }

    fn outcome(&self, found: Option<(u64, Touch, Words)>) -> Result<(), Trouble> {
        match found {
            None => Ok(()),
            Some((address, other, words)) => Err(self.race(address, &other, words)),
        }
    }
}

/// What was done to an address, by us and by the other.
type Words = (&'static str, &'static str);

/// Records an access over what was there; accesses of one stretch of one agent add up.
fn merge(old: &mut Touch, new: Touch) {
    let same = old.cta == new.cta && old.warp == new.warp && old.stamp == new.stamp;
    *old = match same {
        true => Touch { bytes: old.bytes | new.bytes, strong: old.strong && new.strong, ..new },
        false => new,
    };
}
