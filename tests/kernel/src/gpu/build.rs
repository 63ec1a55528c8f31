//! The command: generate, assemble, report, compare, bundle.

use super::assemble::{Assembler, Outcome};
use super::baseline::Baseline;
use super::diagnose::{SourceMap, refusals};
use super::report::{Report, Row, Variant};
use super::toolchain::Toolchain;
use super::{bar, by_hand};
use crate::source::Sources;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tessera_ptx::bundle::PTXAS_VERSION;
use tessera_ptx::isa::{Missing, Sm, ptx_version};

/// What `cargo xtask build-kernels` is told.
#[derive(Debug, Args)]
pub struct Options {
    /// Compute capability: 90 for H100 and H200, 100 for B200 and B300.
    #[arg(long, value_parser = target, default_value = "90")]
    pub sm: Sm,
    /// Only variants whose label begins like this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// The report as JSON, for machines.
    #[arg(long)]
    pub json: bool,
    /// Make what was measured the baseline.
    #[arg(long)]
    pub bless: bool,
    /// Folder of the bundle; target/kernels/<target> if not given.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Download nothing: without the tools the report says "not assembled".
    #[arg(long)]
    pub offline: bool,
    /// Assemble these files in place of the kernels, bundle nothing.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub ptx: Vec<PathBuf>,
}

fn target(text: &str) -> Result<Sm, String> {
    match text {
        "90" | "90a" | "sm_90a" => Ok(Sm::Sm90a),
        "100" | "100f" | "sm_100f" => Ok(Sm::Sm100f),
        "100a" | "sm_100a" => Ok(Sm::Sm100a),
        _ => Err("give 90 or 100".to_owned()),
    }
}

/// Where everything lies in a checkout.
#[derive(Debug)]
pub struct Places {
    /// The checkout.
    pub root: PathBuf,
    /// What cargo builds into.
    pub target: PathBuf,
}

impl Places {
    /// Those of the workspace that this tool was built in.
    pub fn of_workspace() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().unwrap_or(root);
        Self { target: root.join("target"), root }
    }

    /// The tools.
    pub fn toolchain(&self) -> PathBuf {
        self.target.join("toolchain")
    }

    /// The committed figures of a target.
    pub fn baseline(&self, sm: Sm) -> PathBuf {
        self.root.join("bench/kernels").join(format!("{}.json", folder(sm)))
    }

    fn cache(&self) -> PathBuf {
        self.target.join("kernels/cache")
    }
}

/// `sm90a`: a target's name as a folder.
fn folder(sm: Sm) -> String {
    sm.name().replace('_', "")
}

/// Runs the command. Whether all is well; if not, it has said why.
///
/// # Errors
/// What keeps it from finding out.
pub fn run(options: &Options, places: &Places) -> Result<bool> {
    let tools = tools(options, places)?;
    let variants = by_hand::read(&options.ptx)?;
    let outcomes = match &tools {
        None => None,
        Some(tools) => Some(assemble(&variants, tools, options.sm, places)?),
    };
    let (mut report, missing) = report(&variants, outcomes.as_deref(), options.sm);
    let refused = say_findings(&variants, outcomes.as_deref().unwrap_or_default());
    missing.iter().for_each(|missing| eprintln!("warning: {missing}"));
    let path = places.baseline(options.sm);
    let baseline = Baseline::read(&path)?;
    if options.ptx.is_empty() {
        if let Some(baseline) = baseline.as_ref().filter(|_| !options.bless) {
            baseline.compare(&mut report, options.only.is_none());
        }
        if options.bless {
            let kept = baseline.filter(|_| options.only.is_some());
            bless(&report, kept, &path)?;
        }
    }
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.table()),
    }
    for regression in &report.regressions {
        eprintln!("error: {regression}");
    }
    if !report.regressions.is_empty() {
        eprintln!("worse than {}: --bless if it must be", path.display());
    }
    let unasked = report.ptxas.is_none() && !options.offline;
    Ok(!refused && report.regressions.is_empty() && !unasked)
}

fn tools(options: &Options, places: &Places) -> Result<Option<Toolchain>> {
    let folder = places.toolchain();
    if options.offline {
        return Toolchain::find(&folder);
    }
    match Toolchain::fetch(&folder) {
        Ok(tools) => Ok(Some(tools)),
        Err(error) => {
            eprintln!("warning: nothing is assembled: {error:#}");
            Ok(None)
        }
    }
}

fn assemble(
    variants: &[Variant],
    tools: &Toolchain,
    sm: Sm,
    places: &Places,
) -> Result<Vec<Outcome>> {
    let assembler = Assembler::new(tools.clone(), sm, &places.cache())?;
    let texts: Vec<&str> = variants.iter().map(|variant| variant.ptx.as_str()).collect();
    let bar = bar(texts.len() as u64, "assembling");
    let outcomes = assembler.all(&texts, &bar);
    bar.finish_and_clear();
    outcomes
}

fn report(
    variants: &[Variant],
    outcomes: Option<&[Outcome]>,
    sm: Sm,
) -> (Report, BTreeSet<String>) {
    let mut rows = Vec::new();
    let mut missing = BTreeSet::new();
    for (i, variant) in variants.iter().enumerate() {
        let outcome = outcomes.and_then(|all| all.get(i));
        let (row, lacks) = Row::of(variant, sm, outcome);
        missing.extend(lacks.iter().map(Missing::to_string));
        rows.push(row);
    }
    let report = Report {
        ptxas: outcomes.map(|_| PTXAS_VERSION),
        ptx: ptx_version(),
        target: sm.name(),
        variants: rows,
        regressions: Vec::new(),
        notes: Vec::new(),
    };
    (report, missing)
}

/// Prints errors and warnings of the assembler at the author's lines. Whether there was an error.
fn say_findings(variants: &[Variant], outcomes: &[Outcome]) -> bool {
    let sources = Sources::of_workspace();
    let read = |file: &str| sources.lines(file);
    let mut refused = false;
    for (variant, outcome) in variants.iter().zip(outcomes) {
        let findings = match outcome {
            Outcome::Refused(findings) => findings,
            Outcome::Assembled(made) => &made.warnings,
        };
        refused |= matches!(outcome, Outcome::Refused(_));
        if !findings.is_empty() {
            let map = SourceMap::of(&variant.ptx);
            eprintln!("{}", refusals(&variant.label, findings, &map, &read));
        }
    }
    refused
}

fn bless(report: &Report, kept: Option<Baseline>, path: &Path) -> Result<()> {
    let Some(baseline) = Baseline::of(report, kept) else {
        bail!("nothing was assembled, so there is nothing to bless");
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, baseline.text()?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
