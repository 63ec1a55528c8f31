//! One row a variant: what it takes, how many of it fit, and whether it may be used.

use super::arch::{Limiter, Limits, Needs, Occupancy, occupancy};
use super::assemble::Outcome;
use super::baseline::Change;
use super::generate::Variant;
use super::ptxas::Figures;
use super::sass::{Products, Sass};
use serde::Serialize;
use std::fmt::Write;
use tessera_ptx::Sm;
use tessera_ptx::isa::{Missing, forms, require};

/// Whether a variant may be launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum State {
    /// It may.
    Usable,
    /// It was assembled, and must not be.
    Ineligible(String),
    /// The assembler refused it: the build has failed.
    Refused,
    /// Nobody knows: there was no assembler.
    NotAssembled,
}

/// What only the assembler knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// In its words.
    #[serde(flatten)]
    pub figures: Figures,
    /// Shared memory of a program, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Programs that fit a multiprocessor at a time.
    pub ctas_per_sm: u32,
    /// Of its warps, in percent.
    pub occupancy_percent: f64,
    /// What runs out first.
    pub limiter: Limiter,
    /// Which unit multiplies.
    pub products: Products,
    /// Machine instructions, each counted once.
    pub instructions: usize,
}

/// A variant in the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its label.
    pub label: String,
    /// Threads of a program.
    pub threads: u32,
    /// Dynamic shared memory of a program, in bytes.
    pub dynamic_shared_bytes: u32,
    /// Whether it may be launched.
    #[serde(flatten)]
    pub state: State,
    /// What only the assembler knows.
    pub measured: Option<Measured>,
    /// What it passed: `asm`, the assembler; `isa`, the instruction table; `sass`, the facts;
    /// `emu`, its cases on the emulator, which finds races; `ref`, their results in the f64 evaluator.
    pub checks: Vec<&'static str>,
    /// How it differs from the committed baseline.
    pub change: Option<Change>,
}

impl Row {
    /// The row of a variant, and what its instructions lack in the table.
    pub fn of(variant: &Variant, target: Sm, outcome: Option<&Outcome>) -> (Self, Vec<Missing>) {
        let used = forms(&variant.ptx);
        let missing = used.into_iter().filter_map(|form| require(form, target).err());
        let missing: Vec<Missing> = missing.collect();
        let mut checks = Vec::new();
        let (state, measured) = match outcome {
            None => (State::NotAssembled, None),
            Some(Outcome::Refused(_)) => (State::Refused, None),
            Some(Outcome::Assembled(made)) => {
                checks.push("asm");
                let (state, measured) =
                    judge(variant, &Limits::of(target), made.figures, &made.sass);
                (state, Some(measured))
            }
        };
        if missing.is_empty() {
            checks.push("isa");
        }
        let row = Self {
            label: variant.label.clone(),
            threads: variant.threads,
            dynamic_shared_bytes: variant.shared_bytes,
            state,
            measured,
            checks,
            change: None,
        };
        (row, missing)
    }

    /// What stands before and in the brackets of the label.
    fn name_and_constants(&self) -> (&str, &str) {
        let (name, rest) = self.label.split_once('[').unwrap_or((&self.label, ""));
        (name, rest.trim_end_matches(']'))
    }
}

/// What a variant takes, and whether that is allowed.
fn judge(variant: &Variant, limits: &Limits, figures: Figures, sass: &Sass) -> (State, Measured) {
    let shared_bytes = variant.shared_bytes + figures.static_shared_bytes;
    let needs = Needs {
        threads: variant.threads,
        registers: figures.registers,
        shared_bytes,
        barriers: figures.barriers,
    };
    let Occupancy { ctas, percent, limiter } = occupancy(limits, &needs);
    let measured = Measured {
        figures,
        shared_bytes,
        ctas_per_sm: ctas,
        occupancy_percent: percent,
        limiter,
        products: sass.products(),
        instructions: sass.instructions.len(),
    };
    let state = match reason(limits, &measured, sass) {
        None => State::Usable,
        Some(reason) => State::Ineligible(reason),
    };
    (state, measured)
}

/// Why a variant must not be launched.
fn reason(limits: &Limits, measured: &Measured, sass: &Sass) -> Option<String> {
    let Figures { local_bytes, .. } = measured.figures;
    let spills = measured.figures.spill_bytes();
    let most = limits.shared_bytes_per_cta;
    if spills > 0 {
        Some(format!("spills {spills} bytes"))
    } else if local_bytes > 0 {
        Some(format!("uses {local_bytes} bytes of local memory"))
    } else if sass.uses_local_memory() {
        Some("uses local memory".to_owned())
    } else if measured.shared_bytes > most {
        let kib = |bytes: u32| f64::from(bytes) / 1024.0;
        let (needs, most) = (kib(measured.shared_bytes), kib(most));
        Some(format!("needs {needs:.1} KiB of shared memory, a program has {most} at most"))
    } else if measured.ctas_per_sm == 0 {
        Some(format!("no program fits: {}", measured.limiter))
    } else {
        None
    }
}

/// Everything that was built for a target.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the assembler; none without one.
    pub ptxas: Option<&'static str>,
    /// Version of the PTX language.
    pub ptx: &'static str,
    /// As PTX names it.
    pub target: &'static str,
    /// One a variant.
    pub variants: Vec<Row>,
    /// What got worse since the baseline.
    pub regressions: Vec<String>,
    /// What else to know.
    pub notes: Vec<String>,
}

impl Report {
    fn number(&self, of: impl Fn(&State) -> bool) -> usize {
        self.variants.iter().filter(|row| of(&row.state)).count()
    }

    /// The report for a terminal.
    pub fn table(&self) -> String {
        let mut out = self.head();
        let rows: Vec<[String; 14]> = self.variants.iter().map(cells).collect();
        let titles = [
            "kernel<format>",
            "variant",
            "regs",
            "spill",
            "lmem",
            "smem/CTA",
            "thr",
            "CTA/SM",
            "occ%",
            "limiter",
            "products",
            "instr",
            "checks",
            "against baseline",
        ];
        let titles = titles.map(str::to_owned);
        let mut widths = [0; 14];
        for row in rows.iter().chain([&titles]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        // Numbers stand under the ends of their titles, words under the beginnings.
        let words = [0, 1, 9, 10, 12, 13];
        for row in [&titles].into_iter().chain(&rows) {
            let cells = row.iter().zip(widths).enumerate().map(|(i, (cell, width))| {
                match words.contains(&i) {
                    true => format!("{cell:width$}"),
                    false => format!("{cell:>width$}"),
                }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        for note in &self.notes {
            let _ = writeln!(out, "  note: {note}");
        }
        out
    }

    fn head(&self) -> String {
        let total = self.variants.len();
        let tool = self.ptxas.map_or("no ptxas".to_owned(), |version| format!("ptxas {version}"));
        let counted = if self.ptxas.is_none() {
            "not assembled".to_owned()
        } else {
            let usable = self.number(|state| *state == State::Usable);
            let ineligible = self.number(|state| matches!(state, State::Ineligible(_)));
            let refused = self.number(|state| *state == State::Refused);
            let refused = match refused {
                0 => String::new(),
                number => format!(", {number} refused"),
            };
            format!("{usable} usable, {ineligible} ineligible{refused}")
        };
        let Self { ptx, target, .. } = self;
        format!("{tool}  PTX {ptx}  target {target}  {total} variants, {counted}\n")
    }
}

fn cells(row: &Row) -> [String; 14] {
    let (name, constants) = row.name_and_constants();
    let dash = || "-".to_owned();
    let of = |cell: &dyn Fn(&Measured) -> String| row.measured.as_ref().map_or_else(dash, cell);
    let shared = row.measured.as_ref().map_or(row.dynamic_shared_bytes, |m| m.shared_bytes);
    let checks = match &row.state {
        State::Usable => row.checks.join(" "),
        State::Ineligible(reason) => format!("INELIGIBLE {reason}"),
        State::Refused => "REFUSED by ptxas".to_owned(),
        State::NotAssembled => format!("not assembled; {}", row.checks.join(" ")),
    };
    [
        name.to_owned(),
        constants.replace(", ", " "),
        of(&|m| m.figures.registers.to_string()),
        of(&|m| m.figures.spill_bytes().to_string()),
        of(&|m| m.figures.local_bytes.to_string()),
        format!("{:.1}K", f64::from(shared) / 1024.0),
        row.threads.to_string(),
        of(&|m| m.ctas_per_sm.to_string()),
        of(&|m| format!("{:.1}", m.occupancy_percent)),
        of(&|m| m.limiter.to_string()),
        of(&|m| m.products.to_string()),
        of(&|m| m.instructions.to_string()),
        checks,
        row.change.as_ref().map_or_else(String::new, ToString::to_string),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::assemble::Assembled;
    use super::*;

    fn variant(label: &str, threads: u32, shared_bytes: u32) -> Variant {
        let ptx = "\tadd.s32 %r1, %r2, %r3;\n".to_owned();
        Variant { label: label.to_owned(), ptx, threads, shared_bytes, source: None }
    }

    fn assembled(figures: Figures, sass: &str) -> Outcome {
        let sass = Sass::parse(sass);
        Outcome::Assembled(Box::new(Assembled { figures, warnings: vec![], cubin: vec![], sass }))
    }

    fn check_reason(figures: Figures, shared_bytes: u32, sass: &str, want: Option<&str>) {
        let made = assembled(figures, sass);
        let (row, _) = Row::of(&variant("k", 128, shared_bytes), Sm::Sm90a, Some(&made));
        let want = want.map_or(State::Usable, |reason| State::Ineligible(reason.to_owned()));
        assert_eq!(row.state, want);
    }

    #[test]
    fn a_variant_that_spills_or_does_not_fit_is_ineligible() {
        let fine = Figures { registers: 64, ..Figures::default() };
        check_reason(fine, 0, "/*0000*/ EXIT ;", None);
        let spills = Figures { spill_stores: 24, spill_loads: 72, ..fine };
        check_reason(spills, 0, "", Some("spills 96 bytes"));
        let local = Figures { local_bytes: 256, ..fine };
        check_reason(local, 0, "", Some("uses 256 bytes of local memory"));
        check_reason(fine, 0, "/*0000*/ LDL R1, [R2] ;", Some("uses local memory"));
        check_reason(fine, 227 * 1024, "", None);
        let message = "needs 227.5 KiB of shared memory, a program has 227 at most";
        check_reason(fine, 227 * 1024 + 512, "", Some(message));
        let (row, _) = Row::of(
            &variant("k", 1024, 0),
            Sm::Sm90a,
            Some(&assembled(Figures { registers: 128, ..fine }, "")),
        );
        assert_eq!(row.state, State::Ineligible("no program fits: regs".to_owned()));
    }

    fn report(rows: Vec<Row>, ptxas: Option<&'static str>) -> Report {
        let notes = vec!["something".to_owned()];
        Report { ptxas, ptx: "9.0", target: "sm_90a", variants: rows, regressions: vec![], notes }
    }

    #[test]
    fn without_an_assembler_nothing_is_said_to_be_fine() {
        let (row, missing) = Row::of(&variant("w<e4m3>[A=1, B=2]", 128, 2048), Sm::Sm90a, None);
        assert_eq!(missing, []);
        let text = report(vec![row], None).table();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "no ptxas  PTX 9.0  target sm_90a  1 variants, not assembled");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let want = [
            "w<e4m3>",
            "A=1",
            "B=2",
            "-",
            "-",
            "-",
            "2.0K",
            "128",
            "-",
            "-",
            "-",
            "-",
            "-",
            "not",
            "assembled;",
            "isa",
        ];
        assert_eq!(words, want);
        assert!(!text.contains("usable"), "{text}");
    }

    #[test]
    fn the_table_lines_up() {
        let figures = Figures { registers: 168, barriers: 1, ..Figures::default() };
        let made = assembled(figures, "/*0000*/ HMMA.16816.F32 R4, R8, R2, R4 ;");
        let row = |v| Row::of(&v, Sm::Sm90a, Some(&made)).0;
        let rows = vec![
            row(variant("mla_decode<e4m3>[BN=64, STAGES=3]", 128, 113_254)),
            row(variant("rope", 256, 0)),
        ];
        let text = report(rows, Some("13.0.88")).table();
        let want = "\
ptxas 13.0.88  PTX 9.0  target sm_90a  2 variants, 2 usable, 0 ineligible
kernel<format>    variant         regs  spill  lmem  smem/CTA  thr  CTA/SM  occ%  limiter  products  instr  checks   against baseline
mla_decode<e4m3>  BN=64 STAGES=3   168      0     0    110.6K  128       2  12.5  smem     HMMA 1        1  asm isa
rope                               168      0     0      0.0K  256       1  12.5  regs     HMMA 1        1  asm isa
  note: something
";
        assert_eq!(text, want);
    }

    #[test]
    fn an_instruction_that_the_target_lacks_is_named() {
        let mut with = variant("k", 128, 0);
        with.ptx += "\tfma.rn.f32x2 %rd0, %rd1, %rd2, %rd3;\n";
        let (row, missing) = Row::of(&with, Sm::Sm90a, None);
        assert!(missing[0].to_string().starts_with("sm_90a has no `fma.rn.f32x2`"));
        assert_eq!(row.checks, Vec::<&str>::new());
    }
}
