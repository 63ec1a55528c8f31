//! Decode steps on one thread, for `cargo xtask bench tracking` to count the instructions of:
//! schedule, plan, forward pass, samples. With the argument `tags`, of a pool that keeps tags.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_runtime::cache::{LeaseId, NoopTracker, PageTracker, PoolSize, TagTracker};
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice};
use tessera_runtime::engine::named_kv_format;
use tessera_runtime::model::{Attention, Forward, SeqInput, StepLimits};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer,
};

const SEQS: usize = 8;
const STEPS: usize = 8;
const PROMPT_TOKENS: usize = 40;
const POOL: PoolSize = PoolSize { num_pages: 64, page_size: 16 };

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => run::<NoopTracker>(),
        Some("tags") => run::<TagTracker>(),
        Some(other) => anyhow::bail!("`{other}` is not `tags`"),
    }
}

fn run<T: PageTracker>() -> Result<()> {
    let threads = tessera_runtime::device::use_this_thread_only();
    threads.context("the worker threads exist already")?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/kimi_k2-int4");
    let loaded = Checkpoint::open(&dir)?.load(&WeightPolicy::checkpoint(), &mut |_| {})?;
    let spec = &loaded.spec;
    let cache = CacheSpec {
        format: named_kv_format("bf16")?,
        num_layers: spec.num_layers,
        num_pages: POOL.num_pages as usize,
        page_size: POOL.page_size,
        entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
    };
    let limits = StepLimits { tokens: SEQS, seqs: SEQS, pages_per_seq: 8, logit_rows: SEQS };
    let limits = (Attention::Absorbed, limits);
    let mut forward = Forward::new(CpuDevice::new(), spec, loaded.weights, cache, limits)?;
    let mut scheduler = running::<T>()?;
    let mut batch = DecodeBatch::default();
    for _ in 0..STEPS {
        decode_step(&mut scheduler, &mut forward, &mut batch)?;
    }
    Ok(())
}

/// A scheduler with [`SEQS`] running requests.
fn running<T: PageTracker>() -> Result<DecodeScheduler<T>> {
    let config = DecodeConfig { pool: POOL, max_seqs: SEQS, reserve_tokens: usize::MAX };
    let mut scheduler = DecodeScheduler::new(config);
    let (max_tokens, prompt_tokens) = (STEPS + 2, PROMPT_TOKENS);
    let offers = (1..).take(SEQS).map(|id| {
        let lease = LeaseId { transfer: id, generation: 1 };
        DecodeEvent::Offer(Offer { request: RequestId(id), prompt_tokens, max_tokens, lease })
    });
    let mut batch = DecodeBatch::default();
    scheduler.step(Micros(0), offers, &mut batch);
    anyhow::ensure!(batch.grants.len() == SEQS, "not every request got its pages");
    let commits = batch.grants.iter().map(|grant| DecodeEvent::Committed(grant.request));
    scheduler.step(Micros(0), commits.collect::<Vec<_>>(), &mut DecodeBatch::default());
    Ok(scheduler)
}

/// What the decode pool does each step. Its name is what the instruction counter looks for.
#[inline(never)]
fn decode_step<T: PageTracker>(
    scheduler: &mut DecodeScheduler<T>,
    forward: &mut Forward<CpuDevice>,
    batch: &mut DecodeBatch,
) -> Result<()> {
    scheduler.step(Micros(0), [], batch);
    if T::KEEPS_TAGS {
        let mut changes = Vec::new();
        scheduler.pool_mut().drain_changes(&mut changes);
        changes.into_iter().try_for_each(|(page, tag)| forward.set_page_tag(page, tag))?;
    }
    let params = Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() });
    let mut inputs: Vec<SeqInput<'_, T>> = Vec::with_capacity(batch.seqs.len());
    for seq in &batch.seqs {
        let table = scheduler.table(seq.request).context("a running request has pages")?;
        let sample = Some(SampleRow {
            params: params.clone(),
            position: seq.position as u64 + 1,
            tokens: Arc::from([]),
            prompt_len: PROMPT_TOKENS,
        });
        let (start, ledger) = (seq.position, table.ledger());
        inputs.push(SeqInput { tokens: &[7], start, pages: table.pages(), ledger, sample });
    }
    let outputs = forward.step(&inputs)?;
    let is_sound = outputs.iter().all(|output| output.bad_page.is_none());
    anyhow::ensure!(is_sound && outputs.len() == SEQS, "a sequence was left out");
    Ok(())
}
