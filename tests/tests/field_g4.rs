//! Field cases of the cache and the schedulers.

use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_runtime::cache::{
    Adapter, CacheNamespace, CacheSalt, LeaseId, NoopTracker, PagePool, PageTable, PoolSize,
    TagTracker,
};
use tessera_runtime::request::{RequestError, RequestId};
use tessera_runtime::schedule::{
    Arrival, DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer, PrefillBatch,
    PrefillConfig, PrefillEvent, PrefillScheduler,
};

const POOL: PoolSize = PoolSize { num_pages: 8, page_size: 16 };

fn namespace(salt: &str) -> CacheNamespace {
    let (salt, model_revision) = (CacheSalt::Tenant(salt.into()), "m".into());
    CacheNamespace { salt, adapter: None, model_revision }
}

fn arrive(id: u64, len: u32) -> PrefillEvent {
    let (prompt, namespace): (Arc<[u32]>, _) = ((0..len).collect(), namespace("t"));
    let request = RequestId(id);
    PrefillEvent::Arrive(Arrival { request, prompt, max_tokens: 4, namespace, is_preempted: false })
}

fn prefill() -> PrefillScheduler<TagTracker> {
    PrefillScheduler::new(PrefillConfig {
        pool: POOL,
        decode_pool: POOL,
        step_tokens: 32,
        max_seqs: 4,
        max_waiting: 64,
        max_bypass: 2,
    })
}

fn admitted(batch: &PrefillBatch) -> Vec<u64> {
    batch.admitted.iter().map(|admitted| admitted.request.0).collect()
}

#[test]
fn o_401_request_that_can_never_fit() {
    let (mut scheduler, mut batch) = (prefill(), PrefillBatch::default());
    scheduler.step(Micros(0), [arrive(1, 200), arrive(2, 10)], &mut batch);
    let (id, error) = &batch.refused[0];
    assert_eq!(*id, RequestId(1));
    assert!(matches!(error, RequestError::NeverFits { needed_pages: 13, pool_pages: 8, .. }));
    assert_eq!(admitted(&batch), [2]);
    scheduler.step(Micros(1), [PrefillEvent::Abort(RequestId(2)), arrive(3, 60)], &mut batch);
    // 4 of 8 pages are in use; 100 tokens need 7. Two small ones may pass, a third may not.
    let events = [arrive(4, 100), arrive(5, 10), arrive(6, 10), arrive(7, 10)];
    scheduler.step(Micros(2), events, &mut batch);
    assert_eq!(admitted(&batch), [5, 6]);
    let done = [3, 5, 6].map(|id| PrefillEvent::Abort(RequestId(id)));
    scheduler.step(Micros(3), done, &mut batch);
    assert_eq!(admitted(&batch), [4, 7]);
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Both pools with requests in each state: 1 hands off, 2 runs in the decode pool, 3 arrives
/// there, 4 waits there, 5 is between two chunks, 6 is queued.
struct Pools {
    pre: PrefillScheduler<TagTracker>,
    dec: DecodeScheduler<TagTracker>,
}

fn lease(request: u64) -> LeaseId {
    LeaseId { transfer: request, generation: 1 }
}

fn offer(request: u64, prompt_tokens: usize) -> DecodeEvent {
    let (lease, request) = (lease(request), RequestId(request));
    DecodeEvent::Offer(Offer { request, prompt_tokens, max_tokens: 4, lease })
}

fn pools_in_every_state() -> Pools {
    let config = DecodeConfig { pool: POOL, max_seqs: 2, reserve_tokens: 1 };
    let (mut pre, mut dec) = (prefill(), DecodeScheduler::new(config));
    let (mut batch, mut steps) = (PrefillBatch::default(), DecodeBatch::default());
    pre.step(Micros(0), [arrive(1, 20)], &mut batch);
    assert!(batch.chunks[0].is_last);
    pre.step(Micros(1), [arrive(5, 90), arrive(6, 100)], &mut batch);
    assert_eq!((batch.chunks[0].is_last, pre.num_running(), pre.num_waiting()), (false, 2, 1));
    dec.step(Micros(0), [offer(2, 20), offer(3, 20), offer(4, 20)], &mut steps);
    dec.step(Micros(1), [DecodeEvent::Committed(RequestId(2))], &mut steps);
    assert_eq!((steps.seqs.len(), dec.num_running(), dec.num_waiting()), (1, 2, 1));
    Pools { pre, dec }
}

#[test]
fn o_402_abort_in_each_state() {
    for id in (1..=6).map(RequestId) {
        let Pools { mut pre, mut dec } = pools_in_every_state();
        let (mut batch, mut steps) = (PrefillBatch::default(), DecodeBatch::default());
        // Twice, and against an end that comes at the same time or later.
        let twice = [PrefillEvent::Abort(id), PrefillEvent::Abort(id), PrefillEvent::HandedOff(id)];
        pre.step(Micros(2), twice, &mut batch);
        let twice = [DecodeEvent::Abort(id), DecodeEvent::Finish(id), DecodeEvent::Abort(id)];
        dec.step(Micros(2), twice, &mut steps);
        assert!(batch.chunks.iter().all(|chunk| chunk.request != id));
        assert!(steps.seqs.iter().all(|seq| seq.request != id));
        dec.step(Micros(3), [DecodeEvent::Committed(id)], &mut steps);
        assert!(steps.seqs.iter().all(|seq| seq.request != id), "{id} came back");
        let all = (1..=6).map(RequestId);
        pre.step(Micros(4), all.clone().map(PrefillEvent::Abort), &mut batch);
        let fences = (2..=4).map(|id| DecodeEvent::Fenced(lease(id)));
        dec.step(Micros(4), all.map(DecodeEvent::Abort).chain(fences), &mut steps);
        let (pre, dec) = (pre.audit().unwrap(), dec.audit().unwrap());
        assert_eq!((pre.free, dec.free), (8, 8), "{id}: {pre:?} {dec:?}");
    }
}

#[test]
fn o_402_partly_filled_pages_are_never_published() {
    let (mut scheduler, mut batch) = (prefill(), PrefillBatch::default());
    let mut cached = |events: Vec<PrefillEvent>| {
        scheduler.step(Micros(0), events, &mut batch);
        batch.admitted.first().map(|admitted| admitted.cached_tokens)
    };
    // Two chunks of 32 of 80 tokens, then an abort, and a hand-off that comes too early.
    assert_eq!(cached(vec![arrive(1, 80)]), Some(0));
    assert_eq!(cached(vec![PrefillEvent::HandedOff(RequestId(1))]), None);
    assert_eq!(cached(vec![PrefillEvent::Abort(RequestId(1)), arrive(2, 30)]), Some(0));
    // 30 tokens fill one page and a part.
    let events = vec![PrefillEvent::HandedOff(RequestId(2)), arrive(3, 80)];
    assert_eq!(cached(events), Some(16));
}

#[test]
fn o_402_abort_in_every_state_leaks_nothing() {
    let mut preempted = 0;
    for seed in 1..=10_000 {
        let mut rng = Rng(seed * 0x9E37_79B9);
        let mut pre = prefill();
        let mut dec: DecodeScheduler<TagTracker> =
            DecodeScheduler::new(DecodeConfig { pool: POOL, max_seqs: 4, reserve_tokens: 1 });
        let (mut batch, mut steps) = (PrefillBatch::default(), DecodeBatch::default());
        let (mut next, mut unfenced) = (1, BTreeSet::new());
        for now in 0..32 {
            let (mut to_pre, mut to_dec) = (Vec::new(), Vec::new());
            if now < 20 && rng.below(2) == 0 {
                to_pre.push(arrive(next, 1 + u32::try_from(rng.below(60)).unwrap()));
                next += 1;
            }
            // Preempted: read again with what has been generated, unless aborted on the way.
            preempted += steps.preempted.len();
            for id in std::mem::take(&mut steps.preempted) {
                to_pre.push(arrive(id.0, 50));
            }
            for id in (1..next).map(RequestId) {
                if now >= 28 || rng.below(20) == 0 {
                    to_pre.extend([PrefillEvent::Abort(id), PrefillEvent::Abort(id)]);
                    to_dec.extend([DecodeEvent::Finish(id), DecodeEvent::Abort(id)]);
                }
            }
            for chunk in batch.chunks.iter().filter(|chunk| chunk.is_last) {
                let lease = LeaseId { transfer: chunk.request.0 * 100 + now, generation: 1 };
                let (request, prompt_tokens) = (chunk.request, chunk.start + chunk.len);
                let max_tokens = 40;
                let offer = Offer { request, prompt_tokens, max_tokens, lease };
                to_dec.push(DecodeEvent::Offer(offer));
            }
            for grant in &steps.grants {
                unfenced.insert(grant.lease);
                if rng.below(4) != 0 {
                    to_dec.push(DecodeEvent::Committed(grant.request));
                    to_pre.push(PrefillEvent::HandedOff(grant.request));
                }
            }
            if now >= 28 {
                to_dec.extend(unfenced.iter().map(|lease| DecodeEvent::Fenced(*lease)));
            }
            pre.step(Micros(now), to_pre, &mut batch);
            dec.step(Micros(now), to_dec, &mut steps);
            pre.audit().unwrap();
            dec.audit().unwrap();
        }
        let (pre, dec) = (pre.audit().unwrap(), dec.audit().unwrap());
        assert_eq!((pre.free + pre.cached, dec.free), (8, 8), "seed {seed}: {pre:?} {dec:?}");
    }
    assert!(preempted > 1_000, "only {preempted} were preempted");
}

#[test]
fn o_403_who_may_share_a_cached_prefix() {
    let adapter = |name: &str, version| Some(Adapter { name: name.into(), version });
    let with = |salt: &str, adapter| CacheNamespace { adapter, ..namespace(salt) };
    let private = |id| CacheNamespace { salt: CacheSalt::Private(RequestId(id)), ..namespace("") };
    let names = [
        private(1),
        private(2),
        namespace(""),
        namespace("X"),
        with("", adapter("X", 1)),
        with("X", adapter("X", 1)),
        with("X", adapter("X", 2)),
        with("a", adapter("bc", 1)),
        with("ab", adapter("c", 1)),
        CacheNamespace { model_revision: "n".into(), ..namespace("X") },
    ];
    let prompt: Vec<u32> = (0..64).collect();
    for (owner, ours) in names.iter().enumerate() {
        let mut pool: PagePool<NoopTracker> = PagePool::new(POOL);
        let mut table = PageTable::default();
        pool.allocate(4, &mut table).unwrap();
        pool.publish(ours, &prompt, &table);
        for (reader, theirs) in names.iter().enumerate() {
            let shared = pool.share_prefix(theirs, &prompt);
            assert_eq!(shared.pages().len(), if owner == reader { 3 } else { 0 });
            pool.release(shared);
        }
    }
}

#[test]
fn o_403_nothing_is_shared_after_eviction() {
    let prompt: Vec<u32> = (0..64).collect();
    let mut pool: PagePool<TagTracker> = PagePool::new(POOL);
    let mut table = PageTable::default();
    pool.allocate(4, &mut table).unwrap();
    pool.publish(&namespace("X"), &prompt, &table);
    let tags = table.tags().to_vec();
    pool.release(table);
    // Another tenant takes every page, so all cached ones go, and publishes the same tokens.
    let mut other = PageTable::default();
    pool.allocate(8, &mut other).unwrap();
    assert!(other.tags().iter().all(|tag| !tags.contains(tag)));
    pool.publish(&namespace("Y"), &prompt, &other);
    for (salt, want) in [("X", 0), ("Y", 3), ("", 0)] {
        let shared = pool.share_prefix(&namespace(salt), &prompt);
        assert_eq!(shared.pages().len(), want, "{salt:?}");
        pool.release(shared);
    }
    pool.audit([&other].into_iter()).unwrap();
}

#[test]
fn o_403_through_the_split() {
    let arrive = |id, salt: &str, is_preempted| {
        let (prompt, namespace): (Arc<[u32]>, _) = ((0..20).collect(), namespace(salt));
        let request = RequestId(id);
        PrefillEvent::Arrive(Arrival { request, prompt, max_tokens: 4, namespace, is_preempted })
    };
    let (mut scheduler, mut batch) = (prefill(), PrefillBatch::default());
    let mut cached = |event| {
        scheduler.step(Micros(0), [event], &mut batch);
        batch.admitted.first().map(|admitted| admitted.cached_tokens)
    };
    assert_eq!(cached(arrive(1, "X", false)), Some(0));
    // Read, but not committed by the decode pool: nobody shares it yet.
    assert_eq!(cached(arrive(2, "X", false)), Some(0));
    assert_eq!(cached(PrefillEvent::HandedOff(RequestId(1))), None);
    assert_eq!(cached(arrive(3, "Y", false)), Some(0));
    assert_eq!(cached(arrive(4, "X", false)), Some(16));
    for id in 2..=4 {
        assert_eq!(cached(PrefillEvent::Abort(RequestId(id))), None);
    }
    // One that comes back from the decode pool finds its own tenant's pages and no other's.
    assert_eq!(cached(arrive(1, "X", true)), Some(16));
    assert_eq!(cached(arrive(3, "Y", true)), Some(0));
}

#[test]
fn o_404_prompt_entirely_in_cache() {
    for (page_size, want) in
        [(16, [0, 0, 0, 16, 16, 32]), (1, [0, 14, 15, 16, 31, 32]), (7, [0, 14, 14, 14, 28, 28])]
    {
        for (len, want) in [1, 15, 16, 17, 32, 33].into_iter().zip(want) {
            let pool = PoolSize { num_pages: 64, page_size };
            let mut scheduler = PrefillScheduler::<TagTracker>::new(PrefillConfig {
                pool,
                decode_pool: pool,
                step_tokens: 64,
                max_seqs: 4,
                max_waiting: 4,
                max_bypass: 0,
            });
            let mut batch = PrefillBatch::default();
            scheduler.step(Micros(0), [arrive(1, len)], &mut batch);
            let next = [PrefillEvent::HandedOff(RequestId(1)), arrive(2, len)];
            scheduler.step(Micros(1), next, &mut batch);
            assert_eq!(batch.admitted[0].cached_tokens, want, "{len} tokens, page {page_size}");
            assert!(batch.chunks[0].is_last && batch.chunks[0].len == len as usize - want);
        }
    }
}
