//! `cargo xtask bench concurrency`: how many requests the same cache memory serves, BF16 against
//! FP8, and at what throughput. Both in one run, level by level; table, CSV and plot.

use anyhow::Result;
use std::fmt::Write;
use tessera_runtime::engine::{kv_bytes_per_token, named_kv_format};
use tessera_tests::bench::{BenchModel, Load, PAGE_SIZE, Run, machine, record_path, run};
use tessera_tests::plot::{Labels, Series, lines};

const LEVELS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Four pages and a token of prompt: all but the token come from the prefix cache.
const PROMPT_TOKENS: usize = 65;
const MAX_TOKENS: usize = 48;
/// Requests that the FP8 cache holds at once, whole.
const FP8_REQUESTS: usize = 64;

fn main() -> Result<()> {
    eprintln!("generating the model");
    let model = BenchModel::generate();
    let pages = (PROMPT_TOKENS + MAX_TOKENS).div_ceil(PAGE_SIZE);
    let page_bytes = PAGE_SIZE * kv_bytes_per_token(&model.spec, named_kv_format("fp8_e4m3")?);
    let kv_memory = FP8_REQUESTS * pages * page_bytes;
    let (bf16, bf16_threads) = model.start("bf16", kv_memory, true)?;
    let (fp8, fp8_threads) = model.start("fp8_e4m3", kv_memory, true)?;
    let mut rows = Vec::new();
    for clients in [1].iter().chain(&LEVELS) {
        // The first round only fills caches and prefixes.
        let load = Load { clients: *clients, prompt_tokens: PROMPT_TOKENS, max_tokens: MAX_TOKENS };
        eprintln!("{clients} clients");
        rows.push((*clients, run(&bf16, load)?, run(&fp8, load)?));
    }
    rows.remove(0);
    let text = table(kv_memory, &rows);
    print!("{text}");
    std::fs::write(record_path("concurrency", "txt")?, &text)?;
    std::fs::write(record_path("concurrency", "csv")?, csv(&rows))?;
    let svg = plot(&rows);
    std::fs::write(record_path("concurrency", "svg")?, svg)?;
    for (handle, threads) in [(bf16, bf16_threads), (fp8, fp8_threads)] {
        handle.drain()?;
        drop(handle);
        threads.join().map_err(|name| anyhow::anyhow!("the {name} thread has panicked"))?;
    }
    Ok(())
}

type Row = (usize, Run, Run);

fn table(kv_memory: usize, rows: &[Row]) -> String {
    let mut text = format!(
        "{}\n{} kB of decode cache; {PROMPT_TOKENS} prompt and {MAX_TOKENS} generated tokens a request\n\n\
         {:>8} | {:>10} {:>8} {:>8} {:>9} | {:>10} {:>8} {:>8} {:>9} | {:>9}\n",
        machine(),
        kv_memory / 1000,
        "clients",
        "bf16 tok/s",
        "running",
        "waiting",
        "preempted",
        "fp8 tok/s",
        "running",
        "waiting",
        "preempted",
        "fp8/bf16"
    );
    for (clients, bf16, fp8) in rows {
        let half = |run: &Run| {
            format!(
                "{:>10.1} {:>8} {:>8} {:>9}",
                run.throughput(),
                run.peak_running,
                run.peak_waiting,
                run.preempted
            )
        };
        let ratio = fp8.throughput() / bf16.throughput();
        let _ = writeln!(text, "{clients:>8} | {} | {} | {ratio:>9.2}", half(bf16), half(fp8));
    }
    for (name, pick) in [("bf16", 1), ("fp8", 2)] {
        let full = rows.iter().find(|(_, bf16, fp8)| {
            let run = if pick == 1 { bf16 } else { fp8 };
            run.peak_waiting + run.preempted > 0
        });
        let _ = match full {
            Some((clients, ..)) => writeln!(text, "{name} runs out of pages at {clients} clients"),
            None => writeln!(text, "{name} has pages for every level"),
        };
    }
    text
}

fn csv(rows: &[Row]) -> String {
    let mut text =
        String::from("clients,kv,tokens_per_second,peak_running,peak_waiting,preempted\n");
    for (clients, bf16, fp8) in rows {
        for (kv, run) in [("bf16", bf16), ("fp8_e4m3", fp8)] {
            let Run { peak_running, peak_waiting, preempted, .. } = run;
            let rate = run.throughput();
            let _ = writeln!(
                text,
                "{clients},{kv},{rate:.2},{peak_running},{peak_waiting},{preempted}"
            );
        }
    }
    text
}

fn plot(rows: &[Row]) -> String {
    let series = |name: &str, color, pick: fn(&Row) -> &Run| Series {
        name: name.to_owned(),
        color,
        points: rows.iter().map(|row| (row.0 as f64, pick(row).throughput())).collect(),
    };
    let labels = Labels {
        title: "Decode throughput with the same cache memory",
        x: "concurrent requests",
        y: "tokens per second",
    };
    lines(
        &labels,
        &[
            series("BF16 cache", "#c0392b", |row| &row.1),
            series("FP8 cache", "#2471a3", |row| &row.2),
        ],
    )
}
