//! What the benchmarks share: engines on a generated model, clients in a closed loop, statistics.

use crate::generated;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tessera_runtime::engine::{
    EngineConfig, EngineHandle, EngineModel, EngineThreads, KvScales, PoolConfig, named_kv_format,
    start,
};
use tessera_runtime::model::{ModelSpec, ModelWeights};
use tessera_runtime::request::{GenerateEvent, GenerateRequest, SampleParams};
use tessera_runtime::schedule::Micros;

/// Tokens a page in benchmarks.
pub const PAGE_SIZE: usize = 16;

/// The generated model in the formats of the recipe's split.
#[derive(Debug)]
pub struct BenchModel {
    /// What it is.
    pub spec: ModelSpec,
    prefill: ModelWeights,
    decode: ModelWeights,
}

impl BenchModel {
    /// Makes it; takes some seconds.
    pub fn generate() -> Self {
        let spec = generated::spec();
        let prefill = generated::weights(&spec, "fp8-128x128", "fp8-128x128");
        let decode = generated::weights(&spec, "int4-g32", "bf16");
        Self { spec, prefill, decode }
    }

    /// Starts an engine on it whose decode cache is `kv`, with `kv_memory` bytes.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn start(
        &self,
        kv: &str,
        kv_memory: usize,
        integrity: bool,
    ) -> Result<(EngineHandle, EngineThreads)> {
        let pool = |weights: &str, kv: &str, kv_memory, step_tokens| {
            anyhow::Ok(PoolConfig {
                weights: weights.to_owned(),
                kv: named_kv_format(kv)?,
                page_size: PAGE_SIZE,
                kv_memory,
                max_seqs: 64,
                step_tokens,
            })
        };
        let config = EngineConfig {
            model_name: "generated".to_owned(),
            max_model_len: self.spec.max_position_embeddings,
            prefill: pool("fp8", "bf16", 256 << 20, 256)?,
            decode: pool("int4", kv, kv_memory, 64)?,
            integrity,
            kv_scales: KvScales::Auto,
            fingerprint: "generated".to_owned(),
            max_waiting: 1024,
            clock: Arc::new(Micros::default),
        };
        let model = EngineModel {
            spec: self.spec.clone(),
            prefill: self.prefill.clone(),
            decode: self.decode.clone(),
        };
        Ok(start(config, model)?)
    }
}

/// What a closed loop of clients saw.
#[derive(Debug, Clone)]
pub struct Run {
    /// From the first request to the last token.
    pub seconds: f64,
    /// Processor time of the whole process in that time, which waiting for a busy machine is not
    /// part of; in steps of 10 ms.
    pub cpu_seconds: f64,
    /// Tokens generated.
    pub tokens: usize,
    /// Tokens a second while every client was decoding: from the last first token to the first
    /// last one. Ramps at both ends, which depend on who came first, do not count.
    pub steady_throughput: f64,
    /// Time between a stream's tokens in that window, in milliseconds, sorted.
    pub gaps_ms: Vec<f64>,
    /// Most requests that waited for decode pages at once.
    pub peak_waiting: u64,
    /// Most requests that held decode pages at once.
    pub peak_running: u64,
    /// Requests preempted.
    pub preempted: u64,
}

impl Run {
    /// Tokens a second over all clients.
    pub fn throughput(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// 95th percentile of the time between tokens, in milliseconds.
    pub fn p95_ms(&self) -> f64 {
        let last = self.gaps_ms.len() - 1;
        self.gaps_ms[(last * 95 + 50) / 100]
    }
}

/// What each client asks for.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Prompt tokens, the same for all, so that the prefix cache takes most of the prefill.
    pub prompt_tokens: usize,
    /// Tokens to generate.
    pub max_tokens: usize,
}

/// Runs one request a client and waits for all.
///
/// # Errors
/// If a request fails.
pub fn run(handle: &EngineHandle, load: Load) -> Result<Run> {
    let metrics = handle.metrics();
    let preempted = || metrics.preempted_requests_total.load(Ordering::Relaxed);
    let (before, waiting, running) = (preempted(), AtomicU64::new(0), AtomicU64::new(0));
    let watch = || {
        waiting.fetch_max(metrics.decode.queue_reqs.load(Ordering::Relaxed), Ordering::Relaxed);
        running.fetch_max(metrics.decode.running_reqs.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let (start, cpu_start) = (now(), cpu_seconds()?);
    let streams = std::thread::scope(|scope| -> Result<Vec<Vec<Instant>>> {
        let client = || -> Result<Vec<Instant>> { client(handle, load, &watch) };
        let clients: Vec<_> = (0..load.clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (steady_throughput, gaps_ms) = steady(&streams);
    Ok(Run {
        seconds,
        cpu_seconds: cpu_seconds()? - cpu_start,
        tokens: load.clients * load.max_tokens,
        steady_throughput,
        gaps_ms,
        peak_waiting: waiting.into_inner(),
        peak_running: running.into_inner(),
        preempted: preempted() - before,
    })
}

/// Processor time that this process has used, in user and kernel mode.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat without a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    // The kernel reports in hundredths of a second, whatever its own clock.
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// Throughput and sorted gaps of the time in which every stream was under way.
fn steady(streams: &[Vec<Instant>]) -> (f64, Vec<f64>) {
    let first = streams.iter().filter_map(|times| times.first()).max();
    let last = streams.iter().filter_map(|times| times.last()).min();
    let (Some(&first), Some(&last)) = (first, last) else { return (0.0, Vec::new()) };
    let is_inside = |time: &Instant| first <= *time && *time <= last;
    let mut tokens = 0;
    let mut gaps = Vec::new();
    for times in streams {
        let inside: Vec<&Instant> = times.iter().filter(|time| is_inside(time)).collect();
        tokens += inside.len().saturating_sub(1);
        gaps.extend(inside.windows(2).map(|w| (*w[1] - *w[0]).as_secs_f64() * 1e3));
    }
    gaps.sort_by(f64::total_cmp);
    (tokens as f64 / last.saturating_duration_since(first).as_secs_f64(), gaps)
}

/// When each token of one request came.
fn client(handle: &EngineHandle, load: Load, watch: &impl Fn()) -> Result<Vec<Instant>> {
    let prompt: Vec<u32> = (0u32..).map(|i| i * 7 % 2000).take(load.prompt_tokens).collect();
    let request = GenerateRequest {
        prompt: prompt.into(),
        sampling: Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() }),
        max_tokens: load.max_tokens,
        stop_token_ids: Arc::from([]),
        ignore_eos: true,
        cache_salt: Some(Arc::from("bench")),
    };
    let (_, mut events) = handle.submit(request)?;
    let mut times = Vec::with_capacity(load.max_tokens);
    while let Some(event) = events.blocking_recv() {
        match event {
            GenerateEvent::Token(_) => {
                watch();
                times.push(now());
            }
            GenerateEvent::Finished { .. } => return Ok(times),
            GenerateEvent::Failed(error) => return Err(error.into()),
        }
    }
    bail!("the engine ended")
}

/// The machine's clock: benchmarks are what may read it.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Mean and half width of its 95 % interval (Student's t) of some ratios.
pub fn mean_and_interval(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, t_975(values.len() - 1) * (variance / n).sqrt())
}

/// The 97.5 % quantile of Student's t, by Hill's expansion from the normal quantile.
fn t_975(degrees: usize) -> f64 {
    let (z, d) = (1.959_964_f64, degrees as f64);
    z + (z.powi(3) + z) / (4.0 * d)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * d * d)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * d.powi(3))
}

/// Where a benchmark's record goes: `bench/record/DATE-COMMIT-NAME.EXTENSION`.
///
/// # Errors
/// If git cannot say which commit this is.
pub fn record_path(name: &str, extension: &str) -> Result<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests lies in a workspace")?;
    let git = Command::new("git")
        .args(["log", "-1", "--format=%cs-%h", "--abbrev=8"])
        .current_dir(root)
        .output()?;
    let commit = String::from_utf8(git.stdout)?;
    Ok(root.join("bench/record").join(format!("{}-{name}.{extension}", commit.trim())))
}

/// The processor, as the system names it.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", model.unwrap_or("unknown processor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_are_those_of_the_tables() {
        for (degrees, want) in [(10, 2.228), (20, 2.086), (60, 2.000)] {
            assert!((t_975(degrees) - want).abs() < 2e-3, "{degrees}: {}", t_975(degrees));
        }
    }
}
