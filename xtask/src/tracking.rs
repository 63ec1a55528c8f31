//! `cargo xtask bench tracking`: instructions of a decode step whose pool keeps no tags, against a
//! build from which every statement of page tracking was removed (`--cfg tessera_untracked`).
//!
//! Both are built with one codegen unit, so that the compiler sees the same functions together. What
//! the C library spends on allocating and copying depends on addresses, varies from run to run of
//! the same program, and is left out.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of each program, the least of which counts: a few instructions of ours depend on addresses
/// too, such as where a copy begins.
const RUNS: usize = 5;

/// Parts of the C library whose counts depend on addresses.
const LEFT_OUT: [&str; 2] = ["/malloc/", "/string/"];

/// Counts both builds and compares.
///
/// # Errors
/// If the counts differ, or valgrind is not installed.
pub(crate) fn run(root: &Path) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is needed to count instructions: apt-get install valgrind");
    }
    let with = build(root, "noop", "-A warnings")?;
    let without = build(root, "untracked", "-A warnings --cfg tessera_untracked")?;
    let (noop, untracked, tags) =
        (count(&with, &[])?, count(&without, &[])?, count(&with, &["tags"])?);
    println!("instructions of 8 decode steps of 8 sequences on one thread");
    println!("  no-op tracker      {noop:>14}");
    println!("  no tracking at all {untracked:>14}");
    let more = |count: u64, than: u64| count as f64 / than as f64 - 1.0;
    println!("  tags, checked      {tags:>14}  ({:+.3} %)", 100.0 * more(tags, noop));
    println!("no-op tracker against none: {:+.4} %", 100.0 * more(noop, untracked));
    let timed = Command::new(&with).arg("time").status()?;
    ensure!(timed.success(), "{} time failed", with.display());
    ensure!(noop == untracked, "the no-op tracker is not free");
    Ok(())
}

/// Builds the program whose steps are counted; where it lies.
fn build(root: &Path, name: &str, flags: &str) -> Result<PathBuf> {
    let target = root.join("target/tracking").join(name);
    let build = ["build", "--quiet", "--release", "--package", "tessera-runtime"];
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(build).args(["--example", "decode_step", "--target-dir"]);
    cargo.arg(&target).env("RUSTFLAGS", flags).env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    ensure!(cargo.status()?.success(), "{cargo:?} failed");
    Ok(target.join("release/examples/decode_step"))
}

/// Instructions of the program's decode steps, the least of [`RUNS`] runs.
fn count(program: &Path, args: &[&str]) -> Result<u64> {
    let counts = (0..RUNS).map(|_| count_once(program, args)).collect::<Result<Vec<_>>>()?;
    counts.into_iter().min().context("no run")
}

fn count_once(program: &Path, args: &[&str]) -> Result<u64> {
    let counted = program.with_extension("callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg("--toggle-collect=decode_step::decode_step*")
        .arg(format!("--callgrind-out-file={}", counted.display()))
        .arg(program)
        .args(args)
        .output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let annotate = ["--threshold=100", "--show-percs=no", "--auto=no"];
    let table = Command::new("callgrind_annotate").args(annotate).arg(&counted).output()?;
    let count = sum(&String::from_utf8_lossy(&table.stdout));
    ensure!(count > 0, "the decode step was not found: {}", counted.display());
    Ok(count)
}

/// Sum over lines of the form `1,234  file:function [object]`.
fn sum(table: &str) -> u64 {
    let count = |line: &str| {
        let (count, function) = line.trim_start().split_once("  ")?;
        let is_left_out = LEFT_OUT.iter().any(|part| function.contains(part));
        let count = count.replace(',', "").parse::<u64>().ok()?;
        (!is_left_out && !function.contains("PROGRAM TOTALS")).then_some(count)
    };
    table.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_counted_but_for_the_allocator() {
        let table = "12  PROGRAM TOTALS\n 1,007  a.rs:f [/x/y]\n    3  ./malloc/malloc.c:free [z]\n 5  b:g\n-- text";
        assert_eq!(sum(table), 1012);
    }
}
