//! The instruction table: every PTX form that the compiler may emit, and which targets the pinned
//! assembler takes it for. What the table says was probed, form by form, and is never guessed.
//!
//! A *form* is an opcode with all its modifiers, such as `cvt.rn.f16x2.e4m3x2`. The table is
//! `isa.toml`; `cargo xtask probe-isa` assembles one tiny kernel a form and writes its right-hand
//! sides anew.

use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use thiserror::Error;

/// The table as it lies in the repository.
pub const TABLE: &str = include_str!("isa.toml");

static PARSED: LazyLock<Table> = LazyLock::new(|| Table::parse(TABLE));

/// The architectures that the assembler was asked for, as PTX names them.
pub const PROBED: [&str; 3] = ["sm_90a", "sm_100a", "sm_100f"];

/// Why a form cannot be emitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum Missing {
    #[error("`{form}` is not in the instruction table: add it to isa.toml and probe it")]
    Unknown { form: String },
    #[error("{target} has no `{form}`; {}", whose(takes))]
    Refused { form: String, target: &'static str, takes: Vec<&'static str> },
}

fn whose(takes: &[&str]) -> String {
    match takes {
        [] => "no architecture of ours has it".to_owned(),
        takes => format!("it is one of {}", takes.join(", ")),
    }
}

/// Whether a target takes a form.
///
/// # Errors
/// [`Missing::Refused`] if the assembler refused it for this target, [`Missing::Unknown`] if nobody
/// ever asked it.
pub fn require(form: &str, target: Target) -> Result<(), Missing> {
    match PARSED.forms.get(form) {
        Some(takes) if takes.contains(&target.name()) => Ok(()),
        Some(takes) => {
            let (form, target) = (form.to_owned(), target.name());
            Err(Missing::Refused { form, target, takes: takes.clone() })
        }
        None => Err(Missing::Unknown { form: form.to_owned() }),
    }
}

/// Version of the assembler that was asked.
pub fn ptxas_version() -> &'static str {
    PARSED.ptxas
}

/// Version of the PTX language that the forms were asked in.
pub fn ptx_version() -> &'static str {
    PARSED.ptx
}

/// Every form of the table.
pub fn all() -> impl Iterator<Item = &'static str> {
    PARSED.forms.keys().copied()
}

/// The form of one instruction: its first word, guard aside.
pub fn form_of(instruction: &str) -> &str {
    let text = instruction.trim_start();
    let text = match text.strip_prefix('@') {
        Some(guarded) => guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest),
        None => text,
    };
    let end = text.trim_start().find(|c: char| c.is_whitespace() || c == ';');
    let text = text.trim_start();
    &text[..end.unwrap_or(text.len())]
}

/// Every form that a PTX text uses, as the compiler writes PTX: one instruction a line.
pub fn forms(ptx: &str) -> BTreeSet<&str> {
    let lines = ptx.lines().map(str::trim).filter(|line| line.ends_with(';'));
    let code = lines.filter(|line| !line.starts_with(['.', '/', '$', '{', '}']));
    code.map(form_of).filter(|form| !form.is_empty()).collect()
}

/// The parsed table.
struct Table {
    ptxas: &'static str,
    ptx: &'static str,
    forms: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Table {
    /// Reads the few shapes of line that the table consists of; its tests hold the file to them.
    fn parse(text: &'static str) -> Self {
        let mut table = Self { ptxas: "", ptx: "", forms: BTreeMap::new() };
        for line in text.lines() {
            let Some((key, value)) = line.split_once(" = ") else { continue };
            let value = value.trim().trim_matches('"');
            match key {
                "ptxas" => table.ptxas = value,
                "ptx" => table.ptx = value,
                key if key.starts_with('"') => {
                    let form = form_of(key.trim_matches('"'));
                    let takes = value.split_whitespace().collect();
                    table.forms.insert(form, takes);
                }
                _ => {}
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(form: &str, takes: &[Target]) {
        for target in Target::ALL {
            let got = require(form, target).is_ok();
            assert_eq!(got, takes.contains(&target), "{form} on {}", target.name());
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let keys = TABLE.lines().filter(|line| line.starts_with('"')).count();
        assert_eq!(all().count(), keys, "a form stands twice, or a line is not read");
        for line in TABLE.lines().filter(|line| line.starts_with('"')) {
            let (_, value) = line.split_once("\" = \"").expect("`\"instruction\" = \"targets\"`");
            let names = value.strip_suffix('"').expect("a closing quote").split_whitespace();
            names.for_each(|name| assert!(PROBED.contains(&name), "{line}"));
        }
        assert!(ptxas_version().starts_with("13.") && ptx_version() == "9.0");
    }

    /// What NVIDIA's documentation of PTX says of each instruction's targets.
    #[test]
    fn the_targets_differ_where_the_language_says_so() {
        check("add.s32", &Target::ALL);
        check("cvt.rn.f16x2.e4m3x2", &Target::ALL);
        check("wgmma.fence.sync.aligned", &[Target::Sm90a]);
        check("fma.rn.f32x2", &[Target::Sm100f]);
        check("cvt.rn.f16x2.e2m1x2", &[Target::Sm100f]);
    }

    #[test]
    fn a_missing_form_says_who_has_it() {
        let message = |form| require(form, Target::Sm90a).unwrap_err().to_string();
        let refused = "sm_90a has no `fma.rn.f32x2`; it is one of sm_100a, sm_100f";
        assert_eq!(message("fma.rn.f32x2"), refused);
        assert!(message("fma.rn.f33").contains("not in the instruction table"));
    }

    #[test]
    fn forms_are_found_in_text() {
        let text = ".version 9.0\n{\n\t.reg .b32 %r<2>;\n\t.loc 1 2 3\n$L1:\n\tld.param.u64 %rd1, \
                    [p0];\n\t@!%p1 bra $L1;\n\tbar.sync 0;\n\tret;\n}\n";
        let want = ["bar.sync", "bra", "ld.param.u64", "ret"];
        assert_eq!(forms(text).into_iter().collect::<Vec<_>>(), want);
        assert_eq!(form_of("@%p1   st.global.u32 [%rd1], %r1;"), "st.global.u32");
        assert_eq!(form_of("ret;"), "ret");
    }
}
