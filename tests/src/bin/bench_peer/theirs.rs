//! llama.cpp's side: its own tools, at their strongest setting.

use super::{BATCH_TOKENS, BATCHES, DECODE_TOKENS, PREFILL_TOKENS, Rates, SHARED_TOKENS};
use super::{batch_name, decode_name, output, prefill_name};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Tokens a second of everything that is compared.
pub(super) fn run_theirs(workdir: &Path, threads: usize) -> Result<Rates> {
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
