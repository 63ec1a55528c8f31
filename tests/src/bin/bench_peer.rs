//! `cargo xtask bench peer WORKDIR`: Tessera and llama.cpp on one model, in turn.
//!
//! `bench/peer/setup.sh WORKDIR` makes what it needs. Both sides keep their weights in 4 bits and
//! their cache in 16, use the same number of threads, and run as processes of their own, so that
//! neither inherits the other's memory or threads. `ours` is the mode of such a process.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tessera_kernels::formats::format;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_lanes::exec::Watch;
use tessera_runtime::cache::{NoopTracker, PageId};
use tessera_runtime::checkpoint::{Checkpoint, Output, ROLES, Role, WeightPolicy, quantize_to};
use tessera_runtime::device::{CacheSpec, CpuDevice, use_threads};
use tessera_runtime::engine::named_kv_format;
use tessera_runtime::model::{Attention, Forward, SeqInput, StepLimits};
use tessera_tests::bench::{machine, record_path};

const PREFILL_TOKENS: usize = 512;
const DECODE_TOKENS: usize = 64;
const SHARED_TOKENS: usize = 128;
const BATCH_TOKENS: usize = 32;
const BATCHES: [usize; 4] = [1, 8, 16, 32];
const PAGE_SIZE: usize = 16;

/// Compares with llama.cpp on the model that `bench/peer/setup.sh` makes.
#[derive(Debug, Parser)]
struct Args {
    /// The folder that setup.sh filled.
    workdir: PathBuf,
    /// Threads of both sides; may be given more than once.
    #[arg(long, default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Runs of each side, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Runs Tessera's side alone and prints JSON.
    #[arg(long, hide = true)]
    ours: bool,
    /// Measures only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
    /// Runs Tessera's side alone and prints where its time goes.
    #[arg(long)]
    profile: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let model = args.workdir.join("int4");
    if args.ours || args.profile {
        let threads = *args.threads.first().context("one number of threads")?;
        let mut ours = Ours::load(&model, threads)?;
        ours.profile = args.profile.then(Arc::default);
        if let Some(profile) = ours.profile.clone() {
            ours.forward.device().watch(profile);
        }
        println!("{}", ours.measure(&args.only)?);
        return Ok(());
    }
    if !model.exists() {
        eprintln!("quantizing the model to 4 bits");
        quantize_to(
            &Checkpoint::open(&args.workdir.join("hf"))?,
            &four_bit(),
            &Output::new(&model),
            &mut |_| {},
        )?;
    }
    let mut text = format!(
        "{}\nTessera against llama.cpp, tokens a second, best of {} runs in turn\n",
        machine(),
        args.rounds
    );
    let mut csv = String::from("threads,what,round,tessera,llama_cpp\n");
    for &threads in &args.threads {
        compare(&args, threads, &mut text, &mut csv)?;
    }
    print!("{text}");
    std::fs::write(record_path("peer", "txt")?, &text)?;
    std::fs::write(record_path("peer", "csv")?, csv)?;
    Ok(())
}

/// Every linear layer in `int4-g32`, which is Q4_0's bits: 4 a weight and 16 a group of 32.
fn four_bit() -> WeightPolicy {
    let int4 = format("int4-g32").expect("a format of ours");
    let wide = [Role::RouterGate, Role::Embed];
    let roles = ROLES.iter().filter(|role| !wide.contains(role));
    WeightPolicy { name: "int4-all", formats: roles.map(|&role| (role, int4)).collect() }
}

type Rates = BTreeMap<String, f64>;

fn compare(args: &Args, threads: usize, text: &mut String, csv: &mut String) -> Result<()> {
    let mut best: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for round in 0..args.rounds {
        eprintln!("{threads} threads, round {} of {}", round + 1, args.rounds);
        let ours = run_ours(&args.workdir, threads, &args.only)?;
        let theirs = run_theirs(&args.workdir, threads)?;
        for (what, &ours) in &ours {
            let theirs = *theirs.get(what).with_context(|| format!("llama.cpp gave no {what}"))?;
            let _ = writeln!(csv, "{threads},{what},{round},{ours:.2},{theirs:.2}");
            let best = best.entry(what.clone()).or_insert([0.0; 2]);
            *best = [best[0].max(ours), best[1].max(theirs)];
        }
    }
    let _ = writeln!(
        text,
        "\n{threads} threads\n{:>12} | {:>8} | {:>9} | {:>6}",
        "", "Tessera", "llama.cpp", "ratio"
    );
    for (what, [ours, theirs]) in best {
        let ratio = ours / theirs;
        let _ = writeln!(text, "{what:>12} | {ours:>8.1} | {theirs:>9.1} | {ratio:>5.2}x");
    }
    Ok(())
}

fn run_ours(workdir: &Path, threads: usize, only: &str) -> Result<Rates> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(workdir).arg("--ours").args(["--threads", &threads.to_string()]);
    command.args(["--only", only]);
    Ok(serde_json::from_str(&output(&mut command)?)?)
}

fn run_theirs(workdir: &Path, threads: usize) -> Result<Rates> {
    let threads = threads.to_string();
    let tool = |name: &str| {
        let mut command = Command::new(workdir.join("bin").join(name));
        command.env("OMP_WAIT_POLICY", "passive").env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        command.arg("-m").arg(workdir.join("q4_0.gguf")).args(["-t", &threads, "-lm", "none"]);
        command
    };
    let mut rates = Rates::new();
    let bench: Value = serde_json::from_str(&output(tool("llama-bench").args([
        "-p",
        &PREFILL_TOKENS.to_string(),
        "-n",
        &DECODE_TOKENS.to_string(),
        "-r",
        "3",
        "-o",
        "json",
    ]))?)?;
    for test in bench.as_array().context("llama-bench writes an array")? {
        let samples = test["samples_ts"].as_array().context("samples_ts")?;
        let best = samples.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        let is_prefill = test["n_prompt"].as_u64() != Some(0);
        rates.insert(if is_prefill { prefill_name() } else { decode_name() }, best);
    }
    let batches = BATCHES.map(|batch| batch.to_string()).join(",");
    let batched = output(tool("llama-batched-bench").args([
        "-c",
        "8192",
        "-b",
        "2048",
        "-ub",
        "512",
        "-pps",
        "-npp",
        &SHARED_TOKENS.to_string(),
        "-ntg",
        &BATCH_TOKENS.to_string(),
        "-npl",
        &batches,
        "-fa",
        "on",
        "--output-format",
        "jsonl",
    ]))?;
    for line in batched.lines().filter(|line| line.starts_with('{')) {
        let run: Value = serde_json::from_str(line)?;
        let (batch, rate) = (run["pl"].as_u64(), run["speed_tg"].as_f64());
        let (batch, rate) =
            batch.zip(rate).context("llama-batched-bench writes pl and speed_tg")?;
        rates.insert(batch_name(usize::try_from(batch)?), rate);
    }
    Ok(rates)
}

fn prefill_name() -> String {
    format!("prefill {PREFILL_TOKENS}")
}

fn decode_name() -> String {
    format!("decode {DECODE_TOKENS}")
}

fn batch_name(batch: usize) -> String {
    format!("batch {batch:02}")
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Tessera's side: a forward pass without scheduler or server, as llama.cpp's tools run theirs.
struct Ours {
    forward: Forward<CpuDevice>,
    profile: Option<Arc<Profile>>,
}

/// Time and number of launches of each kernel.
#[derive(Debug, Default)]
struct Profile(Mutex<BTreeMap<&'static str, (Duration, usize)>>);

impl Watch for Profile {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn launch(&self, kernel: &'static str, run: &mut dyn FnMut()) {
        let start = Instant::now();
        run();
        let time = start.elapsed();
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kernels.entry(kernel).or_default();
        *entry = (entry.0 + time, entry.1 + 1);
    }
}

impl Profile {
    /// Prints what was seen since the last time, of `seconds` in all.
    fn print(&self, what: &str, seconds: f64) {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kernels: Vec<_> = std::mem::take(&mut *kernels).into_iter().collect();
        kernels.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
        eprintln!("\n{what}: {:.1} ms", seconds * 1e3);
        let mut outside = seconds;
        for (kernel, (time, launches)) in kernels {
            let time = time.as_secs_f64();
            outside -= time;
            let share = 100.0 * time / seconds;
            eprintln!("{:10.1} ms {share:5.1} % {launches:6} x {kernel}", time * 1e3);
        }
        eprintln!("{:10.1} ms {:5.1} % outside kernels", outside * 1e3, 100.0 * outside / seconds);
    }
}

impl Ours {
    fn load(model: &Path, threads: usize) -> Result<Self> {
        use_threads(threads)?;
        let loaded = Checkpoint::open(model)?.load(&WeightPolicy::checkpoint(), &mut |_| {})?;
        let spec = &loaded.spec;
        let most = BATCHES.iter().max().copied().unwrap_or(1);
        let pages_per_seq = PREFILL_TOKENS.div_ceil(PAGE_SIZE) + 1;
        let cache = CacheSpec {
            format: named_kv_format("f16")?,
            num_layers: spec.num_layers,
            num_pages: pages_per_seq + most * BATCH_TOKENS.div_ceil(PAGE_SIZE),
            page_size: PAGE_SIZE,
            entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
        };
        let limits =
            StepLimits { tokens: PREFILL_TOKENS, seqs: most, pages_per_seq, logit_rows: most };
        let limits = (Attention::Expanded, limits);
        let forward =
            Forward::new(CpuDevice::with_threads(threads)?, spec, loaded.weights, cache, limits)?;
        Ok(Self { forward, profile: None })
    }

    fn measure(&mut self, only: &str) -> Result<Value> {
        let mut rates = BTreeMap::new();
        for _ in 0..3 {
            if prefill_name().contains(only) {
                keep_best(&mut rates, prefill_name(), self.prefill(PREFILL_TOKENS)?);
            }
            if decode_name().contains(only) {
                keep_best(&mut rates, decode_name(), self.decode(1, 0, DECODE_TOKENS)?);
            }
        }
        for batch in BATCHES.into_iter().filter(|&batch| batch_name(batch).contains(only)) {
            self.prefill(SHARED_TOKENS)?;
            let rate = self.decode(batch, SHARED_TOKENS, BATCH_TOKENS)?;
            keep_best(&mut rates, batch_name(batch), rate);
        }
        Ok(json!(rates))
    }

    /// Tokens a second of a prompt of `count` tokens, into the first pages.
    fn prefill(&mut self, count: usize) -> Result<f64> {
        let tokens: Vec<u32> = (0..count).map(token).collect();
        let pages = pages(0..count.div_ceil(PAGE_SIZE))?;
        self.forward.set_attention(Attention::Expanded)?;
        self.start_profile();
        let input = SeqInput::<NoopTracker> {
            tokens: &tokens,
            start: 0,
            pages: &pages,
            ledger: &(),
            sample: Some(greedy(count)),
        };
        let rate = self.timed(&[input], count)?;
        self.end_profile(&prefill_name(), count as f64 / rate);
        Ok(rate)
    }

    /// Tokens a second of `batch` sequences that share the first `shared` tokens.
    fn decode(&mut self, batch: usize, shared: usize, count: usize) -> Result<f64> {
        self.forward.set_attention(Attention::Absorbed)?;
        let prefix = pages(0..shared.div_ceil(PAGE_SIZE))?;
        let own = count.div_ceil(PAGE_SIZE);
        let tables = (0..batch).map(|seq| {
            let first = prefix.len() + seq * own;
            Ok([prefix.clone(), pages(first..first + own)?].concat())
        });
        let tables: Vec<Vec<PageId>> = tables.collect::<Result<_>>()?;
        let mut seconds = 0.0;
        self.start_profile();
        for step in 0..count {
            let start = shared + step;
            let tokens: Vec<[u32; 1]> = (0..batch).map(|seq| [token(start + 31 * seq)]).collect();
            let inputs: Vec<_> = tables
                .iter()
                .zip(&tokens)
                .map(|(pages, tokens)| SeqInput::<NoopTracker> {
                    tokens,
                    start,
                    pages: &pages[..(start + 1).div_ceil(PAGE_SIZE)],
                    ledger: &(),
                    sample: Some(greedy(start + 1)),
                })
                .collect();
            seconds += 1.0 / self.timed(&inputs, 1)?;
        }
        self.end_profile(&batch_name(batch), seconds);
        Ok((batch * count) as f64 / seconds)
    }

    fn start_profile(&self) {
        if let Some(profile) = &self.profile {
            profile.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn end_profile(&self, what: &str, seconds: f64) {
        if let Some(profile) = &self.profile {
            profile.print(what, seconds);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn timed(&mut self, inputs: &[SeqInput<'_, NoopTracker>], count: usize) -> Result<f64> {
        let start = Instant::now();
        let outputs = self.forward.step(inputs)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(outputs.iter().all(|o| o.sampled.is_some()), "a sequence got no token");
        Ok(count as f64 / seconds)
    }
}

fn keep_best(rates: &mut Rates, what: String, rate: f64) {
    let best = rates.entry(what).or_insert(0.0);
    *best = best.max(rate);
}

fn token(i: usize) -> u32 {
    u32::try_from(100 + i * 7919 % 40_000).expect("a token of the vocabulary")
}

fn pages(range: std::ops::Range<usize>) -> Result<Vec<PageId>> {
    range.map(|page| Ok(PageId(u32::try_from(page)?))).collect()
}

fn greedy(position: usize) -> SampleRow {
    SampleRow {
        params: Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() }),
        position: position as u64,
        tokens: Arc::from([]),
        prompt_len: 0,
    }
}
