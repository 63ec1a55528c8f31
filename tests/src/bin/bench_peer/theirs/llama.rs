//! llama.cpp and its fork ik_llama.cpp: their own tools, at their strongest setting.

use super::super::{BATCH_TOKENS, BATCHES, DECODE_TOKENS, PREFILL_TOKENS, Rates, SHARED_TOKENS};
use super::super::{batch_name, decode_name, prefill_name, run_command};
use super::strongest;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODEL: &str = "q4_0.gguf";
const BENCH: &str = "llama-bench";
const BATCHED_BENCH: &str = "llama-batched-bench";

/// What it needs, if its tools lie in `bin`.
pub(super) fn files(bin: &str) -> [PathBuf; 3] {
    let bin = Path::new(bin);
    [bin.join(BENCH), bin.join(BATCHED_BENCH), PathBuf::from(MODEL)]
}

/// llama.cpp: weights repacked when they are loaded, which excludes mmap.
pub(super) fn run(workdir: &Path, threads: usize) -> Result<Rates> {
    let tool = |name| tool(workdir, "bin", name, threads);
    let mut rates = single(tool(BENCH).args(["-lm", "none"]))?;
    let mut command = tool(BATCHED_BENCH);
    command.args(["-lm", "none", "-fa", "on", "--output-format", "jsonl"]);
    let (printed, _) = run_command(batched(&mut command))?;
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let run: Value = serde_json::from_str(line)?;
        let (batch, rate) = (run["pl"].as_u64(), run["speed_tg"].as_f64());
        let (batch, rate) =
            batch.zip(rate).context("llama-batched-bench writes pl and speed_tg")?;
        rates.insert(batch_name(usize::try_from(batch)?), rate);
    }
    Ok(rates)
}

/// ik_llama.cpp: the same, in its spelling, with fused experts and its third kind of latent
/// attention, which keeps the latent and expands it for prompts.
pub(super) fn run_ik(workdir: &Path, threads: usize) -> Result<Rates> {
    let tool = |name| tool(workdir, "ik-bin", name, threads);
    let bench = ["-rtr", "1", "-fa", "1", "-mla", "3", "-fmoe", "1"];
    let mut rates = single(tool(BENCH).args(bench))?;
    let mut command = tool(BATCHED_BENCH);
    command.args(["-rtr", "-fa", "on", "-mla", "3"]);
    let (_, printed) = run_command(batched(&mut command))?;
    let table = printed.lines().filter_map(table_row);
    let before = rates.len();
    rates.extend(table.map(|(batch, rate)| (batch_name(batch), rate)));
    ensure!(rates.len() == before + BATCHES.len(), "not a table of each batch:\n{printed}");
    Ok(rates)
}

/// Sequences and decoded tokens a second, of a row of numbers:
/// PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S.
fn table_row(line: &str) -> Option<(usize, f64)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    Some((cells.get(2)?.parse().ok()?, cells.get(7)?.parse().ok()?))
}

fn tool(workdir: &Path, bin: &str, name: &str, threads: usize) -> Command {
    let mut command = Command::new(workdir.join(bin).join(name));
    // ik_llama.cpp leaves a log where it runs.
    command.current_dir(workdir);
    strongest(&mut command).arg("-m").arg(workdir.join(MODEL)).args(["-t", &threads.to_string()]);
    command
}

/// A prompt and one sequence, with `llama-bench`.
fn single(command: &mut Command) -> Result<Rates> {
    let (prompt, decoded) = (PREFILL_TOKENS.to_string(), DECODE_TOKENS.to_string());
    command.args(["-p", &prompt, "-n", &decoded, "-r", "3", "-o", "json"]);
    let (printed, _) = run_command(command)?;
    let bench: Value = serde_json::from_str(&json_lines(&printed))?;
    let mut rates = Rates::new();
    for test in bench.as_array().context("llama-bench writes an array")? {
        let samples = test["samples_ts"].as_array().context("samples_ts")?;
        let best = samples.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        let is_prefill = test["n_prompt"].as_u64() != Some(0);
        rates.insert(if is_prefill { prefill_name() } else { decode_name() }, best);
    }
    Ok(rates)
}

/// The lines of an indented array: ik_llama.cpp says in between how it reads the model.
fn json_lines(printed: &str) -> String {
    let is_json = |line: &&str| line.starts_with([' ', '[', ']']);
    printed.lines().filter(is_json).collect::<Vec<_>>().join("\n")
}

/// Sequences that share a prompt, with `llama-batched-bench`.
fn batched(command: &mut Command) -> &mut Command {
    let (shared, decoded) = (SHARED_TOKENS.to_string(), BATCH_TOKENS.to_string());
    let batches = BATCHES.map(|batch| batch.to_string()).join(",");
    command.args(["-c", "8192", "-b", "2048", "-ub", "512", "-pps"]);
    command.args(["-npp", &shared, "-ntg", &decoded, "-npl", &batches])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_between_lines_of_json_is_left_out() {
        let printed =
            "[\n==== Adjusted tensors\nComputed blk.0\n  {\n    \"n_prompt\": 64\n  }\n]\n";
        let json: Value = serde_json::from_str(&json_lines(printed)).unwrap();
        assert_eq!(json[0]["n_prompt"], 64);
    }

    #[test]
    fn a_table_has_rates_by_batch() {
        let head = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |";
        let rule = "|-------|--------|------|--------|----------|----------|----------|----------|";
        let row = "|   128 |     32 |    8 |    384 |    0.612 |   209.15 |    3.204 |    79.90 |";
        assert_eq!(table_row(head), None);
        assert_eq!(table_row(rule), None);
        assert_eq!(table_row(row), Some((8, 79.9)));
        assert_eq!(table_row("llama_model_load: done"), None);
    }
}
