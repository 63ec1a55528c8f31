//! What every variant took when somebody last looked: `bench/kernels/<target>.json`. A build that
//! does worse fails until a person accepts it.

use super::report::{Measured, Report, Row, State};
use super::sass::Products;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// What every variant took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Version of the assembler.
    pub ptxas: String,
    /// By label.
    pub variants: BTreeMap<String, Figure>,
}

/// What one variant took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes spilled.
    pub spill_bytes: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    /// Shared memory of a program, in bytes.
    pub shared_bytes: u32,
    /// Threads of a program.
    pub threads: u32,
    /// Programs on a multiprocessor.
    pub ctas_per_sm: u32,
    /// Which unit multiplies.
    pub products: Products,
    /// Machine instructions.
    pub instructions: usize,
    /// Why it must not be launched, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ineligible: Option<String>,
}

/// How a variant differs from its baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What is different, for a person.
    pub text: String,
    /// What got worse.
    pub worse: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.worse.is_empty() {
            return f.pad(&self.text);
        }
        f.pad(&format!("WORSE {}", self.worse.join(", ")))
    }
}

impl Figure {
    fn of(row: &Row) -> Option<Self> {
        let Measured { figures, shared_bytes, ctas_per_sm, products, instructions, .. } =
            row.measured.as_ref()?;
        let ineligible = match &row.state {
            State::Ineligible(reason) => Some(reason.clone()),
            _ => None,
        };
        Some(Self {
            registers: figures.registers,
            spill_bytes: figures.spill_bytes(),
            local_bytes: figures.local_bytes,
            shared_bytes: *shared_bytes,
            threads: row.threads,
            ctas_per_sm: *ctas_per_sm,
            products: products.clone(),
            instructions: *instructions,
            ineligible,
        })
    }

    /// How the variant is now, against this.
    fn change(&self, now: &Self) -> Change {
        let mut worse = Vec::new();
        let mut more = |what: &str, was: u32, is: u32| {
            if is > was {
                worse.push(format!("{what} {was} -> {is}"));
            }
        };
        more("spill", self.spill_bytes, now.spill_bytes);
        more("lmem", self.local_bytes, now.local_bytes);
        if now.ctas_per_sm < self.ctas_per_sm {
            worse.push(format!("CTA/SM {} -> {}", self.ctas_per_sm, now.ctas_per_sm));
        }
        if self.products.by_matrix_unit() && !now.products.by_matrix_unit() {
            worse.push(format!("products by {} -> {}", self.products.unit, now.products.unit));
        }
        if let (None, Some(reason)) = (&self.ineligible, &now.ineligible) {
            worse.push(format!("now ineligible: {reason}"));
        }
        let differences = [
            ("regs", i64::from(now.registers) - i64::from(self.registers)),
            ("CTA/SM", i64::from(now.ctas_per_sm) - i64::from(self.ctas_per_sm)),
            ("instr", difference(now.instructions, self.instructions)),
            ("spill", i64::from(now.spill_bytes) - i64::from(self.spill_bytes)),
        ];
        let text = differences.iter().filter(|(_, by)| *by != 0);
        let text: Vec<String> = text.map(|(what, by)| format!("{what} {by:+}")).collect();
        let text = if text.is_empty() { "=".to_owned() } else { text.join(" ") };
        Change { text, worse }
    }
}

fn difference(now: usize, was: usize) -> i64 {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    number(now) - number(was)
}

impl Baseline {
    /// Reads one; none if the file is not there.
    ///
    /// # Errors
    /// If it is there and is no baseline.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path)?;
        let read = serde_json::from_str(&text);
        read.map(Some).with_context(|| format!("{} is no baseline", path.display()))
    }

    /// What a report measured. Variants that it does not have stay as they were, if it is of some
    /// kernels only.
    pub fn of(report: &Report, kept: Option<Self>) -> Option<Self> {
        let ptxas = report.ptxas?.to_owned();
        let mut variants = kept.map(|kept| kept.variants).unwrap_or_default();
        for row in &report.variants {
            variants.extend(Figure::of(row).map(|figure| (row.label.clone(), figure)));
        }
        Some(Self { ptxas, variants })
    }

    /// One line a variant, so that a difference is easy to read.
    ///
    /// # Errors
    /// Never, unless numbers cannot be written.
    pub fn text(&self) -> Result<String> {
        let mut lines = Vec::new();
        for (label, figure) in &self.variants {
            let (label, figure) = (serde_json::to_string(label)?, serde_json::to_string(figure)?);
            lines.push(format!("    {label}: {figure}"));
        }
        let ptxas = serde_json::to_string(&self.ptxas)?;
        Ok(format!(
            "{{\n  \"ptxas\": {ptxas},\n  \"variants\": {{\n{}\n  }}\n}}\n",
            lines.join(",\n")
        ))
    }

    /// Says in each row how it differs, and in the report what got worse.
    pub fn compare(&self, report: &mut Report, all: bool) {
        let mut new = 0;
        for row in &mut report.variants {
            let Some(now) = Figure::of(row) else { continue };
            let Some(was) = self.variants.get(&row.label) else {
                new += 1;
                row.change = Some(Change { text: "new".to_owned(), worse: Vec::new() });
                continue;
            };
            let change = was.change(&now);
            let worse = change.worse.iter().map(|worse| format!("{}: {worse}", row.label));
            report.regressions.extend(worse);
            row.change = Some(change);
        }
        if new > 0 {
            report.notes.push(format!("{new} variants are not in the baseline: --bless adds them"));
        }
        let has = |label: &str| report.variants.iter().any(|row| row.label == label);
        let gone: Vec<&str> =
            self.variants.keys().map(String::as_str).filter(|label| !has(label)).collect();
        if all && !gone.is_empty() {
            let gone = gone.join(", ");
            report.notes.push(format!("in the baseline and no longer built: {gone}"));
        }
        if report.ptxas.is_some_and(|version| version != self.ptxas) {
            report.notes.push(format!("the baseline is of ptxas {}", self.ptxas));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arch::Limiter;
    use super::super::ptxas::Figures;
    use super::*;

    fn figure() -> Figure {
        Figure {
            registers: 96,
            spill_bytes: 0,
            local_bytes: 0,
            shared_bytes: 40_960,
            threads: 128,
            ctas_per_sm: 5,
            products: Products { unit: "HMMA".to_owned(), count: 64 },
            instructions: 900,
            ineligible: None,
        }
    }

    fn check(change: impl FnOnce(&mut Figure), text: &str, worse: &[&str]) {
        let mut now = figure();
        change(&mut now);
        let change = figure().change(&now);
        assert_eq!(
            (change.text.as_str(), change.worse.as_slice()),
            (text, strings(worse).as_slice())
        );
    }

    fn strings(all: &[&str]) -> Vec<String> {
        all.iter().map(|&one| one.to_owned()).collect()
    }

    #[test]
    fn what_got_worse_is_told_from_what_only_changed() {
        check(|_| (), "=", &[]);
        check(|f| f.registers = 98, "regs +2", &[]);
        check(|f| f.instructions = 880, "instr -20", &[]);
        check(|f| f.ctas_per_sm = 6, "CTA/SM +1", &[]);
        check(|f| f.ctas_per_sm = 4, "CTA/SM -1", &["CTA/SM 5 -> 4"]);
        check(|f| f.spill_bytes = 8, "spill +8", &["spill 0 -> 8"]);
        check(|f| f.local_bytes = 16, "=", &["lmem 0 -> 16"]);
        let by_fma = |f: &mut Figure| f.products = Products { unit: "FMA".to_owned(), count: 999 };
        check(by_fma, "=", &["products by HMMA -> FMA"]);
        let by_four = |f: &mut Figure| f.products = Products { unit: "HGMMA".to_owned(), count: 9 };
        check(by_four, "=", &[]);
        let ineligible = |f: &mut Figure| f.ineligible = Some("no program fits".to_owned());
        check(ineligible, "=", &["now ineligible: no program fits"]);
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let variants = BTreeMap::from([
            ("a<e4m3>[X=1]".to_owned(), figure()),
            ("b".to_owned(), Figure { ineligible: Some("spills".to_owned()), ..figure() }),
        ]);
        let baseline = Baseline { ptxas: "13.0.88".to_owned(), variants };
        let text = baseline.text().unwrap();
        assert_eq!(text.lines().count(), 7, "{text}");
        assert_eq!(serde_json::from_str::<Baseline>(&text).unwrap(), baseline);
    }

    #[test]
    fn variants_that_come_and_go_are_noted() {
        let row = |label: &str| Row {
            label: label.to_owned(),
            threads: 128,
            dynamic_shared_bytes: 0,
            state: State::Usable,
            measured: Some(Measured {
                figures: Figures { registers: 96, ..Figures::default() },
                shared_bytes: 40_960,
                ctas_per_sm: 4,
                occupancy_percent: 25.0,
                limiter: Limiter::Registers,
                products: figure().products,
                instructions: 900,
            }),
            checks: Vec::new(),
            change: None,
        };
        let mut report = Report {
            ptxas: Some("13.0.88"),
            ptx: "9.0",
            target: "sm_90a",
            variants: vec![row("stays"), row("comes")],
            regressions: Vec::new(),
            notes: Vec::new(),
        };
        let variants = ["stays", "goes"].map(|label| (label.to_owned(), figure()));
        let baseline = Baseline { ptxas: "12.8.93".to_owned(), variants: variants.into() };
        baseline.compare(&mut report, true);
        assert_eq!(report.regressions, ["stays: CTA/SM 5 -> 4"]);
        assert_eq!(report.variants[1].change.as_ref().map(|c| c.text.as_str()), Some("new"));
        let want = [
            "1 variants are not in the baseline: --bless adds them",
            "in the baseline and no longer built: goes",
            "the baseline is of ptxas 12.8.93",
        ];
        assert_eq!(report.notes, want);
        let kept = Baseline::of(&report, Some(baseline)).unwrap();
        assert_eq!(kept.variants.keys().collect::<Vec<_>>(), ["comes", "goes", "stays"]);
        assert_eq!(kept.variants["stays"].ctas_per_sm, 4);
    }
}
