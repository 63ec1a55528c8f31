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

#[test]
fn o_402_abort_in_every_state_leaks_nothing() {
    for seed in 1..=10_000 {
        let mut rng = Rng(seed * 0x9E37_79B9);
        let mut pre = prefill();
        let mut dec: DecodeScheduler<TagTracker> =
            DecodeScheduler::new(DecodeConfig { pool: POOL, max_seqs: 4, reserve_tokens: 1 });
        let (mut batch, mut steps) = (PrefillBatch::default(), DecodeBatch::default());
        let (mut next, mut unfenced) = (1, BTreeSet::new());
        for now in 0..24 {
            let (mut to_pre, mut to_dec) = (Vec::new(), Vec::new());
            if now < 16 && rng.below(2) == 0 {
                to_pre.push(arrive(next, 1 + u32::try_from(rng.below(100)).unwrap()));
                next += 1;
            }
            for id in (1..next).map(RequestId) {
                if now >= 20 || rng.below(12) == 0 {
                    to_pre.extend([PrefillEvent::Abort(id), PrefillEvent::Abort(id)]);
                    to_dec.extend([DecodeEvent::Finish(id), DecodeEvent::Abort(id)]);
                }
            }
            for chunk in batch.chunks.iter().filter(|chunk| chunk.is_last) {
                let lease = LeaseId { transfer: chunk.request.0 * 100 + now, generation: 1 };
                let (request, prompt_tokens) = (chunk.request, chunk.start + chunk.len);
                to_dec.push(DecodeEvent::Offer(Offer {
                    request,
                    prompt_tokens,
                    max_tokens: 4,
                    lease,
                }));
            }
            for grant in &steps.grants {
                unfenced.insert(grant.lease);
                if rng.below(2) == 0 {
                    to_dec.push(DecodeEvent::Committed(grant.request));
                    to_pre.push(PrefillEvent::HandedOff(grant.request));
                }
            }
            if now >= 20 {
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
