//! `cargo xtask bench floor`: what kernels would take on GPUs, by what they do and not by a clock.
//!
//! The emulator counts what a launch does; a table says how much of it a GPU does in a second. The
//! result is a bound, not a measurement: it knows no latency, and no resource waits for another.

pub mod model;
pub mod peaks;
pub mod ratchet;
pub mod report;
pub mod workload;

use crate::cases::Built;
use crate::emulate;
use crate::gpu::baseline::Baseline;
use crate::gpu::build::Places;
use crate::gpu::generate::variants;
use anyhow::{Context, Result};
use clap::Args;
use model::Counted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tessera_emulator::{Config, Line, Machine};
use tessera_ptx::{Compiled, Sm};
use workload::{Workload, workloads};

/// What `cargo xtask bench floor` is told.
#[derive(Debug, Args)]
pub struct Options {
    /// Only workloads whose kernel begins like this.
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Write it to `bench/record` too.
    #[arg(long)]
    record: bool,
    /// Not the floors: make what each variant does on a case the profile that tests compare with.
    #[arg(long, conflicts_with_all = ["only", "record"])]
    bless: bool,
}

/// Runs the command.
///
/// # Errors
/// What keeps it from counting, or from writing.
pub fn run(options: &Options, places: &Places) -> Result<()> {
    if options.bless {
        let profile = ratchet::Profile::count(&places.root)?;
        return profile.write(&ratchet::path(&places.root));
    }
    let mut counted = Vec::new();
    for workload in workloads().iter().filter(|w| w.kernel.starts_with(&options.only)) {
        for sm in [Sm::Sm90a, Sm::Sm100f] {
            counted.push(count(workload, sm, places)?);
        }
    }
    let report = report::Report::new(&counted);
    println!("{}", report.markdown());
    if options.record {
        std::fs::write(record_path(&places.root, "md")?, report.markdown())?;
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(record_path(&places.root, "json")?, json)?;
    }
    Ok(())
}

/// Runs the part of a workload that stands for all of it.
///
/// # Errors
/// As the emulator; if the workload has no variant.
pub fn count(workload: &Workload, sm: Sm, places: &Places) -> Result<Counted> {
    let variant = variants(sm, workload.kernel, &places.root).variants.into_iter().next();
    let variant = variant.with_context(|| format!("no variant {}", workload.kernel))?;
    let source = variant.source.context("a variant without a source")?;
    let mut compiled = Compiled { ptx: variant.ptx, entry: source.entry };
    let mut built = Built::new(&source.kernel, &workload.case)?;
    let weights = built.weights.iter().flatten().flat_map(|weight| &weight.parts);
    let weight_bytes: usize = weights.map(|part| part.codes.len() + part.scales.len()).sum();
    let run = |compiled: &Compiled, built: &mut Built| {
        let mut machine = Machine::new(Config::default());
        emulate::run(&source.kernel, compiled, built, &mut machine)
            .with_context(|| format!("{} on {sm}", variant.label))
    };
    let profile = run(&compiled, &mut built)?;
    // Without source lines counts are those of lines of PTX.
    let ptx = statements(&compiled.ptx);
    compiled.ptx = without_places(&compiled.ptx);
    let lines = run(&compiled, &mut Built::new(&source.kernel, &workload.case)?)?.lines;
    let baseline = Baseline::read(&places.baseline(sm))?;
    let machine_code =
        baseline.and_then(|b| b.variants.get(&variant.label).map(|f| f.instructions));
    Ok(Counted {
        workload: workload.clone(),
        sm,
        forms: forms(&compiled.ptx, &lines),
        label: variant.label.clone(),
        profile,
        weight_bytes: weight_bytes as u64,
        expansion: machine_code.map_or(1.0, |sass| sass as f64 / ptx as f64),
    })
}

/// Instructions in the text of an entry.
fn statements(ptx: &str) -> usize {
    let is_instruction = |line: &&str| line.contains(';') && !line.trim_start().starts_with('.');
    ptx.lines().filter(is_instruction).count()
}

/// PTX that does not say which source it is from, in the same lines.
fn without_places(ptx: &str) -> String {
    let lines =
        ptx.lines().map(|line| if line.trim_start().starts_with(".loc") { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// Warp instructions of each form, the most frequent first.
fn forms(ptx: &str, counted: &[Line]) -> Vec<(String, u64)> {
    let lines: Vec<&str> = ptx.lines().collect();
    let mut forms: BTreeMap<&str, u64> = BTreeMap::new();
    for line in counted {
        let text = lines.get(line.ptx_line as usize - 1).copied().unwrap_or_default();
        let form = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
        *forms.entry(form.trim_end_matches(';')).or_default() += line.counts.warp_instructions;
    }
    let mut forms: Vec<_> = forms.into_iter().map(|(form, n)| (form.to_owned(), n)).collect();
    forms.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    forms
}

/// `bench/record/DATE-COMMIT-floor.EXTENSION`.
fn record_path(root: &Path, extension: &str) -> Result<PathBuf> {
    let git = Command::new("git")
        .args(["log", "-1", "--format=%cs-%h", "--abbrev=8"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    let commit = String::from_utf8(git.stdout)?;
    Ok(root.join("bench/record").join(format!("{}-floor.{extension}", commit.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_emulator::Counts;

    #[test]
    fn forms_are_counted_by_their_lines() {
        let ptx = ".loc 1 2 0\n\tadd.s32 %r1, %r1, %r2;\n\t@%p1 bra $L_1;\n\tadd.s32 %r2, %r1, 1;";
        let line = |ptx_line, warp_instructions| Line {
            source: None,
            ptx_line,
            counts: Counts { warp_instructions, ..Counts::default() },
        };
        let lines = [line(2, 3), line(3, 4), line(4, 2)];
        let want = [("add.s32".to_owned(), 5), ("bra".to_owned(), 4)];
        assert_eq!(forms(&without_places(ptx), &lines), want);
    }

    #[test]
    fn statements_are_instructions_alone() {
        let text =
            ".reg .b32 %r<3>;\n\tadd.s32 %r1, %r1, %r2;\n$L_1:\n\t@%p1 bra $L_1;\n\t.loc 1 2 0\n";
        assert_eq!(statements(text), 2);
    }
}
