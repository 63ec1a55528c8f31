//! The command: generate, assemble, report, compare, bundle.

use super::assemble::{Assembler, Outcome};
use super::baseline::Baseline;
use super::bundle::Built;
use super::diagnose::{SourceMap, refusals};
use super::emulated::{self, Verdict};
use super::explain::explain;
use super::generate::{Generated, Variant};
use super::ptxas::Finding;
use super::report::{Report, Row, State};
use super::toolchain::Toolchain;
use super::{bar, bundle, by_hand, facts, generate};
use crate::cases::load;
use crate::source::Sources;
use crate::terminal::{WIDTH, show, terminal_width};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tessera_ptx::Sm;
use tessera_ptx::bundle::PTXAS_VERSION;
use tessera_ptx::isa::{Missing, ptx_version};

/// What `cargo xtask build-kernels` is told.
#[derive(Debug, Args)]
pub struct Options {
    /// Compute capability: 90 for H100 and H200, 100 for B200 and B300.
    #[arg(long, value_parser = target, default_value = "90")]
    pub sm: Sm,
    /// Only variants whose label begins like this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Not the report, but the source of this variant with what became of each line.
    #[arg(long, value_name = "KERNEL", conflicts_with_all = ["only", "bless", "json", "out"])]
    pub explain: Option<String>,
    /// Characters of a line; the terminal's if not given.
    #[arg(long, requires = "explain")]
    pub width: Option<usize>,
    /// The report as JSON, for machines.
    #[arg(long)]
    pub json: bool,
    /// Make what was measured the baseline.
    #[arg(long)]
    pub bless: bool,
    /// Folder of the bundle; one of the target's name below target/kernels if not given.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Do not run the cases on the emulator; then nothing is bundled.
    #[arg(long, conflicts_with = "out")]
    pub no_cases: bool,
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
    pub fn baseline(&self, target: Sm) -> PathBuf {
        self.root.join("bench/kernels").join(format!("{}.json", folder(target)))
    }

    fn cache(&self) -> PathBuf {
        self.target.join("kernels/cache")
    }
}

/// `sm90a`: a target's name as a folder.
fn folder(target: Sm) -> String {
    target.name().replace('_', "")
}

/// Runs the command. Whether all is well; if not, it has said why.
///
/// # Errors
/// What keeps it from finding out.
pub fn run(options: &Options, places: &Places) -> Result<bool> {
    if let Some(wanted) = &options.explain {
        return explain_one(wanted, options, places);
    }
    let tools = tools(options, places)?;
    let only = options.only.as_deref().unwrap_or("");
    let Generated { variants, mistakes, absent } = generated(only, options, places)?;
    mistakes.iter().for_each(|mistake| eprintln!("{mistake}\n"));
    if variants.is_empty() && mistakes.is_empty() {
        bail!("no variant for {} begins with `{only}`", options.sm);
    }
    let outcomes = match &tools {
        None => None,
        Some(tools) => Some(assemble(&variants, tools, options.sm, places)?),
    };
    let (mut report, missing) = report(&variants, outcomes.as_deref(), options.sm);
    if !absent.is_empty() {
        report.notes.push(format!("not for this target: {}", absent.join(", ")));
    }
    let refused = say_findings(&variants, outcomes.as_deref().unwrap_or_default());
    missing.iter().for_each(|missing| eprintln!("error: {missing}"));
    let broken = hold_facts(&variants, outcomes.as_deref().unwrap_or_default(), &mut report);
    let mut wrong = Vec::new();
    if options.ptx.is_empty() {
        if !options.no_cases {
            wrong = run_cases(&variants, &mut report, places)?;
        }
        compare(&mut report, options, places)?;
        let built =
            Built { variants: &variants, rows: &report.variants, outcomes: outcomes.as_deref() };
        write_bundle(&built, options, places)?;
    }
    broken.iter().chain(&wrong).for_each(|broken| eprintln!("error: {broken}"));
    show(&match options.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.table(),
    })?;
    report.regressions.iter().for_each(|regression| eprintln!("error: {regression}"));
    if !report.regressions.is_empty() {
        let path = places.baseline(options.sm);
        eprintln!("worse than {}: --bless if it must be", path.display());
    }
    let unasked = report.ptxas.is_none() && !options.offline;
    let fine = [&broken, &wrong, &report.regressions].iter().all(|found| found.is_empty());
    Ok(fine && mistakes.is_empty() && missing.is_empty() && !refused && !unasked)
}

/// The variants of the kernels, or of files in their place.
fn generated(only: &str, options: &Options, places: &Places) -> Result<Generated> {
    match options.ptx.as_slice() {
        [] => Ok(generate::variants(options.sm, only, &places.root)),
        files => Ok(Generated { variants: by_hand::read(files)?, ..Generated::default() }),
    }
}

/// Shows the source of the first variant whose label begins like this.
fn explain_one(wanted: &str, options: &Options, places: &Places) -> Result<bool> {
    let Generated { mut variants, mistakes, .. } = generated(wanted, options, places)?;
    mistakes.iter().for_each(|mistake| eprintln!("{mistake}\n"));
    if variants.len() > 1 {
        let labels: Vec<&str> = variants.iter().map(|variant| variant.label.as_str()).collect();
        eprintln!("the first of {}", labels.join(", "));
    }
    variants.truncate(1);
    let Some(variant) = variants.first() else { bail!("no variant begins with `{wanted}`") };
    let tools = tools(options, places)?;
    let outcomes = match &tools {
        None => Vec::new(),
        Some(tools) => assemble(&variants, tools, options.sm, places)?,
    };
    let refused = say_findings(&variants, &outcomes);
    let sass = match outcomes.first() {
        Some(Outcome::Assembled(made)) => Some(&made.sass),
        _ => None,
    };
    let sources = Sources::of_workspace();
    let width = options.width.or_else(terminal_width).unwrap_or(WIDTH).max(40);
    show(&explain(variant, sass, &|file| sources.lines(file), width))?;
    Ok(!refused)
}

/// Compares with the baseline, or makes what was measured the baseline.
fn compare(report: &mut Report, options: &Options, places: &Places) -> Result<()> {
    let path = places.baseline(options.sm);
    let baseline = Baseline::read(&path)?;
    if options.bless {
        let kept = baseline.filter(|_| options.only.is_some());
        return bless(report, kept, &path);
    }
    match baseline {
        Some(baseline) => baseline.compare(report, options.only.is_none()),
        None => report.notes.push("there is no baseline yet: --bless makes one".to_owned()),
    }
    Ok(())
}

/// A bundle has every kernel, so one of some kernels is written only where somebody asks for it.
fn write_bundle(built: &Built<'_>, options: &Options, places: &Places) -> Result<()> {
    if options.no_cases {
        return Ok(());
    }
    let usual = places.target.join("kernels").join(folder(options.sm));
    let out = match (&options.out, &options.only) {
        (Some(out), _) => out,
        (None, None) => &usual,
        (None, Some(_)) => return Ok(()),
    };
    bundle::write_to(out, options.sm, built)?;
    eprintln!("wrote {}", out.display());
    Ok(())
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
    target: Sm,
    places: &Places,
) -> Result<Vec<Outcome>> {
    let assembler = Assembler::new(tools.clone(), target, &places.cache())?;
    let texts: Vec<&str> = variants.iter().map(|variant| variant.ptx.as_str()).collect();
    let bar = bar(texts.len() as u64, "assembling");
    let outcomes = assembler.all(&texts, &bar);
    bar.finish_and_clear();
    outcomes
}

fn report(
    variants: &[Variant],
    outcomes: Option<&[Outcome]>,
    target: Sm,
) -> (Report, BTreeSet<String>) {
    let mut rows = Vec::new();
    let mut missing = BTreeSet::new();
    for (i, variant) in variants.iter().enumerate() {
        let outcome = outcomes.and_then(|all| all.get(i));
        let (row, lacks) = Row::of(variant, target, outcome);
        missing.extend(lacks.iter().map(Missing::to_string));
        rows.push(row);
    }
    let report = Report {
        ptxas: outcomes.map(|_| PTXAS_VERSION),
        ptx: ptx_version(),
        target: target.name(),
        variants: rows,
        regressions: Vec::new(),
        notes: Vec::new(),
    };
    (report, missing)
}

/// Holds the facts against every usable variant, and notes in its row that they are true; what is
/// not true.
fn hold_facts(variants: &[Variant], outcomes: &[Outcome], report: &mut Report) -> Vec<String> {
    let sources = Sources::of_workspace();
    let read = |file: &str| sources.lines(file);
    let mut all = Vec::new();
    for ((variant, outcome), row) in variants.iter().zip(outcomes).zip(&mut report.variants) {
        let Outcome::Assembled(made) = outcome else { continue };
        if row.state != State::Usable {
            continue;
        }
        let broken = facts::broken(variant, &made.sass, &read);
        if broken.is_empty() {
            row.checks.push("sass");
        }
        all.extend(broken.iter().map(|broken| format!("{}: {broken}", variant.label)));
    }
    all
}

/// Runs the cases of what may still be used, and says in each row what came of them; what is wrong.
fn run_cases(variants: &[Variant], report: &mut Report, places: &Places) -> Result<Vec<String>> {
    let cases = load(&places.root.join("tests/cases"))?;
    let open = |row: &Row| matches!(row.state, State::Usable | State::NotAssembled);
    let rows: Vec<usize> = (0..variants.len()).filter(|&i| open(&report.variants[i])).collect();
    let own: Vec<Variant> = rows.iter().map(|&i| variants[i].clone()).collect();
    std::fs::create_dir_all(places.cache())?;
    let mut wrong = Vec::new();
    for (&i, verdict) in rows.iter().zip(emulated::all(&own, &cases, &places.cache())?) {
        let row = &mut report.variants[i];
        match verdict {
            Verdict::Passed(_) => row.checks.extend(["emu", "ref"]),
            Verdict::NoCase => row.state = State::Ineligible("no case is for it".to_owned()),
            Verdict::Failed(why) => {
                wrong.push(format!("{}: {why}", row.label));
                row.state = State::Ineligible(why);
            }
        }
    }
    Ok(wrong)
}

/// Prints errors and warnings of the assembler at the author's lines. Whether there was an error, or
/// a warning that no kernel may have.
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
        refused |= findings.iter().any(Finding::is_of_warpgroups);
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
