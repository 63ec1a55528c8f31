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
    /// The step of the batch of that number runs, and its results are not known yet: what ends
    /// meanwhile keeps its pages until it has `Landed`. A step that is over before the next event
    /// needs neither.
    InFlight(u64),
    /// That step is over.
    Landed(u64),
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
    /// Which step it is, counted from 1.
    pub number: u64,
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
    /// The last batch that it was in; 0 before the first.
    last_batch: u64,
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

    /// Pages for one token more than it holds.
    fn next_pages(&self, config: &DecodeConfig) -> usize {
        config.pool.pages_for((self.held + 1).min(self.max_held()))
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
    /// Batches made so far; the last that was said to be in flight; the last that has landed.
    batches: u64,
    in_flight: u64,
    landed: u64,
    /// Pages of ended requests that a step in flight reads and writes, and which.
    ending: Vec<(u64, PageTable<T>)>,
    /// Memory for the list of running requests that a step begins with.
    running: Vec<RequestId>,
}

impl<T: PageTracker> DecodeScheduler<T> {
    /// A scheduler with an empty pool.
    pub fn new(config: DecodeConfig) -> Self {
        Self {
            config,
            pool: PagePool::new(config.pool),
            seqs: BTreeMap::new(),
            batches: 0,
            in_flight: 0,
            landed: 0,
            ending: Vec::new(),
            running: Vec::new(),
        }
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
        self.batches += 1;
        batch.number = self.batches;
        self.run(batch);
        self.refuse_hopeless(batch);
        self.admit(batch);
    }

    /// Whether every running request can have the page that its next token may need, so that none is
    /// preempted for it by the next step. What a request has generated must be known when it is.
    pub fn can_grow_all(&self) -> bool {
        let growth = self.seqs.values().filter_map(|seq| match &seq.state {
            State::Running(table) => {
                Some(seq.next_pages(&self.config).saturating_sub(table.pages().len()))
            }
            _ => None,
        });
        growth.sum::<usize>() <= self.pool.available()
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
        let ending = self.ending.iter().map(|(_, table)| table);
        self.pool.audit(self.seqs.values().filter_map(Seq::table).chain(ending))
    }

    fn apply(&mut self, event: DecodeEvent) {
        match event {
            DecodeEvent::Offer(offer) => {
                self.end(offer.request);
                let (held, state) = (offer.prompt_tokens, State::Offered);
                let seq = Seq { offer, held, last_batch: 0, state };
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
            DecodeEvent::InFlight(batch) => self.in_flight = batch,
            DecodeEvent::Landed(batch) => {
                self.landed = batch;
                for (last_batch, table) in std::mem::take(&mut self.ending) {
                    match last_batch <= batch {
                        true => self.pool.release(table),
                        false => self.ending.push((last_batch, table)),
                    }
                }
            }
            DecodeEvent::Finish(request) | DecodeEvent::Abort(request) => {
                self.end(request);
            }
            DecodeEvent::Fault { request, pages } => {
                pages.into_iter().for_each(|page| self.pool.quarantine(page));
                self.end(request);
            }
        }
    }

    /// Gives the pages back: an arriving request's when its writer is fenced, a running one's when no
    /// step in flight uses them.
    fn end(&mut self, request: RequestId) {
        let Some(seq) = self.seqs.remove(&request) else { return };
        match seq.state {
            State::Offered => {}
            State::Arriving(table) => {
                self.pool.revoke(seq.offer.lease);
                self.pool.release(table);
            }
            State::Running(table) => {
                let batch = seq.last_batch;
                match self.landed < batch && batch <= self.in_flight {
                    true => self.ending.push((batch, table)),
                    false => self.pool.release(table),
                }
            }
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
                seq.last_batch = batch.number;
            }
        }
        self.running = ids;
    }

    /// Makes room for one more token, at the cost of the youngest. False: not in this step.
    fn grow(&mut self, id: RequestId, batch: &mut DecodeBatch) -> bool {
        loop {
            // Preempted by an older sequence of this very step?
            let Some(seq) = self.seqs.get_mut(&id) else { return false };
            let needed = seq.next_pages(&self.config);
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

    /// Pages free, and owned.
    fn free_and_owned(scheduler: &DecodeScheduler<NoopTracker>) -> (usize, usize) {
        let counts = scheduler.audit().unwrap();
        (counts.free, counts.owned)
    }

    #[test]
    fn pages_of_a_step_in_flight_wait_for_it() {
        let pool = PoolSize { num_pages: 4, page_size: 4 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let mut scheduler: DecodeScheduler<NoopTracker> = DecodeScheduler::new(config);
        let mut batch = DecodeBatch::default();
        let mut step = |scheduler: &mut DecodeScheduler<_>, events: &[DecodeEvent]| {
            scheduler.step(Micros(0), events.to_vec(), &mut batch);
            (batch.number, batch.seqs.len())
        };
        let (one, two) = (RequestId(1), RequestId(2));
        step(&mut scheduler, &[offer(1), offer(2)]);
        let commits = [one, two].map(DecodeEvent::Committed);
        assert_eq!(step(&mut scheduler, &commits), (2, 2));
        // The second step is asked for before the first is over.
        assert_eq!(step(&mut scheduler, &[DecodeEvent::InFlight(2)]), (3, 2));
        assert_eq!(free_and_owned(&scheduler), (0, 4));
        let ended = [DecodeEvent::InFlight(3), DecodeEvent::Landed(2), DecodeEvent::Finish(one)];
        assert_eq!(step(&mut scheduler, &ended), (4, 1), "what has ended runs no more");
        assert_eq!(free_and_owned(&scheduler), (0, 4), "and the step in flight has its pages");
        let landed = [DecodeEvent::InFlight(4), DecodeEvent::Landed(3)];
        assert_eq!(step(&mut scheduler, &landed), (5, 1));
        assert_eq!(free_and_owned(&scheduler), (2, 2));
        // Nothing in flight: what ends gives its pages back at once.
        step(&mut scheduler, &[DecodeEvent::Landed(5), DecodeEvent::Abort(two)]);
        assert_eq!(free_and_owned(&scheduler), (4, 0));
    }

    #[test]
    fn it_is_known_before_a_step_that_pages_run_out() {
        let pool = PoolSize { num_pages: 4, page_size: 4 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let mut scheduler: DecodeScheduler<NoopTracker> = DecodeScheduler::new(config);
        let mut batch = DecodeBatch::default();
        scheduler.step(Micros(0), [offer(1), offer(2)], &mut batch);
        let commits = [1, 2].map(|id| DecodeEvent::Committed(RequestId(id)));
        scheduler.step(Micros(0), commits, &mut batch);
        while scheduler.can_grow_all() {
            scheduler.step(Micros(0), [], &mut batch);
            assert_eq!(batch.preempted, []);
        }
        // The eighth token of each was the last that its two pages have room for.
        assert!(batch.seqs.iter().all(|seq| seq.position == 7), "{batch:?}");
        scheduler.step(Micros(0), [], &mut batch);
        assert_eq!(batch.preempted, [RequestId(2)]);
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
