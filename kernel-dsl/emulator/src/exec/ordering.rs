//! What atomic operations and fences make known, and the record of accesses to global memory.

use super::cta::Warp;
use super::{Site, Trouble};
use crate::clock::{Agents, Clock};
use crate::fault::FaultKind;
use crate::global::{Block, Touch};
use crate::program::Order;
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
pub(super) fn fence(warp: &mut Warp, proxy: bool) {
    if proxy {
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

    /// The words of a range and which of their bytes it covers.
    fn words(offset: usize, len: usize) -> impl Iterator<Item = (usize, u8)> {
        let end = offset + len;
        (offset / 4..end.div_ceil(4)).map(move |word| {
            let (first, last) = (offset.max(word * 4) - word * 4, end.min(word * 4 + 4) - word * 4);
            (word * 4, ((1u16 << last) - (1u16 << first)) as u8)
        })
    }

    /// Records a read.
    pub(super) fn read(&self, block: &mut Block, offset: usize, len: usize) -> Result<(), Trouble> {
        let base = block.base;
        for (word, bytes) in Self::words(offset, len) {
            let record = block.record(word);
            if self.conflicts(&record.write, bytes) {
                let write = record.write;
                return Err(self.race(base + word as u64, &write, ("read", "written")));
            }
            let mine = self.touch(bytes);
            let [first, second] = &mut record.reads;
            let stale = |touch: &Touch| self.is_mine(touch) || touch.stamp <= self.start;
            let slot = if stale(first) || first.bytes == 0 { first } else { second };
            let same = self.is_mine(slot) && slot.stamp == mine.stamp;
            *slot = Touch {
                bytes: bytes | if same { slot.bytes } else { 0 },
                strong: mine.strong && (!same || slot.strong),
                ..mine
            };
        }
        Ok(())
    }

    /// Records a write.
    pub(super) fn write(
        &self,
        block: &mut Block,
        offset: usize,
        len: usize,
    ) -> Result<(), Trouble> {
        let base = block.base;
        for (word, bytes) in Self::words(offset, len) {
            let record = block.record(word);
            if self.conflicts(&record.write, bytes) {
                let write = record.write;
                return Err(self.race(base + word as u64, &write, ("written", "written")));
            }
            if let Some(read) = record.reads.iter().find(|read| self.conflicts(read, bytes)) {
                let read = *read;
                return Err(self.race(base + word as u64, &read, ("written", "read")));
            }
            let mine = self.touch(bytes);
            let same = self.is_mine(&record.write) && record.write.stamp == mine.stamp;
            let strong = mine.strong && (!same || record.write.strong);
            let bytes = bytes | if same { record.write.bytes } else { 0 };
            record.write = Touch { bytes, strong, ..mine };
        }
        Ok(())
    }
}
