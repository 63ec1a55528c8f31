//! What came of it all, for people and for machines.

use crate::record::Bits;
use crate::worker::{CaseResult, Device, Served, Timed};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::path::Path;
use std::time::Duration;

/// Failures of one kind that the table lists.
const MAX_LISTED: usize = 20;

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) device: Device,
    /// What the kernels were compiled for.
    pub(crate) target: String,
    pub(crate) is_stand_in: bool,
    pub(crate) steps: Vec<Step>,
    pub(crate) cases: Vec<CaseResult>,
    /// One a case.
    pub(crate) bits: Vec<Bits>,
    pub(crate) timed: Vec<Timed>,
    pub(crate) served: Vec<Served>,
}

/// A step.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) end: StepEnd,
    pub(crate) seconds: f64,
}

/// How a step's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepEnd {
    Done,
    TimedOut,
    /// With its last words.
    Died(String),
}

impl Display for StepEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "done"),
            Self::TimedOut => write!(f, "it took too long"),
            Self::Died(words) => write!(f, "{words}"),
        }
    }
}

impl Served {
    fn is_fine(&self) -> bool {
        self.tokens == self.cpu_tokens
    }
}

impl Report {
    pub(crate) fn new(device: &Device, target: &str, is_stand_in: bool) -> Self {
        Self {
            device: device.clone(),
            target: target.to_owned(),
            is_stand_in,
            steps: Vec::new(),
            cases: Vec::new(),
            bits: Vec::new(),
            timed: Vec::new(),
            served: Vec::new(),
        }
    }

    /// Notes how a step ended.
    pub(crate) fn end(&mut self, name: &'static str, end: StepEnd, time: Duration) {
        self.steps.push(Step { name, end, seconds: time.as_secs_f64() });
    }

    /// Whether all is as it should be, and every bit that must be the record's is.
    pub(crate) fn is_fine(&self) -> bool {
        self.is_fine_but_for_bits() && self.other_bits().next().is_none()
    }

    /// As [`Report::is_fine`] without the record.
    pub(crate) fn is_fine_but_for_bits(&self) -> bool {
        self.steps.iter().all(|step| step.end == StepEnd::Done)
            && !self.cases.is_empty()
            && self.cases.iter().all(|case| case.wrong.is_none())
            && self.timed.iter().all(|timed| timed.wrong.is_none())
            && self.served.iter().all(Served::is_fine)
    }

    /// Cases whose bits must be the record's and are not. On the stand-in driver, whose bits these
    /// are, that is every case; on a GPU only those that promise it.
    fn other_bits(&self) -> impl Iterator<Item = &CaseResult> {
        let must = |case: &CaseResult| self.is_stand_in || case.class != "bounded";
        let both = self.cases.iter().zip(&self.bits);
        both.filter(move |(case, bits)| {
            case.wrong.is_none() && **bits == Bits::Differ && must(case)
        })
        .map(|(case, _)| case)
    }

    /// Writes it as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }

    /// It all, for people.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let (Device { name, num_multiprocessors, .. }, target) = (&self.device, &self.target);
        let _ = writeln!(out, "{name}, {num_multiprocessors} multiprocessors, {target}\n");
        self.write_cases(&mut out);
        self.write_timed(&mut out);
        self.write_served(&mut out);
        for Step { name, end, seconds } in &self.steps {
            let _ = writeln!(out, "{name:8} {seconds:6.1} s  {end}");
        }
        let _ = writeln!(out, "{}", if self.is_fine() { "all is well" } else { "NOT WELL" });
        out
    }

    fn write_cases(&self, out: &mut String) {
        let mut rows: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
        for (case, bits) in self.cases.iter().zip(&self.bits) {
            let kernel = case.name.label.split(['<', '[']).next().unwrap_or_default();
            let row = rows.entry(kernel).or_default();
            let has_bits = !case.outputs.is_empty();
            let counts = [
                true,
                case.wrong.is_some(),
                has_bits && *bits == Bits::Same,
                has_bits && *bits == Bits::Differ,
                has_bits && *bits == Bits::Unrecorded,
            ];
            row.iter_mut().zip(counts).for_each(|(sum, count)| *sum += usize::from(count));
        }
        let head = ["cases", "wrong", "bits: same", "other", "unrecorded"];
        let _ = write!(out, "{:18}", "kernel");
        head.iter().for_each(|head| _ = write!(out, "{head:>12}"));
        out.push('\n');
        for (kernel, row) in &rows {
            let _ = write!(out, "{kernel:18}");
            row.iter().for_each(|count| _ = write!(out, "{count:>12}"));
            out.push('\n');
        }
        let wrong: Vec<&CaseResult> = self.cases.iter().filter(|c| c.wrong.is_some()).collect();
        for case in wrong.iter().take(MAX_LISTED) {
            let why = case.wrong.as_deref().unwrap_or_default();
            let _ = writeln!(out, "WRONG {}, case `{}`: {why}", case.name.label, case.name.case);
        }
        let other: Vec<&CaseResult> = self.other_bits().collect();
        for case in other.iter().take(MAX_LISTED) {
            let _ = writeln!(out, "OTHER BITS {}, case `{}`", case.name.label, case.name.case);
        }
        let left = wrong.len().saturating_sub(MAX_LISTED) + other.len().saturating_sub(MAX_LISTED);
        if left > 0 {
            let _ = writeln!(out, "and {left} more");
        }
        out.push('\n');
    }

    fn write_timed(&self, out: &mut String) {
        if self.timed.is_empty() {
            return;
        }
        let head = ["us", "least us", "floor us", "share", "GB/s"];
        let _ = write!(out, "{:62}", "kernel");
        head.iter().for_each(|head| _ = write!(out, "{head:>10}"));
        out.push('\n');
        for timed in &self.timed {
            let _ = write!(out, "{:62}", format!("{} {}", kernel_of(&timed.label), timed.what));
            match (timed.micros, &timed.wrong) {
                (_, Some(wrong)) => _ = writeln!(out, "  WRONG {wrong}"),
                (None, None) => _ = writeln!(out, "  launched; not timed on the stand-in driver"),
                (Some([median, least]), None) => {
                    let floor = timed.floor_micros;
                    let text = |number: Option<f64>, digits: usize| {
                        number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
                    };
                    let share = floor.map(|floor| 100.0 * floor / median);
                    let rate = timed.bytes / median / 1e3;
                    let _ = writeln!(
                        out,
                        "{median:>10.1}{least:>10.1}{:>10}{:>9}%{rate:>10.0}",
                        text(floor, 1),
                        text(share, 0)
                    );
                }
            }
        }
        out.push('\n');
    }

    fn write_served(&self, out: &mut String) {
        let mut rows: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
        for served in &self.served {
            let row = rows.entry(&served.formats).or_default();
            let same = served.tokens == served.transformers_tokens;
            let counts = [true, served.is_fine(), same];
            row.iter_mut().zip(counts).for_each(|(sum, count)| *sum += usize::from(count));
        }
        for (formats, [all, cpu, transformers]) in rows {
            let _ = writeln!(
                out,
                "served tiny-kimi ({formats}): {all} prompts, {cpu} with the CPU's tokens, \
                 {transformers} with transformers'"
            );
        }
        for served in self.served.iter().filter(|served| !served.is_fine()) {
            let Served { formats, prompt, tokens, cpu_tokens, .. } = served;
            let _ = writeln!(out, "WRONG {prompt} ({formats}): {tokens:?}, the CPU {cpu_tokens:?}");
        }
        out.push('\n');
    }
}

/// `w_gemm` of `w_gemm<int4-g32>[...]`.
fn kernel_of(label: &str) -> &str {
    label.split(['<', '[']).next().unwrap_or(label)
}
