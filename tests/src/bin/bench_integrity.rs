//! `cargo xtask bench integrity [PAIRS]`: what page tags and digests cost, as paired runs.
//!
//! Both engines live in one process and run in turn, off-on then on-off, so that a slow minute of
//! the machine hits both. One worker thread computes, as two on a busy machine wait for each other
//! and what they wait is noise. A pair's ratio is on over off.

use anyhow::{Context, Result};
use std::fmt::Write;
use tessera_tests::bench::{BenchModel, Load, Run, machine, mean_and_interval, record_path, run};

const CLIENTS: [usize; 2] = [1, 8];
const LOAD: Load = Load { clients: 0, prompt_tokens: 65, max_tokens: 40 };
const DEFAULT_PAIRS: usize = 40;

fn main() -> Result<()> {
    let pairs = match std::env::args().nth(1) {
        Some(text) => text.parse().with_context(|| format!("`{text}` is not a number of pairs"))?,
        None => DEFAULT_PAIRS,
    };
    tessera_runtime::device::use_threads(1)?;
    eprintln!("generating the model");
    let model = BenchModel::generate();
    let kv_memory = 64 << 20;
    let (off, _off_threads) = model.start("fp8_e4m3", kv_memory, false)?;
    let (on, _on_threads) = model.start("fp8_e4m3", kv_memory, true)?;
    let mut text = format!(
        "{}\nintegrity on against off, {pairs} pairs, {} tokens a request; mean change and 95 % interval\n\n\
         {:>8} | {:>22} | {:>22} | {:>22}\n",
        machine(),
        LOAD.max_tokens,
        "clients",
        "throughput",
        "p95 token latency",
        "processor time"
    );
    let mut csv = String::from("clients,pair,throughput_ratio,p95_ratio,cpu_ratio\n");
    for clients in CLIENTS {
        let load = Load { clients, ..LOAD };
        let [mut throughput, mut p95, mut cpu] = [const { Vec::new() }; 3];
        for pair in 0..=pairs {
            let (off, on): (Run, Run) = if pair % 2 == 0 {
                let off = run(&off, load)?;
                (off, run(&on, load)?)
            } else {
                let on = run(&on, load)?;
                (run(&off, load)?, on)
            };
            // The first pair only fills caches and prefixes.
            if pair > 0 {
                throughput.push(on.steady_throughput / off.steady_throughput);
                p95.push(on.p95_ms() / off.p95_ms());
                cpu.push(on.cpu_seconds / off.cpu_seconds);
                let ratios = [&throughput, &p95, &cpu].map(|all| format!("{:.5}", all[pair - 1]));
                let _ = writeln!(csv, "{clients},{pair},{}", ratios.join(","));
            }
        }
        let percent = |ratios: &[f64]| {
            let (mean, half) = mean_and_interval(ratios);
            format!("{:+.2} % +- {:.2} %", 100.0 * (mean - 1.0), 100.0 * half)
        };
        let [throughput, p95, cpu] = [throughput, p95, cpu].map(|ratios| percent(&ratios));
        let _ = writeln!(text, "{clients:>8} | {throughput:>22} | {p95:>22} | {cpu:>22}");
    }
    print!("{text}");
    std::fs::write(record_path("integrity", "txt")?, &text)?;
    std::fs::write(record_path("integrity", "csv")?, csv)?;
    Ok(())
}
