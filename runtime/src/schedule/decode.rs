//! Generates: continuous batching over pages that grow, with preemption by recomputation.

use super::Micros;
use crate::cache::{
    AuditError, LeaseId, PageCounts, PageId, PagePool, PageTable, PageTracker, PoolSize,
};
use crate::request::{RequestError, RequestId};
use std::collections::BTreeMap;

/// Limits of a decode scheduler.
#[derive(Debug, Clone, Copy)]
pub struct DecodeConfig {
    /// Its pool.
    pub pool: PoolSize,
    /// Sequences running and arriving, at least one.
    pub max_seqs: usize,
    /// Tokens of growth kept free for each sequence when another is let in; `usize::MAX` keeps
    /// the worst case free, and then nothing is ever preempted.
    pub reserve_tokens: usize,
}

/// A prompt that the prefill pool has read and would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Whose.
    pub request: RequestId,
    /// Tokens in the pages that would be sent.
    pub prompt_tokens: usize,
    /// Tokens to generate at most, the first (already sampled) included.
    pub max_tokens: usize,
    /// The transfer that would write.
    pub lease: LeaseId,
}

/// What a decode scheduler is told.
#[derive(Debug, Clone)]
pub enum DecodeEvent {
    /// A prompt to take over. One of the same request that is still here ends.
    Offer(Offer),
    /// Every page has arrived and been checked: the request runs from now on.
    Committed(RequestId),
    /// The writer of a lease writes no more.
    Fenced(LeaseId),
    /// The request has its last token.
    Finish(RequestId),
    /// End a request in whatever state; unknown ids are no error.
    Abort(RequestId),
    /// An integrity check failed: the request ends, the pages stay out of use.
    Fault {
        /// Whose read or arrival it was.
        request: RequestId,
        /// Pages found bad.
        pages: Vec<PageId>,
    },
}

/// One sequence of a step: its last token is read at `position`, and one is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "see above")]
pub struct DecodeSeq {
    pub request: RequestId,
    pub position: usize,
}

/// Pages lent to a transfer; they are the first of the request's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "see above")]
pub struct Grant {
    pub request: RequestId,
    pub lease: LeaseId,
    /// Pages that the prompt fills; one more may be in the table for growth.
    pub num_pages: usize,
}

/// One step; cleared and filled again by each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DecodeBatch {
    /// To compute, oldest first.
    pub seqs: Vec<DecodeSeq>,
    /// Offers taken.
    pub grants: Vec<Grant>,
    /// To be read again by the prefill pool, with what they have generated.
    pub preempted: Vec<RequestId>,
    /// Cannot go on, as quarantine has shrunk the pool.
    pub refused: Vec<(RequestId, RequestError)>,
}

#[derive(Debug)]
enum State<T: PageTracker> {
    Offered,
    Arriving(PageTable<T>),
    Running(PageTable<T>),
}

#[derive(Debug)]
struct Seq<T: PageTracker> {
    offer: Offer,
    /// Tokens in the cache.
    held: usize,
    state: State<T>,
}

impl<T: PageTracker> Seq<T> {
    fn table(&self) -> Option<&PageTable<T>> {
        match &self.state {
            State::Offered => None,
            State::Arriving(table) | State::Running(table) => Some(table),
        }
    }

    /// The last token is never read back, so it takes no place.
    fn max_held(&self) -> usize {
        (self.offer.prompt_tokens + self.offer.max_tokens).saturating_sub(1)
    }

    /// Pages this sequence should have for the tokens it may soon hold.
    fn wanted_pages(&self, config: &DecodeConfig) -> usize {
        let soon = self.held.saturating_add(config.reserve_tokens.max(1));
        config.pool.pages_for(soon.min(self.max_held()).max(self.held))
    }
}

/// The decode pool and the requests in it.
#[derive(Debug)]
pub struct DecodeScheduler<T: PageTracker> {
    config: DecodeConfig,
    pool: PagePool<T>,
    seqs: BTreeMap<RequestId, Seq<T>>,
    /// Memory for the list of running requests that a step begins with.
    running: Vec<RequestId>,
}

impl<T: PageTracker> DecodeScheduler<T> {
    /// A scheduler with an empty pool.
    pub fn new(config: DecodeConfig) -> Self {
        let (pool, seqs) = (PagePool::new(config.pool), BTreeMap::new());
        Self { config, pool, seqs, running: Vec::new() }
    }

    /// Applies `events`, grows what runs, lets in what fits, and says what to compute. The
    /// position of each sequence counts as written from here on.
    pub fn step(
        &mut self,
        _now: Micros,
        events: impl IntoIterator<Item = DecodeEvent>,
        batch: &mut DecodeBatch,
    ) {
        batch.seqs.clear();
        batch.grants.clear();
        batch.preempted.clear();
        batch.refused.clear();
        for event in events {
            self.apply(event);
        }
        self.run(batch);
        self.refuse_hopeless(batch);
        self.admit(batch);
    }

    /// Pages and ledger of a request that arrives or runs.
    pub fn table(&self, request: RequestId) -> Option<&PageTable<T>> {
        self.seqs.get(&request)?.table()
    }

    /// The pool, for its tags, counts and leases.
    pub fn pool_mut(&mut self) -> &mut PagePool<T> {
        &mut self.pool
    }

    /// Requests offered and not yet granted.
    pub fn num_waiting(&self) -> usize {
        self.seqs.len() - self.num_running()
    }

    /// Requests with pages: arriving or running.
    pub fn num_running(&self) -> usize {
        self.seqs.values().filter(|seq| seq.table().is_some()).count()
    }

    /// Checks the pool's books against the requests.
    ///
    /// # Errors
    /// [`AuditError`], the first difference.
    pub fn audit(&self) -> Result<PageCounts, AuditError> {
        self.pool.audit(self.seqs.values().filter_map(Seq::table))
    }

    fn apply(&mut self, event: DecodeEvent) {
        match event {
            DecodeEvent::Offer(offer) => {
                self.end(offer.request);
                let seq = Seq { offer, held: offer.prompt_tokens, state: State::Offered };
                self.seqs.insert(offer.request, seq);
            }
            DecodeEvent::Committed(request) => {
                let Some(mut seq) = self.seqs.remove(&request) else { return };
                if let State::Arriving(table) = seq.state {
                    self.pool.fence(seq.offer.lease);
                    seq.state = State::Running(table);
                }
                self.seqs.insert(request, seq);
            }
            DecodeEvent::Fenced(lease) => self.pool.fence(lease),
            DecodeEvent::Finish(request) | DecodeEvent::Abort(request) => {
                self.end(request);
            }
            DecodeEvent::Fault { request, pages } => {
                pages.into_iter().for_each(|page| self.pool.quarantine(page));
                self.end(request);
            }
        }
    }

    /// Gives the pages back. An arriving request's stay leased until its writer is fenced.
    fn end(&mut self, request: RequestId) {
        let Some(seq) = self.seqs.remove(&request) else { return };
        match seq.state {
            State::Offered => {}
            State::Arriving(table) => {
                self.pool.revoke(seq.offer.lease);
                self.pool.release(table);
            }
            State::Running(table) => self.pool.release(table),
        }
    }

    fn run(&mut self, batch: &mut DecodeBatch) {
        let running = self.seqs.iter().filter(|(_, seq)| matches!(seq.state, State::Running(_)));
        let mut ids = std::mem::take(&mut self.running);
        ids.extend(running.map(|(id, _)| *id));
        for id in ids.drain(..) {
            if !self.grow(id, batch) {
                continue;
            }
            let Some(seq) = self.seqs.get_mut(&id) else { continue };
            if seq.held < seq.max_held() {
                batch.seqs.push(DecodeSeq { request: id, position: seq.held });
                seq.held += 1;
            }
        }
        self.running = ids;
    }

    /// Makes room for one more token, at the cost of the youngest. False: not in this step.
    fn grow(&mut self, id: RequestId, batch: &mut DecodeBatch) -> bool {
        loop {
            // Preempted by an older sequence of this very step?
            let Some(seq) = self.seqs.get_mut(&id) else { return false };
            let needed = self.config.pool.pages_for((seq.held + 1).min(seq.max_held()));
            let State::Running(table) = &mut seq.state else { return false };
            let missing = needed.saturating_sub(table.pages().len());
            if self.pool.allocate(missing, table).is_ok() {
                return true;
            }
            let offer = seq.offer;
            let youngest = self
                .seqs
                .iter()
                .rev()
                .find(|(_, seq)| matches!(seq.state, State::Running(_)))
                .map(|(victim, _)| *victim);
            let oldest = self.seqs.iter().find(|(_, seq)| seq.table().is_some());
            let is_oldest = oldest.is_some_and(|(oldest, _)| *oldest == id);
            match youngest {
                Some(victim) if victim != id || !is_oldest => {
                    self.end(victim);
                    batch.preempted.push(victim);
                }
                _ => {
                    let counts = self.pool.counts();
                    if counts.leased == 0 && self.num_running() <= 1 {
                        self.end(id);
                        let size = self.config.pool;
                        batch.refused.push((id, never_fits(&offer, size, (needed, counts))));
                    }
                    return false;
                }
            }
        }
    }

    /// Ends an offer that waits for pages which quarantine has taken for good.
    fn refuse_hopeless(&mut self, batch: &mut DecodeBatch) {
        let counts = self.pool.counts();
        let size = self.config.pool;
        let usable = size.num_pages as usize - counts.quarantined;
        let hopeless = self.seqs.values().filter(|seq| {
            let needed = size.pages_for(seq.max_held().max(seq.held));
            matches!(seq.state, State::Offered) && needed > usable
        });
        let hopeless: Vec<Offer> = hopeless.map(|seq| seq.offer).collect();
        for offer in hopeless {
            let needed = size.pages_for(offer.prompt_tokens + offer.max_tokens);
            self.end(offer.request);
            batch.refused.push((offer.request, never_fits(&offer, size, (needed, counts))));
        }
    }

    /// Oldest first and none past another; pages in flight and expected growth are counted.
    fn admit(&mut self, batch: &mut DecodeBatch) {
        let holding = self.seqs.values().filter_map(|seq| Some((seq, seq.table()?)));
        let mut growth: usize = holding
            .map(|(seq, table)| seq.wanted_pages(&self.config).saturating_sub(table.pages().len()))
            .sum();
        let mut num_running = self.num_running();
        for seq in self.seqs.values_mut() {
            if !matches!(seq.state, State::Offered) {
                continue;
            }
            let num_pages = self.config.pool.pages_for(seq.held);
            let with_headroom = self.config.pool.pages_for((seq.held + 1).min(seq.max_held()));
            let with_headroom = with_headroom.max(num_pages);
            let own_growth = seq.wanted_pages(&self.config).saturating_sub(with_headroom);
            let fits = with_headroom + own_growth + growth <= self.pool.available();
            let mut table = PageTable::default();
            if num_running >= self.config.max_seqs
                || !fits
                || self.pool.allocate(with_headroom, &mut table).is_err()
            {
                return;
            }
            self.pool.lease(seq.offer.lease, &table);
            seq.state = State::Arriving(table);
            growth += own_growth;
            num_running += 1;
            let (request, lease) = (seq.offer.request, seq.offer.lease);
            batch.grants.push(Grant { request, lease, num_pages });
        }
    }
}

fn never_fits(offer: &Offer, size: PoolSize, (needed, now): (usize, PageCounts)) -> RequestError {
    RequestError::NeverFits {
        prompt_tokens: offer.prompt_tokens,
        max_tokens: offer.max_tokens,
        needed_pages: needed,
        page_size: size.page_size,
        pool: "decode",
        pool_pages: size.num_pages as usize - now.quarantined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NoopTracker;

    fn offer(request: u64) -> DecodeEvent {
        let lease = LeaseId { transfer: request, generation: 1 };
        let request = RequestId(request);
        DecodeEvent::Offer(Offer { request, prompt_tokens: 3, max_tokens: 8, lease })
    }

    #[test]
    fn the_youngest_makes_room_and_the_oldest_finishes() {
        let pool = PoolSize { num_pages: 4, page_size: 4 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let mut scheduler: DecodeScheduler<NoopTracker> = DecodeScheduler::new(config);
        let mut batch = DecodeBatch::default();
        scheduler.step(Micros(0), [offer(1), offer(2)], &mut batch);
        assert_eq!(batch.grants.len(), 2);
        let commits = [1, 2].map(|id| DecodeEvent::Committed(RequestId(id)));
        scheduler.step(Micros(0), commits, &mut batch);
        let mut preempted = Vec::new();
        let mut last = 0;
        for _ in 0..8 {
            last = batch.seqs.iter().map(|seq| seq.position).next().unwrap_or(last);
            preempted.append(&mut batch.preempted);
            scheduler.step(Micros(0), [], &mut batch);
        }
        assert_eq!((preempted, last), (vec![RequestId(2)], 9));
    }

    #[test]
    fn a_quarantined_page_never_comes_back() {
        let pool = PoolSize { num_pages: 3, page_size: 4 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let mut scheduler: DecodeScheduler<NoopTracker> = DecodeScheduler::new(config);
        let mut batch = DecodeBatch::default();
        scheduler.step(Micros(0), [offer(1)], &mut batch);
        let pages = scheduler.table(RequestId(1)).unwrap().pages().to_vec();
        let fault = DecodeEvent::Fault { request: RequestId(1), pages };
        let lease = LeaseId { transfer: 1, generation: 1 };
        scheduler.step(Micros(0), [fault, DecodeEvent::Fenced(lease), offer(2)], &mut batch);
        let counts = scheduler.audit().unwrap();
        assert_eq!((counts.quarantined, counts.free), (1, 2));
        // It would need three pages, and only two are left for good.
        assert!(matches!(batch.refused[0].1, RequestError::NeverFits { pool_pages: 2, .. }));
    }

    #[test]
    fn a_second_offer_of_a_request_gives_back_what_the_first_held() {
        let pool = PoolSize { num_pages: 4, page_size: 4 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let mut scheduler: DecodeScheduler<NoopTracker> = DecodeScheduler::new(config);
        let mut batch = DecodeBatch::default();
        scheduler.step(Micros(0), [offer(1)], &mut batch);
        let events = [DecodeEvent::Committed(RequestId(1)), offer(1)];
        scheduler.step(Micros(0), events, &mut batch);
        assert_eq!(scheduler.audit().unwrap().leased, 1);
    }

    #[test]
    fn an_untracked_ledger_takes_no_space() {
        assert_eq!(size_of::<NoopTracker>(), 0);
        assert_eq!(size_of::<PageTable<NoopTracker>>(), size_of::<Vec<PageId>>());
    }
}
