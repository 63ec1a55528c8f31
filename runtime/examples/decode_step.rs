//! Decode steps of an untracked pool on one thread, for `cargo xtask bench tracking` to count the
//! instructions of: schedule, plan, forward pass, samples.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_runtime::cache::{LeaseId, NoopTracker, PoolSize};
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice};
use tessera_runtime::engine::named_kv_format;
use tessera_runtime::model::{Attention, Forward, SeqInput, StepLimits};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer,
};

const SEQS: u64 = 8;
const STEPS: usize = 8;
const PROMPT_TOKENS: usize = 40;
const POOL: PoolSize = PoolSize { num_pages: 64, page_size: 16 };

fn main() -> Result<()> {
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
    let seqs = SEQS as usize;
    let limits = StepLimits { tokens: seqs, seqs, pages_per_seq: 8, logit_rows: seqs };
    let limits = (Attention::Absorbed, limits);
    let mut forward = Forward::new(CpuDevice::new(), spec, loaded.weights, cache, limits)?;
    let mut scheduler = running()?;
    let mut batch = DecodeBatch::default();
    for _ in 0..STEPS {
        decode_step(&mut scheduler, &mut forward, &mut batch)?;
    }
    Ok(())
}

/// A scheduler with [`SEQS`] running requests.
fn running() -> Result<DecodeScheduler<NoopTracker>> {
    let config = DecodeConfig { pool: POOL, max_seqs: SEQS as usize, reserve_tokens: usize::MAX };
    let mut scheduler = DecodeScheduler::new(config);
    let (max_tokens, prompt_tokens) = (STEPS + 2, PROMPT_TOKENS);
    let offers = (1..=SEQS).map(|id| {
        let lease = LeaseId { transfer: id, generation: 1 };
        DecodeEvent::Offer(Offer { request: RequestId(id), prompt_tokens, max_tokens, lease })
    });
    let mut batch = DecodeBatch::default();
    scheduler.step(Micros(0), offers, &mut batch);
    anyhow::ensure!(batch.grants.len() == SEQS as usize, "not every request got its pages");
    let commits = batch.grants.iter().map(|grant| DecodeEvent::Committed(grant.request));
    scheduler.step(Micros(0), commits.collect::<Vec<_>>(), &mut DecodeBatch::default());
    Ok(scheduler)
}

/// What the decode pool does each step. Its name is what the instruction counter looks for.
#[inline(never)]
fn decode_step(
    scheduler: &mut DecodeScheduler<NoopTracker>,
    forward: &mut Forward<CpuDevice>,
    batch: &mut DecodeBatch,
) -> Result<()> {
    scheduler.step(Micros(0), [], batch);
    let params = Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() });
    let mut inputs: Vec<SeqInput<'_, NoopTracker>> = Vec::with_capacity(batch.seqs.len());
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
    anyhow::ensure!(outputs.len() == SEQS as usize, "a sequence was left out");
    Ok(())
}
