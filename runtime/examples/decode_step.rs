//! Decode steps on one thread, for `cargo xtask bench tracking` to count the instructions of:
//! schedule, plan, forward pass, samples. With the argument `tags`, of a pool that keeps tags; with
//! `time`, steps of both kinds in turn, and how their times compare.

use anyhow::{Context, Result};
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
const STEPS: usize = 8;
const ROUNDS: usize = 400;
const PROMPT_TOKENS: usize = 40;
const POOL: PoolSize = PoolSize { num_pages: 64, page_size: 16 };

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => run::<NoopTracker>(),
        Some("tags") => run::<TagTracker>(),
        Some("time") => compare(),
        Some(other) => anyhow::bail!("`{other}` is neither `tags` nor `time`"),
    }
}

fn run<T: PageTracker>() -> Result<()> {
    tessera_runtime::device::use_this_thread_only()?;
    let (mut forward, mut scheduler) = (forward()?, running::<T>()?);
    let mut batch = DecodeBatch::default();
    for _ in 0..STEPS {
        decode_step(&mut scheduler, &mut forward, &mut batch)?;
    }
    Ok(())
}

/// Times steps of both kinds in turn, so that whatever slows the machine slows both.
fn compare() -> Result<()> {
    tessera_runtime::device::use_this_thread_only()?;
    let (mut off, mut on) = (forward()?, forward()?);
    let (mut off_batch, mut on_batch) = (DecodeBatch::default(), DecodeBatch::default());
    let (mut times_off, mut times_on) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (mut untagged, mut tagged) = (running::<NoopTracker>()?, running::<TagTracker>()?);
        for step in 0..STEPS {
            let mut off = || timed(|| decode_step(&mut untagged, &mut off, &mut off_batch));
            let mut on = || timed(|| decode_step(&mut tagged, &mut on, &mut on_batch));
            let (time_off, time_on) = if (round + step) % 2 == 0 {
                (off()?, on()?)
            } else {
                let on = on()?;
                (off()?, on)
            };
            times_off.push(time_off);
            times_on.push(time_on);
        }
    }
    let ratios: Vec<f64> =
        times_on.iter().zip(&times_off).map(|(on, off)| (on / off).ln()).collect();
    let n = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / n;
    let deviation = (ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let (mean, half) = (100.0 * mean, 100.0 * 1.96 * deviation / n.sqrt());
    let p95 = 100.0 * (percentile_95(times_on) / percentile_95(times_off) - 1.0);
    println!(
        "  {n} pairs of steps: tags take {mean:+.2} % +- {half:.2} % more time, {p95:+.2} % at p95"
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn timed(step: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = std::time::Instant::now();
    step()?;
    Ok(start.elapsed().as_secs_f64())
}

fn percentile_95(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 95 / 100]
}

/// A small quantized model, with room for [`SEQS`] sequences.
fn forward() -> Result<Forward<CpuDevice>> {
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
    Ok(Forward::new(CpuDevice::new(), spec, loaded.weights, cache, limits)?)
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
        let tokens = NewTokens::Given(&[7]);
        inputs.push(SeqInput { tokens, start, pages: table.pages(), ledger, sample });
    }
    let outputs = forward.step(&inputs)?;
    let is_sound = outputs.iter().all(|output| output.bad_page.is_none());
    anyhow::ensure!(is_sound && outputs.len() == SEQS, "a sequence was left out");
    Ok(())
}
