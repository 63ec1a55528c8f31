//! Vector clocks: what one agent knows of what the others have done.
//!
//! The agents of a CTA are its warps, then for each warp the engine of its `cp.async` copies, then
//! for each warp the engine of its bulk stores, then that of its `wgmma`s, then for each mbarrier the
//! engine of the bulk copies that complete on it: who saw a phase end knows of that barrier's copies
//! and of no others. An agent's own entry grows whenever it publishes what it did; an access is
//! stamped with it. Somebody else's access is ordered behind that one if their clock holds at least
//! the stamp.

use std::collections::BTreeMap;

/// Mbarriers that have an engine of their own; further ones share.
const BARRIER_ENGINES: usize = 32;

/// The agents of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agents {
    pub(crate) warps: usize,
}

impl Agents {
    pub(crate) fn count(self) -> usize {
        4 * self.warps + BARRIER_ENGINES
    }

    /// The engine of a warp's `cp.async` copies.
    pub(crate) fn copies(self, warp: usize) -> usize {
        self.warps + warp
    }

    /// The engine of a warp's bulk stores.
    pub(crate) fn stores(self, warp: usize) -> usize {
        2 * self.warps + warp
    }

    /// The engine of a warp's tensor-core operations on shared memory.
    pub(crate) fn products(self, warp: usize) -> usize {
        3 * self.warps + warp
    }

    /// The engine of the copies that complete on the mbarrier that was initialised as number `slot`.
    pub(crate) fn barrier(self, slot: usize) -> usize {
        4 * self.warps + slot % BARRIER_ENGINES
    }

    pub(crate) fn is_warp(self, agent: usize) -> bool {
        agent < self.warps
    }

    /// Agents up to this one need a proxy fence before the asynchronous proxy sees their writes.
    /// By the manual `cp.async` copies need it, too; but CUTLASS and Triton let `wgmma` read what
    /// they wrote without one, so hardware must keep to that, and it is no fault here.
    pub(crate) fn fenced(self) -> usize {
        self.warps
    }

    /// The warp that an agent works for, if it is one warp's.
    pub(crate) fn warp(self, agent: usize) -> u32 {
        if agent < 4 * self.warps { (agent % self.warps) as u32 } else { 0 }
    }
}

/// Knowledge of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Index of the CTA whose agents `own` counts.
    pub(crate) cta: u32,
    pub(crate) own: Vec<u32>,
    /// Of that, what a proxy fence has shown to the asynchronous proxy.
    pub(crate) proxied: Vec<u32>,
    /// What is known of agents of other CTAs.
    foreign: BTreeMap<u32, Vec<u32>>,
}

fn join_into(mine: &mut Vec<u32>, theirs: &[u32]) {
    mine.resize(mine.len().max(theirs.len()), 0);
    for (mine, &theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(theirs);
    }
}

impl Clock {
    pub(crate) fn new(cta: u32, agents: usize, start: u32) -> Clock {
        let own = vec![start; agents];
        Clock { cta, proxied: own.clone(), own, foreign: BTreeMap::new() }
    }

    /// Learns what another clock knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        if self.cta == other.cta {
            join_into(&mut self.own, &other.own);
            join_into(&mut self.proxied, &other.proxied);
        } else {
            join_into(self.foreign.entry(other.cta).or_default(), &other.own);
        }
        for (&cta, clock) in &other.foreign {
            match cta == self.cta {
                true => join_into(&mut self.own, clock),
                false => join_into(self.foreign.entry(cta).or_default(), clock),
            }
        }
    }

    /// Whether an access with a stamp lies behind us.
    pub(crate) fn knows(&self, cta: u32, agent: usize, stamp: u32) -> bool {
        let clock = match cta == self.cta {
            true => Some(&self.own),
            false => self.foreign.get(&cta),
        };
        clock.and_then(|clock| clock.get(agent)).is_some_and(|&known| known >= stamp)
    }

    /// A proxy fence: the asynchronous proxy may know all that is known here.
    pub(crate) fn cover(&mut self) {
        self.proxied.clone_from(&self.own);
    }

    /// Begins a new stretch of an agent, after it published its clock.
    pub(crate) fn tick(&mut self, agent: usize) {
        self.own[agent] += 1;
    }

    pub(crate) fn latest(&self) -> u32 {
        self.own.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_travels_through_other_ctas() {
        let mut a = Clock::new(0, 2, 1);
        let mut b = Clock::new(1, 2, 1);
        let mut c = Clock::new(2, 2, 1);
        a.tick(0);
        assert!(!b.knows(0, 0, 2));
        b.join(&a);
        assert!(b.knows(0, 0, 2) && !b.knows(0, 0, 3));
        c.join(&b);
        assert!(c.knows(0, 0, 2) && c.knows(1, 1, 1));
        a.join(&c);
        assert!(a.knows(2, 0, 1) && a.own == [2, 1]);
    }
}
