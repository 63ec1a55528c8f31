//! What a decode step allocates: the list of its outputs, and nothing else.
//!
//! Beside that, a page table grows when its sequence enters a page (by doubling), a row with
//! penalties carries a copy of its tokens, and one with `top_logprobs` leaves with its list.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_runtime::cache::{LeaseId, NoopTracker, PageTracker, PoolSize, TagTracker};
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice};
use tessera_runtime::engine::named_kv_format;
use tessera_runtime::model::{Attention, Forward, NewTokens, SeqInput, StepLimits};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer,
};

const SEQS: usize = 8;
/// Fills two and a half pages: the steps below enter no page.
const PROMPT_TOKENS: usize = 40;
const POOL: PoolSize = PoolSize { num_pages: 64, page_size: 16 };

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what this thread asks the system for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one forwards and counts")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

fn allocations<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = f();
    (ALLOCATIONS.get() - before, result)
}

fn forward() -> Forward<CpuDevice> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/kimi_k2-int4");
    let loaded = Checkpoint::open(&dir).unwrap();
    let loaded = loaded.load(&WeightPolicy::checkpoint(), &mut |_| {}).unwrap();
    let spec = &loaded.spec;
    let cache = CacheSpec {
        format: named_kv_format("bf16").unwrap(),
        num_layers: spec.num_layers,
        num_pages: POOL.num_pages as usize,
        page_size: POOL.page_size,
        entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
    };
    let limits = StepLimits { tokens: SEQS, seqs: SEQS, pages_per_seq: 8, logit_rows: SEQS };
    let device = CpuDevice::idle(1).unwrap();
    Forward::new(device, spec, loaded.weights, cache, (Attention::Absorbed, limits)).unwrap()
}

fn running<T: PageTracker>() -> DecodeScheduler<T> {
    let config = DecodeConfig { pool: POOL, max_seqs: SEQS, reserve_tokens: usize::MAX };
    let mut scheduler = DecodeScheduler::new(config);
    let offers = (1..).take(SEQS).map(|id| {
        let lease = LeaseId { transfer: id, generation: 1 };
        let (request, prompt_tokens) = (RequestId(id), PROMPT_TOKENS);
        DecodeEvent::Offer(Offer { request, prompt_tokens, max_tokens: 8, lease })
    });
    let mut batch = DecodeBatch::default();
    scheduler.step(Micros(0), offers, &mut batch);
    let commits: Vec<_> =
        batch.grants.iter().map(|grant| DecodeEvent::Committed(grant.request)).collect();
    scheduler.step(Micros(0), commits, &mut batch);
    assert_eq!(batch.seqs.len(), SEQS);
    scheduler
}

fn check<T: PageTracker>() {
    let (mut forward, mut scheduler) = (forward(), running::<T>());
    let params = Arc::new(SampleParams::default());
    let (mut batch, mut memory) = (DecodeBatch::default(), Vec::new());
    for step in 0..6 {
        let scheduled = allocations(|| scheduler.step(Micros(0), [], &mut batch)).0;
        let mut inputs: Vec<SeqInput<'_, T>> = SeqInput::recycle(memory);
        let listed = allocations(|| {
            inputs.extend(batch.seqs.iter().map(|seq| {
                let (position, table) =
                    (seq.position as u64 + 1, scheduler.table(seq.request).unwrap());
                let (params, tokens) = (params.clone(), Arc::default());
                let sample = Some(SampleRow { params, position, tokens, prompt_len: 40 });
                let (start, ledger) = (seq.position, table.ledger());
                let tokens = NewTokens::Given(&[7]);
                SeqInput { tokens, start, pages: table.pages(), ledger, sample }
            }));
        });
        let (stepped, outputs) = allocations(|| forward.step(&inputs).unwrap());
        assert_eq!(outputs.len(), SEQS);
        memory = SeqInput::recycle(inputs);
        // The first step sizes what the others use again.
        if step > 0 {
            assert_eq!((scheduled, listed.0, stepped), (0, 0, 1), "step {step}");
        }
    }
}

#[test]
fn a_decode_step_allocates_its_outputs_alone() {
    check::<NoopTracker>();
    check::<TagTracker>();
}
