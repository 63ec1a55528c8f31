//! What a decode step takes beside its kernels, for `cargo xtask bench step`: the real scheduler
//! and forward pass of a batch of 32, on a device whose kernels do nothing.
//!
//! Launches are checked as ever. They are handed to one thread, which is a plain call, and to one a
//! core, which wakes them and waits for those that came.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
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

const SEQS: usize = 32;
const STEPS: usize = 1500;
/// Steps before those that count.
const WARM_UP: usize = 50;
const PROMPT_TOKENS: usize = 1000;
const PAGES_PER_SEQ: usize = 256;
const POOL: PoolSize = PoolSize { num_pages: 32 * 256, page_size: 16 };

fn main() -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{SEQS} sequences of {PROMPT_TOKENS} tokens and more, tiny-kimi (4 layers), {cores} cores"
    );
    println!("microseconds a step, median and p95 of {STEPS}\n");
    println!("{:<24} {:>15} {:>15} {:>15}", "", "schedule", "plan, launch", "together");
    for threads in [1, cores] {
        row::<NoopTracker>("no tags", threads)?;
        row::<TagTracker>("tags, checked", threads)?;
    }
    Ok(())
}

fn row<T: PageTracker>(name: &str, threads: usize) -> Result<()> {
    let mut forward = forward(threads)?;
    let mut scheduler = running::<T>()?;
    let params = Arc::new(SampleParams::default());
    let (mut batch, mut memory, mut changes) = (DecodeBatch::default(), Vec::new(), Vec::new());
    let (mut schedule, mut step) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP + STEPS {
        schedule.push(micros(|| {
            scheduler.step(Micros(0), [], &mut batch);
            Ok(())
        })?);
        ensure!(batch.seqs.len() == SEQS, "a sequence was left out");
        step.push(micros(|| {
            changes.clear();
            scheduler.pool_mut().drain_changes(&mut changes);
            changes.iter().try_for_each(|&(page, tag)| forward.set_page_tag(page, tag))?;
            let mut inputs: Vec<SeqInput<'_, T>> = SeqInput::recycle(std::mem::take(&mut memory));
            for seq in &batch.seqs {
                let table = scheduler.table(seq.request).context("a running request has pages")?;
                let sample = Some(SampleRow {
                    params: params.clone(),
                    position: seq.position as u64 + 1,
                    tokens: Arc::default(),
                    prompt_len: PROMPT_TOKENS,
                });
                let (start, ledger) = (seq.position, table.ledger());
                let tokens = NewTokens::Given(&[7]);
                inputs.push(SeqInput { tokens, start, pages: table.pages(), ledger, sample });
            }
            let outputs = forward.step(&inputs)?;
            ensure!(outputs.len() == SEQS, "an output was left out");
            memory = SeqInput::recycle(inputs);
            Ok(())
        })?);
    }
    let together: Vec<f64> = schedule.iter().zip(&step).map(|(a, b)| a + b).collect();
    let cells = [schedule, step, together].map(|mut times| summary(&mut times[WARM_UP..]));
    print!("{:<24}", format!("{name}, {threads} threads"));
    cells.iter().for_each(|(median, p95)| print!(" {median:>7.2} {p95:>7.2}"));
    println!();
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn micros(f: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    f()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Median and 95th percentile.
fn summary(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 95 / 100])
}

/// The bundled model on a device whose kernels do nothing.
fn forward(threads: usize) -> Result<Forward<CpuDevice>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi");
    let loaded = Checkpoint::open(&dir)?.load(&WeightPolicy::checkpoint(), &mut |_| {})?;
    let spec = &loaded.spec;
    let cache = CacheSpec {
        format: named_kv_format("bf16")?,
        num_layers: spec.num_layers,
        num_pages: POOL.num_pages as usize,
        page_size: POOL.page_size,
        entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
    };
    let limits =
        StepLimits { tokens: SEQS, seqs: SEQS, pages_per_seq: PAGES_PER_SEQ, logit_rows: SEQS };
    let device = CpuDevice::idle(threads)?;
    Ok(Forward::new(device, spec, loaded.weights, cache, (Attention::Absorbed, limits))?)
}

/// A scheduler with [`SEQS`] running requests.
fn running<T: PageTracker>() -> Result<DecodeScheduler<T>> {
    let config = DecodeConfig { pool: POOL, max_seqs: SEQS, reserve_tokens: usize::MAX };
    let mut scheduler = DecodeScheduler::new(config);
    let (max_tokens, prompt_tokens) = (WARM_UP + STEPS + 2, PROMPT_TOKENS);
    let offers = (1..).take(SEQS).map(|id| {
        let lease = LeaseId { transfer: id, generation: 1 };
        DecodeEvent::Offer(Offer { request: RequestId(id), prompt_tokens, max_tokens, lease })
    });
    let mut batch = DecodeBatch::default();
    scheduler.step(Micros(0), offers, &mut batch);
    ensure!(batch.grants.len() == SEQS, "not every request got its pages");
    let commits = batch.grants.iter().map(|grant| DecodeEvent::Committed(grant.request));
    scheduler.step(Micros(0), commits.collect::<Vec<_>>(), &mut DecodeBatch::default());
    Ok(scheduler)
}
