//! `cargo xtask bench peer WORKDIR [--peer PEER]`: Tessera and a peer on one model, in turn.
//!
//! `bench/peer/setup.sh WORKDIR` makes what it needs. Both sides keep their weights in the same
//! bits (4 against llama.cpp, BF16 against vLLM) and their cache in 16, use the same number of
//! threads, and run as processes of their own, so that neither inherits the other's memory or
//! threads. `ours` is the mode of such a process.

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
use theirs::Peer;

const PREFILL_TOKENS: usize = 512;
const DECODE_TOKENS: usize = 64;
const SHARED_TOKENS: usize = 128;
const BATCH_TOKENS: usize = 32;
const BATCHES: [usize; 4] = [1, 8, 16, 32];

/// Compares with a peer on the model that `bench/peer/setup.sh` makes.
#[derive(Debug, Parser)]
struct Args {
    /// The folder that setup.sh filled.
    workdir: PathBuf,
    /// Whom to compare with.
    #[arg(long, value_enum, default_value_t = Peer::LlamaCpp)]
    peer: Peer,
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
    if args.ours || args.profile {
        let threads = *args.threads.first().context("one number of threads")?;
        let isa = instruction_set(args.isa.as_deref())?;
        let model = args.workdir.join(args.peer.model());
        let mut ours = Ours::load(&model, threads, isa, args.profile)?;
        let rates = ours.measure(&args.only)?;
        println!("{}", serde_json::to_string(&Measured { rates, bounds: ours.bounds })?);
        return Ok(());
    }
    let peer = args.peer;
    peer.check(&args.workdir)?;
    make_model(&args)?;
    let mut text = format!(
        "{}\nTessera ({}) against {}, {}\ntokens a second, best of {} runs in turn\n",
        machine(),
        instruction_set(args.isa.as_deref())?.name(),
        peer.name(),
        peer.weights(),
        args.rounds
    );
    let column = peer.name().replace('.', "_");
    let mut csv = format!("threads,what,round,tessera,{column},bytes_bound\n");
    let mut series = Vec::new();
    for &threads in &args.threads {
        let rows = compare(&args, threads, &mut csv)?;
        write_table((peer, threads), &rows, &mut text);
        series.extend(curves((peer, threads), &rows));
    }
    print!("{text}");
    let name = peer.record();
    let name = args.isa.as_ref().map_or(name.to_owned(), |isa| format!("{name}-{isa}"));
    std::fs::write(record_path(&name, "txt")?, &text)?;
    std::fs::write(record_path(&name, "csv")?, csv)?;
    let title = format!("Decode: Tessera, {}, and what reading the weights allows", peer.name());
    let labels = Labels { title: &title, x: "sequences", y: "tokens a second" };
    if series.iter().all(|line| !line.points.is_empty()) {
        std::fs::write(record_path(&name, "svg")?, lines(&labels, &series))?;
    }
    Ok(())
}

/// Quantizes Tessera's model, if this comparison wants that and no earlier run did.
fn make_model(args: &Args) -> Result<()> {
    let model = args.workdir.join(args.peer.model());
    if model.exists() {
        return Ok(());
    }
    eprintln!("quantizing the model to 4 bits");
    let source = Checkpoint::open(&args.workdir.join("hf"))?;
    quantize_to(&source, &four_bit(), &Output::new(&model), &mut |_| {})?;
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
        let theirs = args.peer.run(&args.workdir, threads, &args.only)?;
        for (what, &rate) in &ours.rates {
            let theirs = theirs.get(what);
            let theirs = *theirs.with_context(|| format!("{} gave no {what}", args.peer.name()))?;
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

fn write_table((peer, threads): (Peer, usize), rows: &BTreeMap<String, Row>, text: &mut String) {
    let (peer, width) = (peer.name(), peer.name().len().max(9));
    let _ = writeln!(
        text,
        "\n{threads} threads\n{:>12} | {:>8} | {peer:>width$} | {:>6} | {:>11} | {:>5}",
        "", "Tessera", "ratio", "bytes bound", "share"
    );
    for (what, Row { ours, theirs, bound }) in rows {
        let ratio = ours / theirs;
        let _ = write!(text, "{what:>12} | {ours:>8.1} | {theirs:>width$.1} | {ratio:>5.2}x |");
        let _ = match bound {
            Some(bound) => writeln!(text, " {bound:>11.1} | {:>4.0}%", 100.0 * ours / bound),
            None => writeln!(text, " {:>11} |", ""),
        };
    }
}

/// Decode by batch: both sides and the bound.
fn curves((peer, threads): (Peer, usize), rows: &BTreeMap<String, Row>) -> [Series; 3] {
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
        curve(peer.name(), if dark { "#b3541e" } else { "#eba77f" }, |row| Some(row.theirs)),
        curve("bytes bound", if dark { "#888888" } else { "#cccccc" }, |row| row.bound),
    ]
}

fn run_ours(args: &Args, threads: usize) -> Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(&args.workdir).arg("--ours").args(["--threads", &threads.to_string()]);
    command.args(["--peer", args.peer.name(), "--only", &args.only]);
    command.args(args.isa.iter().flat_map(|isa| ["--isa", isa]));
    Ok(serde_json::from_str(&run_command(&mut command)?.0)?)
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

/// What a command prints, on its standard output and its standard error.
fn run_command(command: &mut Command) -> Result<(String, String)> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{command:?} failed: {errors}");
    }
    Ok((String::from_utf8(output.stdout)?, errors))
}
