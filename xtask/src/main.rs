//! `cargo xtask ...`: whatever a developer of Tessera repeats.
//!
//! It depends on none of the other crates: what needs them is a binary of `tessera-tests` that
//! this one builds and runs.

mod device_check;
mod tidy;
mod tracking;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo xtask COMMAND

  test                     all tests of the workspace
  check                    formatting, lints, documentation, tidiness
  check --full             that, and what needs NVIDIA's assembler, which pip brings
  golden DIR...            a checkpoint's forward pass against recorded transformers outputs
  accuracy [OPTIONS]       tiny-kimi's evaluation sets through HTTP, per format
  kernel [NAME [OPTIONS]]  kernels: variants, what each line became, values of its tiles
  build-kernels [OPTIONS]  PTX of every kernel, assembled and measured; needs no GPU
  device-check [OPTIONS]   all kernels on a GPU, or on the stand-in driver: right, as recorded,
                           how fast; --pack makes the folder to carry and runs nothing
  probe-isa                which targets the assembler takes each instruction for
  bench concurrency        BF16 against FP8 cache, 1 to 64 concurrent requests
  bench integrity          page-tag check on against off, paired
  bench peer WORKDIR       against llama.cpp, or --peer ik_llama.cpp or vllm, on what
                           bench/peer/setup.sh made there
  bench tracking           instructions of a decode step: no-op tracker against no tracking
  bench step               a decode step of 32 sequences beside its kernels
  bench launch             what handing work to threads costs, alone and beside busy processes
  bench tags               the page-tag check, by page and instruction set
  bench floor              what kernels would take on GPUs, by the emulator's counts; no GPU
  bench memory             reading memory in pages of 4 KiB and of 2 MiB
  tidy                     what a machine can check of our style

Options after the command go to it; `--help` shows them.";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["test", rest @ ..] => cargo(&["test", "--workspace"], rest),
        ["check"] => check(),
        ["check", "--full"] => check_full(),
        ["tidy"] => tidy::run(&root()),
        ["golden", rest @ ..] => tool("golden", rest),
        ["accuracy", rest @ ..] => served_tool("accuracy", rest),
        ["kernel", rest @ ..] => kernel(rest),
        ["build-kernels", rest @ ..] => gpu_kernels("build-kernels", rest),
        ["device-check", rest @ ..] => device_check::run(&root(), rest),
        ["probe-isa", rest @ ..] => gpu_kernels("probe-isa", rest),
        ["bench", "concurrency", rest @ ..] => tool("bench_concurrency", rest),
        ["bench", "integrity", rest @ ..] => tool("bench_integrity", rest),
        ["bench", "peer", rest @ ..] => tool("bench_peer", rest),
        ["bench", "tracking"] => tracking::run(&root()),
        ["bench", "step"] => example("tessera-runtime", "step_overhead"),
        ["bench", "launch"] => example("tessera-lanes", "launch"),
        ["bench", "tags"] => example("tessera-kernel-artifacts", "page_tag_check"),
        ["bench", "floor", rest @ ..] => gpu_kernels("floor", rest),
        ["bench", "memory"] => example("tessera-lanes", "read"),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown command `{}`\n\n{USAGE}", other.join(" ")),
    }
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    cargo(&lints, &[])?;
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    run(Command::new("cargo").args(docs).env("RUSTDOCFLAGS", "-D warnings"))?;
    tidy::run(&root())
}

/// What needs the assembler: the instruction table as it answers today, and every kernel for every
/// target assembled, held against its facts and no worse than the baseline.
fn check_full() -> Result<()> {
    check()?;
    gpu_kernels("probe-isa", &["--check"])?;
    gpu_kernels("build-kernels", &["--sm", "90"])?;
    gpu_kernels("build-kernels", &["--sm", "100"])
}

/// Builds a binary of `tessera-tests` with optimisations and runs it.
fn tool(name: &str, args: &[&str]) -> Result<()> {
    let run = ["run", "--quiet", "--release", "--package", "tessera-tests", "--bin", name, "--"];
    cargo(&run, args)
}

/// Builds an example of a crate with optimisations and runs it.
fn example(package: &str, name: &str) -> Result<()> {
    cargo(&["run", "--quiet", "--release", "--package", package, "--example", name], &[])
}

/// Builds the kernel tool as tests are built, for it must start at once, and runs it.
fn kernel(args: &[&str]) -> Result<()> {
    cargo(&["run", "--quiet", "--package", "tessera-kernel-tool", "--"], args)
}

/// What is done with kernels for GPUs, on a machine without one.
fn gpu_kernels(command: &str, args: &[&str]) -> Result<()> {
    let tool = ["run", "--quiet", "--package", "tessera-kernel-tool", "--bin", "gpu-kernels", "--"];
    cargo(&[&tool, &[command][..]].concat(), args)
}

/// A tool that talks to a server: builds `tessera` first and says where it and the model are.
fn served_tool(name: &str, args: &[&str]) -> Result<()> {
    cargo(&["build", "--quiet", "--release", "--package", "tessera"], &[])?;
    let places = ["--tessera", "target/release/tessera", "--model", "models/tiny-kimi"];
    tool(name, &[&places, args].concat())
}

fn cargo(args: &[&str], rest: &[&str]) -> Result<()> {
    run(Command::new("cargo").args(args).args(rest))
}

fn run(command: &mut Command) -> Result<()> {
    command.current_dir(root());
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        // It has said why; its exit status says the rest.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").to_owned()
}
