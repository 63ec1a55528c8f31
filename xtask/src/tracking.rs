//! `cargo xtask bench tracking`: instructions of a decode step whose pool keeps no tags, against a
//! build from which every statement of page tracking was removed (`--cfg tessera_untracked`).
//!
//! Both are built with one codegen unit, so that the compiler sees the same functions together. What
//! the C library spends on allocating and copying depends on addresses, varies from run to run of
//! the same program, and is left out.

use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Parts of the C library whose counts depend on addresses.
const LEFT_OUT: [&str; 2] = ["/malloc/", "/string/"];

/// Counts both builds and compares, function by function.
///
/// # Errors
/// If the counts differ, or valgrind is not installed.
pub(crate) fn run(root: &Path) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is needed to count instructions: apt-get install valgrind");
    }
    let noop = count(root, "noop", "-A warnings")?;
    let untracked = count(root, "untracked", "-A warnings --cfg tessera_untracked")?;
    let total = |counts: &Counts| counts.values().sum::<u64>();
    println!("instructions of 8 decode steps of 8 sequences on one thread");
    println!("  no-op tracker      {:>14}", total(&noop));
    println!("  no tracking at all {:>14}", total(&untracked));
    let names: Vec<&String> = noop.keys().chain(untracked.keys()).collect();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|name| noop.get(*name) != untracked.get(*name))
        .map(|name| format!("{name}: {:?}, {:?}", noop.get(name), untracked.get(name)))
        .collect();
    ensure!(differing.is_empty(), "the no-op tracker is not free:\n  {}", differing.join("\n  "));
    Ok(())
}

/// Instructions by function.
type Counts = BTreeMap<String, u64>;

fn count(root: &Path, name: &str, flags: &str) -> Result<Counts> {
    let target = root.join("target/tracking").join(name);
    let build = ["build", "--quiet", "--release", "--package", "tessera-runtime"];
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(build).args(["--example", "decode_step", "--target-dir"]);
    cargo.arg(&target).env("RUSTFLAGS", flags).env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    ensure!(cargo.status()?.success(), "{cargo:?} failed");
    let counted = target.join("callgrind.out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg("--toggle-collect=decode_step::decode_step*")
        .arg(format!("--callgrind-out-file={}", counted.display()))
        .arg(target.join("release/examples/decode_step"))
        .output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let annotate = ["--threshold=100", "--show-percs=no", "--auto=no"];
    let table = Command::new("callgrind_annotate").args(annotate).arg(&counted).output()?;
    let counts = parse(&String::from_utf8_lossy(&table.stdout));
    ensure!(!counts.is_empty(), "the decode step was not found: {}", counted.display());
    Ok(counts)
}

/// Lines of the form `1,234  file:function [object]`.
fn parse(table: &str) -> Counts {
    let mut counts = Counts::new();
    for line in table.lines() {
        let Some((count, place)) = line.trim_start().split_once("  ") else { continue };
        let Ok(count) = count.replace(',', "").parse::<u64>() else { continue };
        let function = place.split(" [").next().unwrap_or(place).trim();
        let is_left_out = LEFT_OUT.iter().any(|part| function.contains(part));
        if function != "PROGRAM TOTALS" && !is_left_out {
            *counts.entry(function.to_owned()).or_default() += count;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_counted_but_for_the_allocator() {
        let table =
            "12  PROGRAM TOTALS\n 1,007  a.rs:f [/x/y]\n    3  ./malloc/malloc.c:free [z]\n-- text";
        assert_eq!(parse(table), Counts::from([("a.rs:f".to_owned(), 1007)]));
    }
}
