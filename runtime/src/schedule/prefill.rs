//! Reads prompts in chunks, and keeps their pages until the decode pool has them.

use super::Micros;
use crate::cache::{
    CacheNamespace, PageCounts, PageId, PagePool, PageTable, PageTracker, PoolSize,
};
use crate::request::{RequestError, RequestId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limits of a prefill scheduler.
#[derive(Debug, Clone, Copy)]
pub struct PrefillConfig {
    /// Its pool.
    pub pool: PoolSize,
    /// The pool that prompt and output must fit later.
    pub decode_pool: PoolSize,
    /// New tokens in one step, at least one.
    pub step_tokens: usize,
    /// Requests in one step, at least one.
    pub max_seqs: usize,
    /// Requests that may wait before more are refused.
    pub max_waiting: usize,
    /// Younger requests that may be admitted ahead of a waiting one.
    pub max_bypass: u32,
}

/// A request, new or preempted in the decode pool (then with what it has generated as prompt).
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its id.
    pub request: RequestId,
    /// Tokens to read, at least one.
    pub prompt: Arc<[u32]>,
    /// Tokens still to generate at most.
    pub max_tokens: usize,
    /// Whose prefixes it may share.
    pub namespace: CacheNamespace,
    /// Was admitted before, so it is not counted against `max_waiting`.
    pub is_preempted: bool,
}

/// What a prefill scheduler is told.
#[derive(Debug, Clone)]
pub enum PrefillEvent {
    /// A request to read. One of the same id that is still here ends, its pages unpublished.
    Arrive(Arrival),
    /// End a request in whatever state; unknown ids are no error.
    Abort(RequestId),
    /// The decode pool has committed the request: its full pages may be shared. Of a request that
    /// has not been read to its end this is old news, and no end.
    HandedOff(RequestId),
    /// An integrity check failed: the request ends, the pages stay out of use.
    Fault {
        /// Whose read it was.
        request: RequestId,
        /// Pages found bad.
        pages: Vec<PageId>,
    },
}

/// Tokens `start..start + len` of a prompt to read in this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "see above")]
pub struct Chunk {
    pub request: RequestId,
    pub start: usize,
    pub len: usize,
    /// The first token is sampled after this chunk and the hand-off begins.
    pub is_last: bool,
}

/// A request that got its pages in this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// Which.
    pub request: RequestId,
    /// Prompt tokens that are already in the cache, fewer than the prompt has.
    pub cached_tokens: usize,
    /// Time it waited.
    pub waited: Micros,
}

/// One step; cleared and filled again by each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PrefillBatch {
    /// To compute, oldest request first.
    pub chunks: Vec<Chunk>,
    /// Newly admitted.
    pub admitted: Vec<Admitted>,
    /// Ended before they began.
    pub refused: Vec<(RequestId, RequestError)>,
}

#[derive(Debug)]
struct Job<T: PageTracker> {
    arrival: Arrival,
    arrived_at: Micros,
    bypassed: u32,
    /// `None` while waiting.
    table: Option<PageTable<T>>,
    computed: usize,
}

/// The prefill pool and the requests in it.
#[derive(Debug)]
pub struct PrefillScheduler<T: PageTracker> {
    config: PrefillConfig,
    pool: PagePool<T>,
    jobs: BTreeMap<RequestId, Job<T>>,
}

impl<T: PageTracker> PrefillScheduler<T> {
    /// A scheduler with an empty pool.
    pub fn new(config: PrefillConfig) -> Self {
        Self { config, pool: PagePool::new(config.pool), jobs: BTreeMap::new() }
    }

    /// Applies `events`, admits, and says what to compute. Chunks count as computed from here on.
    pub fn step(
        &mut self,
        now: Micros,
        events: impl IntoIterator<Item = PrefillEvent>,
        batch: &mut PrefillBatch,
    ) {
        batch.chunks.clear();
        batch.admitted.clear();
        batch.refused.clear();
        for event in events {
            self.apply(now, event, batch);
        }
        self.refuse_hopeless(batch);
        self.admit(now, batch);
        self.cut_chunks(batch);
    }

    /// Pages and ledger of an admitted request.
    pub fn table(&self, request: RequestId) -> Option<&PageTable<T>> {
        self.jobs.get(&request)?.table.as_ref()
    }

    /// The pool, for its tags and counts.
    pub fn pool_mut(&mut self) -> &mut PagePool<T> {
        &mut self.pool
    }

    /// Requests without pages yet.
    pub fn num_waiting(&self) -> usize {
        self.jobs.values().filter(|job| job.table.is_none()).count()
    }

    /// Requests with pages: being read or being handed off.
    pub fn num_running(&self) -> usize {
        self.jobs.len() - self.num_waiting()
    }

    /// Checks the pool's books against the requests.
    ///
    /// # Errors
    /// [`AuditError`](crate::cache::AuditError), the first difference.
    pub fn audit(&self) -> Result<PageCounts, crate::cache::AuditError> {
        self.pool.audit(self.jobs.values().filter_map(|job| job.table.as_ref()))
    }

    fn apply(&mut self, now: Micros, event: PrefillEvent, batch: &mut PrefillBatch) {
        match event {
            PrefillEvent::Arrive(arrival) => match self.check(&arrival) {
                Ok(()) => {
                    let id = arrival.request;
                    self.end(id);
                    let (arrived_at, bypassed) = (now, 0);
                    let job = Job { arrival, arrived_at, bypassed, table: None, computed: 0 };
                    self.jobs.insert(id, job);
                }
                Err(error) => batch.refused.push((arrival.request, error)),
            },
            PrefillEvent::Abort(request) => self.end(request),
            PrefillEvent::HandedOff(request) => {
                if let Some(job) = self.jobs.get(&request)
                    && let Some(table) = &job.table
                    && job.computed == job.arrival.prompt.len()
                {
                    self.pool.publish(&job.arrival.namespace, &job.arrival.prompt, table);
                    self.end(request);
                }
            }
            PrefillEvent::Fault { request, pages } => {
                pages.into_iter().for_each(|page| self.pool.quarantine(page));
                self.end(request);
            }
        }
    }

    fn end(&mut self, request: RequestId) {
        if let Some(table) = self.jobs.remove(&request).and_then(|job| job.table) {
            self.pool.release(table);
        }
    }

    fn check(&self, arrival: &Arrival) -> Result<(), RequestError> {
        let prompt_tokens = arrival.prompt.len();
        let total = prompt_tokens.saturating_add(arrival.max_tokens);
        let (ours, theirs) = (self.config.pool, self.config.decode_pool);
        // A preempted request is read again with what it has generated, all but a last token.
        let longest_read = total.saturating_sub(1).max(prompt_tokens);
        let pools = [
            ("prefill", ours, self.usable_pages(), longest_read),
            ("decode", theirs, theirs.num_pages as usize, total),
        ];
        for (pool, size, pool_pages, tokens) in pools {
            let needed_pages = size.pages_for(tokens);
            if needed_pages > pool_pages {
                return Err(RequestError::NeverFits {
                    prompt_tokens,
                    max_tokens: arrival.max_tokens,
                    needed_pages,
                    page_size: size.page_size,
                    pool,
                    pool_pages,
                });
            }
        }
        if !arrival.is_preempted && self.num_waiting() >= self.config.max_waiting {
            return Err(RequestError::Overloaded { limit: self.config.max_waiting });
        }
        Ok(())
    }

    /// Pages that quarantine has not taken for good.
    fn usable_pages(&self) -> usize {
        self.config.pool.num_pages as usize - self.pool.counts().quarantined
    }

    /// Ends what waits for pages that quarantine has taken since it arrived.
    fn refuse_hopeless(&mut self, batch: &mut PrefillBatch) {
        let usable = self.usable_pages();
        let needed = |job: &Job<T>| self.config.pool.pages_for(job.arrival.prompt.len());
        let hopeless = |job: &&Job<T>| job.table.is_none() && needed(job) > usable;
        let hopeless: Vec<Arrival> =
            self.jobs.values().filter(hopeless).map(|job| job.arrival.clone()).collect();
        for arrival in hopeless {
            self.end(arrival.request);
            if let Err(error) = self.check(&arrival) {
                batch.refused.push((arrival.request, error));
            }
        }
    }

    /// Oldest first; a waiting request lets at most `max_bypass` younger ones pass it.
    fn admit(&mut self, now: Micros, batch: &mut PrefillBatch) {
        let mut left_behind: Vec<RequestId> = Vec::new();
        let waiting: Vec<RequestId> =
            self.jobs.iter().filter(|(_, job)| job.table.is_none()).map(|(id, _)| *id).collect();
        for id in waiting {
            if left_behind.iter().any(|old| self.jobs[old].bypassed >= self.config.max_bypass) {
                return;
            }
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let prompt = &job.arrival.prompt;
            let needed = self.config.pool.pages_for(prompt.len());
            let mut table = self.pool.share_prefix(&job.arrival.namespace, prompt);
            let shared = table.pages().len();
            if self.pool.allocate(needed - shared, &mut table).is_err() {
                self.pool.release(table);
                left_behind.push(id);
                continue;
            }
            job.computed = shared * self.config.pool.page_size;
            job.table = Some(table);
            let waited = Micros(now.0.saturating_sub(job.arrived_at.0));
            batch.admitted.push(Admitted { request: id, cached_tokens: job.computed, waited });
            for old in &left_behind {
                if let Some(job) = self.jobs.get_mut(old) {
                    job.bypassed += 1;
                }
            }
        }
    }

    /// Shares the step's tokens evenly; what the short ones leave goes to those after them.
    fn cut_chunks(&mut self, batch: &mut PrefillBatch) {
        let unread = |job: &Job<T>| match job.table {
            Some(_) => job.arrival.prompt.len() - job.computed,
            None => 0,
        };
        let reading = self.jobs.values().filter(|job| unread(job) > 0).count();
        let mut reading = reading.min(self.config.max_seqs);
        let mut budget = self.config.step_tokens;
        for (&request, job) in &mut self.jobs {
            if reading == 0 || budget == 0 {
                return;
            }
            let left = unread(job);
            if left == 0 {
                continue;
            }
            let len = left.min(budget.div_ceil(reading));
            let start = job.computed;
            batch.chunks.push(Chunk { request, start, len, is_last: len == left });
            job.computed += len;
            budget -= len;
            reading -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheSalt, NoopTracker};

    const POOL: PoolSize = PoolSize { num_pages: 4, page_size: 4 };

    fn scheduler() -> PrefillScheduler<NoopTracker> {
        PrefillScheduler::new(PrefillConfig {
            pool: POOL,
            decode_pool: PoolSize { num_pages: 64, page_size: 4 },
            step_tokens: 64,
            max_seqs: 4,
            max_waiting: 8,
            max_bypass: 0,
        })
    }

    fn arrive(id: u64, len: u32) -> PrefillEvent {
        let (salt, model_revision) = (CacheSalt::Tenant("t".into()), "m".into());
        let namespace = CacheNamespace { salt, adapter: None, model_revision };
        let (request, prompt) = (RequestId(id), (0..len).collect());
        let is_preempted = false;
        PrefillEvent::Arrive(Arrival { request, prompt, max_tokens: 1, namespace, is_preempted })
    }

    #[test]
    fn quarantine_ends_what_waits_for_more_than_is_left() {
        let (mut scheduler, mut batch) = (scheduler(), PrefillBatch::default());
        scheduler.step(Micros(0), [arrive(1, 4), arrive(2, 16), arrive(3, 4)], &mut batch);
        let pages = scheduler.table(RequestId(1)).unwrap().pages().to_vec();
        // The second waits for all four pages, and lets nobody pass.
        assert_eq!(batch.admitted.len(), 1);
        let fault = PrefillEvent::Fault { request: RequestId(1), pages };
        scheduler.step(Micros(1), [fault], &mut batch);
        let (id, error) = &batch.refused[0];
        assert_eq!(*id, RequestId(2));
        let want = matches!(error, RequestError::NeverFits { needed_pages: 4, pool_pages: 3, .. });
        assert!(want, "{error}");
        assert_eq!(batch.admitted[0].request, RequestId(3));
        // And what comes later is refused at once.
        scheduler.step(Micros(2), [arrive(4, 16)], &mut batch);
        assert_eq!(batch.refused[0].0, RequestId(4));
    }

    #[test]
    fn a_request_that_comes_back_early_keeps_its_pages_in_the_books() {
        let (mut scheduler, mut batch) = (scheduler(), PrefillBatch::default());
        scheduler.step(Micros(0), [arrive(1, 8)], &mut batch);
        // Preempted in the decode pool before the news of its hand-off came here.
        scheduler.step(Micros(1), [arrive(1, 9)], &mut batch);
        assert_eq!(scheduler.audit().unwrap().owned, 3);
        let late = PrefillEvent::HandedOff(RequestId(1));
        scheduler.step(Micros(1), [arrive(1, 10), late], &mut batch);
        assert_eq!(batch.admitted[0].request, RequestId(1), "the late news ended it");
    }
}
