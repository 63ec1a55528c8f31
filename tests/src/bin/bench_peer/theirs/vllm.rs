//! vLLM on the CPU: `bench/peer/vllm_bench.py` drives its engine step by step.

use super::super::{Rates, run_command};
use super::strongest;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// `setup.sh` makes this file last.
pub(super) const INSTALLED: &str = "vllm-venv/installed";
const PYTHON: &str = "vllm-venv/bin/python";
/// The OpenMP library that vLLM asks to be loaded before its own.
const OPENMP: &str = "vllm-venv/lib/libiomp5.so";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/peer/vllm_bench.py");

pub(super) fn run(workdir: &Path, threads: usize, only: &str) -> Result<Rates> {
    let mut command = Command::new(workdir.join(PYTHON));
    strongest(&mut command).env("LD_PRELOAD", workdir.join(OPENMP));
    // Compiled code holds the number of threads.
    command.env("VLLM_CACHE_ROOT", workdir.join(format!("vllm-cache-{threads}")));
    command.arg(SCRIPT).arg(workdir.join("hf")).arg(threads.to_string());
    let (printed, _) = run_command(command.args(["--only", only]))?;
    let json = printed.lines().rfind(|line| line.starts_with('{'));
    let json = json.with_context(|| format!("vllm_bench.py printed no rates:\n{printed}"))?;
    Ok(serde_json::from_str(json)?)
}
