//! `cargo xtask bench peer WORKDIR`: Tessera and llama.cpp on one model, in turn.
//!
//! `bench/peer/setup.sh WORKDIR` makes what it needs. Both sides keep their weights in 4 bits and
//! their cache in 16, use the same number of threads, and run as processes of their own, so that
//! neither inherits the other's memory or threads. `ours` is the mode of such a process.

mod bounds;
mod ours;
mod profile;
mod theirs;

use anyhow::{Context, Result, bail};
use bounds::Bounds;
use clap::Parser;
use ours::Ours;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use tessera_kernels::formats::format;
use tessera_lanes::isa::AnyIsa;
use tessera_runtime::checkpoint::{Checkpoint, Output, ROLES, Role, WeightPolicy, quantize_to};
use tessera_tests::bench::{machine, record_path};
use tessera_tests::plot::{Labels, Series, lines};

const PREFILL_TOKENS: usize = 512;
const DECODE_TOKENS: usize = 64;
const SHARED_TOKENS: usize = 128;
const BATCH_TOKENS: usize = 32;
const BATCHES: [usize; 4] = [1, 8, 16, 32];

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
    /// Instruction set of Tessera's side, if not the fastest, such as `avx512` where there is AMX.
    #[arg(long)]
    isa: Option<String>,
    /// Runs Tessera's side alone and prints where its time goes.
    #[arg(long)]
    profile: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let model = args.workdir.join("int4");
    if args.ours || args.profile {
        let threads = *args.threads.first().context("one number of threads")?;
        let isa = instruction_set(args.isa.as_deref())?;
        let mut ours = Ours::load(&model, threads, isa, args.profile)?;
        let rates = ours.measure(&args.only)?;
        println!("{}", serde_json::to_string(&Measured { rates, bounds: ours.bounds })?);
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
        "{}\nTessera ({}) against llama.cpp, tokens a second, best of {} runs in turn\n",
        machine(),
        instruction_set(args.isa.as_deref())?.name(),
        args.rounds
    );
    let name = args.isa.as_ref().map_or("peer".into(), |isa| format!("peer-{isa}"));
    let mut csv = String::from("threads,what,round,tessera,llama_cpp,bytes_bound\n");
    let mut series = Vec::new();
    for &threads in &args.threads {
        let rows = compare(&args, threads, &mut csv)?;
        write_table(threads, &rows, &mut text);
        series.extend(curves(threads, &rows));
    }
    print!("{text}");
    std::fs::write(record_path(&name, "txt")?, &text)?;
    std::fs::write(record_path(&name, "csv")?, csv)?;
    let title = "Decode: Tessera, llama.cpp, and what reading the weights allows";
    let labels = Labels { title, x: "sequences", y: "tokens a second" };
    if series.iter().all(|line| !line.points.is_empty()) {
        std::fs::write(record_path(&name, "svg")?, lines(&labels, &series))?;
    }
    Ok(())
}

/// Every linear layer in `int4-g32`, which is Q4_0's bits: 4 a weight and 16 a group of 32.
fn four_bit() -> WeightPolicy {
    let int4 = format("int4-g32").expect("a format of ours");
    let wide = [Role::RouterGate, Role::Embed];
    let roles = ROLES.iter().filter(|role| !wide.contains(role));
    WeightPolicy { name: "int4-all", formats: roles.map(|&role| (role, int4)).collect() }
}

/// The instruction set of that name, or the fastest.
fn instruction_set(name: Option<&str>) -> Result<AnyIsa> {
    let Some(name) = name else { return Ok(AnyIsa::best()) };
    let all = AnyIsa::available();
    let names: Vec<_> = all.iter().map(|isa| isa.name()).collect();
    all.iter().copied().find(|isa| isa.name() == name).with_context(|| {
        format!("this CPU has no instruction set `{name}`; it has {}", names.join(", "))
    })
}

type Rates = BTreeMap<String, f64>;

/// What Tessera's process prints.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    rates: Rates,
    bounds: Bounds,
}

/// The best of both sides, and the best bound that was measured.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    ours: f64,
    theirs: f64,
    /// Tokens a second at which weights are read all the time; none for a prompt, which is bound by
    /// arithmetic.
    bound: Option<f64>,
}

fn compare(args: &Args, threads: usize, csv: &mut String) -> Result<BTreeMap<String, Row>> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for round in 0..args.rounds {
        eprintln!("{threads} threads, round {} of {}", round + 1, args.rounds);
        let ours = run_ours(args, threads)?;
        let theirs = theirs::run_theirs(&args.workdir, threads)?;
        for (what, &rate) in &ours.rates {
            let theirs = *theirs.get(what).with_context(|| format!("llama.cpp gave no {what}"))?;
            let batch = BATCHES.into_iter().find(|&batch| *what == batch_name(batch));
            let batch = batch.or_else(|| (*what == decode_name()).then_some(1));
            let bound = batch.map(|batch| ours.bounds.decode_rate(batch));
            let written = bound.map_or_else(String::new, |bound| format!("{bound:.2}"));
            let _ = writeln!(csv, "{threads},{what},{round},{rate:.2},{theirs:.2},{written}");
            let row = rows.entry(what.clone()).or_default();
            row.ours = row.ours.max(rate);
            row.theirs = row.theirs.max(theirs);
            row.bound = bound.map(|bound| bound.max(row.bound.unwrap_or(0.0)));
        }
    }
    Ok(rows)
}

fn write_table(threads: usize, rows: &BTreeMap<String, Row>, text: &mut String) {
    let _ = writeln!(
        text,
        "\n{threads} threads\n{:>12} | {:>8} | {:>9} | {:>6} | {:>11} | {:>5}",
        "", "Tessera", "llama.cpp", "ratio", "bytes bound", "share"
    );
    for (what, Row { ours, theirs, bound }) in rows {
        let ratio = ours / theirs;
        let _ = write!(text, "{what:>12} | {ours:>8.1} | {theirs:>9.1} | {ratio:>5.2}x |");
        let _ = match bound {
            Some(bound) => writeln!(text, " {bound:>11.1} | {:>4.0}%", 100.0 * ours / bound),
            None => writeln!(text, " {:>11} |", ""),
        };
    }
}

/// Decode by batch: both sides and the bound.
fn curves(threads: usize, rows: &BTreeMap<String, Row>) -> [Series; 3] {
    let curve = |name: &str, color, rate: fn(&Row) -> Option<f64>| {
        let point = |batch| {
            let rate = rate(rows.get(&batch_name(batch))?)?;
            Some((batch as f64, rate))
        };
        let points = BATCHES.into_iter().filter_map(point).collect();
        Series { name: format!("{name}, {threads} threads"), color, points }
    };
    let dark = threads == 1;
    [
        curve("Tessera", if dark { "#1769aa" } else { "#7db8e8" }, |row| Some(row.ours)),
        curve("llama.cpp", if dark { "#b3541e" } else { "#eba77f" }, |row| Some(row.theirs)),
        curve("bytes bound", if dark { "#888888" } else { "#cccccc" }, |row| row.bound),
    ]
}

fn run_ours(args: &Args, threads: usize) -> Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(&args.workdir).arg("--ours").args(["--threads", &threads.to_string()]);
    command.args(["--only", &args.only]);
    command.args(args.isa.iter().flat_map(|isa| ["--isa", isa]));
    Ok(serde_json::from_str(&output(&mut command)?)?)
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
