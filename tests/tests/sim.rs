//! Seeded simulation of the decode pool: a wire that delays, loses and reorders page writes,
//! aborts and preemption, over a fake memory in which every page carries its writer's stamp.

use std::collections::BTreeMap;
use tessera_runtime::cache::{LeaseId, PageId, PoolSize, TagTracker};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer,
};

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Write {
    at: u64,
    request: RequestId,
    lease: LeaseId,
    page: PageId,
}

/// Reads of foreign data in one run. Without `leases`, an aborted writer's pages are taken for
/// quiet at once and its late writes land, as in the field case.
fn foreign_reads(seed: u64, leases: bool) -> usize {
    let pool = PoolSize { num_pages: 10, page_size: 4 };
    let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
    let mut scheduler: DecodeScheduler<TagTracker> = DecodeScheduler::new(config);
    let (mut rng, mut batch) = (Rng(seed * 0x9E37_79B9), DecodeBatch::default());
    let mut memory = [RequestId(0); 10];
    let (mut wire, mut live) = (Vec::<Write>::new(), BTreeMap::<RequestId, LeaseId>::new());
    let (mut aborted, mut foreign, mut next, mut ended) = (Vec::new(), 0, 1, 0);
    for now in 0..80 {
        let mut events = Vec::new();
        if now < 40 && rng.below(2) == 0 {
            let (request, lease) = (RequestId(next), LeaseId { transfer: next, generation: 1 });
            let prompt_tokens = 1 + usize::try_from(rng.below(16)).expect("small");
            events.push(DecodeEvent::Offer(Offer { request, prompt_tokens, max_tokens: 8, lease }));
            live.insert(request, lease);
            next += 1;
        }
        // Deliver what is due; the order within a step is the wire's own.
        let (due, rest): (Vec<_>, Vec<_>) = wire.drain(..).partition(|write| write.at <= now);
        wire = rest;
        for write in due.into_iter().rev() {
            if !leases || scheduler.pool_mut().may_write(write.lease, write.page) {
                memory[write.page.0 as usize] = write.request;
            }
        }
        let quiet = |lease: &LeaseId| wire.iter().all(|write| write.lease != *lease);
        for (request, lease) in &live {
            let granted = scheduler.table(*request).is_some();
            if granted && quiet(lease) {
                events.push(DecodeEvent::Committed(*request));
            }
        }
        let (done, waiting): (Vec<_>, Vec<_>) =
            aborted.drain(..).partition(|lease| !leases || quiet(lease));
        aborted = waiting;
        events.extend(done.into_iter().map(DecodeEvent::Fenced));
        let ids: Vec<RequestId> = live.keys().copied().collect();
        for id in ids {
            if now >= 60 || rng.below(10) == 0 {
                events.push(DecodeEvent::Abort(id));
                aborted.extend(live.remove(&id));
                ended += 1;
            }
        }
        scheduler.step(Micros(now), events, &mut batch);
        for grant in &batch.grants {
            for &page in
                &scheduler.table(grant.request).expect("it has pages").pages()[..grant.num_pages]
            {
                let (at, request, lease) = (now + 1 + rng.below(6), grant.request, grant.lease);
                wire.push(Write { at, request, lease, page });
            }
        }
        for id in &batch.preempted {
            live.remove(id).expect("only live requests are preempted");
            ended += 1;
        }
        for seq in &batch.seqs {
            let pages = scheduler.table(seq.request).expect("it has pages").pages();
            for page in &pages[..seq.position.div_ceil(4)] {
                foreign += usize::from(memory[page.0 as usize] != seq.request);
            }
            memory[pages[seq.position / 4].0 as usize] = seq.request;
        }
        scheduler.audit().expect("the books agree");
    }
    let counts = scheduler.audit().expect("the books agree");
    assert_eq!((ended, counts.free), (next - 1, 10), "seed {seed}: {counts:?}");
    foreign
}

#[test]
fn no_request_reads_foreign_data() {
    for seed in 1..=1000 {
        assert_eq!(foreign_reads(seed, true), 0, "seed {seed}");
    }
}

#[test]
fn o_501_without_leases_late_writes_are_read() {
    assert!((1..=1000).map(|seed| foreign_reads(seed, false)).sum::<usize>() > 0);
}
