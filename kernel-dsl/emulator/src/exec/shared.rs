//! A CTA's shared memory, with a record for every byte of who touched it last.

use super::{Site, Trouble};
use crate::clock::{Agents, Clock};
use crate::fault::FaultKind;
use crate::written::Written;
use std::collections::BTreeSet;

/// An access, packed: its stamp, whether it was atomic, who did it and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Stamp(u64);

const STRONG: u64 = 1 << 31;

impl Stamp {
    fn new(who: &Agent<'_>) -> Stamp {
        let strong = if who.strong { STRONG } else { 0 };
        let agent = (who.agent as u64) << 23;
        Stamp(u64::from(who.stamp) << 32 | strong | agent | u64::from(who.pc & 0x7f_ffff))
    }

    fn clock(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn agent(self) -> usize {
        (self.0 >> 23 & 0xff) as usize
    }

    fn strong(self) -> bool {
        self.0 & STRONG != 0
    }

    fn pc(self) -> u32 {
        (self.0 & 0x7f_ffff) as u32
    }
}

/// Who makes an access, and what they know.
pub(crate) struct Agent<'c> {
    pub(crate) agent: usize,
    /// What its accesses are stamped with.
    pub(crate) stamp: u32,
    /// What it knows of others.
    pub(crate) clock: &'c Clock,
    /// What it knows of others' writes: less, for the asynchronous proxy, than of their reads.
    pub(crate) writes: &'c Clock,
    pub(crate) strong: bool,
    pub(crate) pc: u32,
}

/// Shared memory.
pub(crate) struct SharedMemory {
    pub(crate) bytes: Vec<u8>,
    written: Written,
    writes: Vec<Stamp>,
    /// For each agent that read anything.
    reads: Vec<Vec<Stamp>>,
    /// The latest stamp that each agent wrote, or read, anything with.
    last_write: Vec<u32>,
    last_read: Vec<u32>,
    agents: Agents,
    /// The warp that last used an engine.
    users: Vec<u32>,
    /// Where barriers are, which only their own instructions may touch.
    objects: BTreeSet<usize>,
}

impl SharedMemory {
    pub(crate) fn new(bytes: usize, warps: usize) -> SharedMemory {
        let agents = Agents { warps };
        SharedMemory {
            bytes: vec![0; bytes],
            written: Written::new(bytes),
            writes: vec![Stamp::default(); bytes],
            reads: vec![Vec::new(); agents.count()],
            last_write: vec![0; agents.count()],
            last_read: vec![0; agents.count()],
            agents,
            users: (0..agents.count()).map(|agent| agents.warp(agent)).collect(),
            objects: BTreeSet::new(),
        }
    }

    /// Memory for the next CTA: nothing is written; old stamps lie behind its start.
    pub(crate) fn reset(&mut self) {
        self.written.clear();
        self.objects.clear();
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn is_written(&self, offset: usize, len: usize) -> bool {
        self.written.covers(offset, len)
    }

    pub(crate) fn mark_written(&mut self, offset: usize, len: usize) {
        self.written.mark(offset, len);
    }

    /// A warp asks an engine to work.
    pub(crate) fn used_by(&mut self, agent: usize, warp: usize) {
        self.users[agent] = warp as u32;
    }

    /// A barrier begins to live here.
    pub(crate) fn reserve(&mut self, offset: usize) {
        self.objects.insert(offset);
    }

    /// It ends.
    pub(crate) fn release(&mut self, offset: usize) {
        self.objects.remove(&offset);
    }

    fn check_objects(&self, offset: usize, len: usize) -> Result<(), Trouble> {
        if self.objects.range(offset.saturating_sub(7)..offset + len).next().is_none() {
            return Ok(());
        }
        let address = crate::body::SHARED_BASE + offset as u64;
        let message = format!("an mbarrier at {address:#x} is accessed as if it were data");
        Err(Trouble::new(FaultKind::BarrierMisuse, message))
    }

    /// Records a read of data.
    pub(crate) fn read(
        &mut self,
        offset: usize,
        len: usize,
        who: &Agent<'_>,
    ) -> Result<(), Trouble> {
        self.check_objects(offset, len)?;
        self.record_read(offset, len, who)
    }

    /// Records a write of data.
    pub(crate) fn write(
        &mut self,
        offset: usize,
        len: usize,
        who: &Agent<'_>,
    ) -> Result<(), Trouble> {
        self.check_objects(offset, len)?;
        self.record_write(offset, len, who)
    }

    /// Whether an agent's accesses, up to the latest of this stamp, may be news to somebody.
    fn is_news(&self, latest: &[u32], who: &Agent<'_>, clock: &Clock) -> bool {
        let others = latest.iter().zip(&clock.own).enumerate();
        let mut news = others.filter(|(_, (latest, known))| latest > known);
        news.any(|(agent, _)| agent != who.agent)
    }

    /// Records a read, and finds a write that it is not ordered behind.
    pub(crate) fn record_read(
        &mut self,
        offset: usize,
        len: usize,
        who: &Agent<'_>,
    ) -> Result<(), Trouble> {
        let range = offset..offset + len;
        if self.is_news(&self.last_write, who, who.writes) {
            self.check_writes(offset, len, who, "read")?;
        }
        let reads = &mut self.reads[who.agent];
        if reads.is_empty() {
            reads.resize(self.writes.len(), Stamp::default());
        }
        reads[range].fill(Stamp::new(who));
        self.last_read[who.agent] = who.stamp;
        Ok(())
    }

    /// Records a write, and finds an access that it is not ordered behind.
    pub(crate) fn record_write(
        &mut self,
        offset: usize,
        len: usize,
        who: &Agent<'_>,
    ) -> Result<(), Trouble> {
        let range = offset..offset + len;
        if self.is_news(&self.last_write, who, who.writes) {
            self.check_writes(offset, len, who, "written")?;
        }
        if self.is_news(&self.last_read, who, who.clock) {
            self.check_reads(offset, len, who)?;
        }
        self.writes[range].fill(Stamp::new(who));
        self.last_write[who.agent] = who.stamp;
        Ok(())
    }

    fn check_writes(
        &self,
        offset: usize,
        len: usize,
        who: &Agent<'_>,
        mine: &str,
    ) -> Result<(), Trouble> {
        let mut last = Stamp::default();
        for (index, &write) in self.writes[offset..offset + len].iter().enumerate() {
            if write != last && self.unordered(write, who, who.writes) {
                return Err(self.race(offset + index, write, who, (mine, "written")));
            }
            last = write;
        }
        Ok(())
    }

    fn check_reads(&self, offset: usize, len: usize, who: &Agent<'_>) -> Result<(), Trouble> {
        for (agent, reads) in self.reads.iter().enumerate() {
            let known = who.clock.own[agent];
            if agent == who.agent || reads.is_empty() || self.last_read[agent] <= known {
                continue;
            }
            let mut last = Stamp::default();
            for (index, &read) in reads[offset..offset + len].iter().enumerate() {
                if read != last && self.unordered(read, who, who.clock) {
                    return Err(self.race(offset + index, read, who, ("written", "read")));
                }
                last = read;
            }
        }
        Ok(())
    }

    fn unordered(&self, stamp: Stamp, who: &Agent<'_>, clock: &Clock) -> bool {
        let agent = stamp.agent();
        agent != who.agent && clock.own[agent] < stamp.clock() && !(stamp.strong() && who.strong)
    }

    fn race(
        &self,
        offset: usize,
        other: Stamp,
        who: &Agent<'_>,
        (mine, theirs): (&str, &str),
    ) -> Trouble {
        // What is known and yet not ordered is so because of the proxies.
        let known = who.clock.own[other.agent()] >= other.clock();
        let (kind, why) = match self.agents.is_warp(other.agent()) {
            _ if known => {
                (FaultKind::MissingProxyFence, "without a proxy fence between the two proxies")
            }
            false => (FaultKind::MissingWait, "by a copy that was not waited for"),
            true => (FaultKind::SharedRace, "by another warp, with nothing to order the two"),
        };
        let address = crate::body::SHARED_BASE + offset as u64;
        let site = Site { warp: self.users[other.agent()], pc: other.pc(), cta: None };
        Trouble::new(
            kind,
            format!("shared byte {address:#x} is {mine} after it was {theirs} {why}"),
        )
        .with(site)
    }
}
