//! The instruction table: every PTX form that the compiler may emit, and which targets the pinned
//! assembler takes it for. What the table says was probed, form by form, and is never guessed.
//!
//! A *form* is an opcode with all its modifiers, such as `cvt.rn.f16x2.e4m3x2`. The table is
//! `isa.toml`; `cargo xtask probe-isa` assembles one tiny kernel a form and writes its right-hand
//! sides anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use thiserror::Error;

/// The table as it lies in the repository.
pub const TABLE: &str = include_str!("isa.toml");

static PARSED: LazyLock<Table> = LazyLock::new(|| Table::parse(TABLE));

/// What the compiler writes PTX for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sm {
    /// Hopper, with its own matrix instructions.
    Sm90a,
    /// The first data-centre Blackwell alone.
    Sm100a,
    /// Data-centre Blackwell, what all of the family has.
    Sm100f,
}

impl Sm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sm90a, Self::Sm100a, Self::Sm100f];

    /// As PTX names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
            Self::Sm100a => "sm_100a",
            Self::Sm100f => "sm_100f",
        }
    }

    /// Most dynamic shared memory of a program, in bytes.
    pub const fn max_shared_bytes(self) -> usize {
        match self {
            Self::Sm90a | Self::Sm100a | Self::Sm100f => 227 * 1024,
        }
    }

    /// Shared memory of a multiprocessor, in bytes.
    pub const fn multiprocessor_shared_bytes(self) -> usize {
        self.max_shared_bytes() + 1024
    }

    /// Whether it has matrix instructions of four warps.
    pub fn has_warpgroups(self) -> bool {
        require("wgmma.fence.sync.aligned", self).is_ok()
    }

    /// The target of that name in PTX.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sm| sm.name() == name)
    }
}

impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a form cannot be emitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum Missing {
    #[error("`{form}` is not in the instruction table: add it to isa.toml and probe it")]
    Unknown { form: String },
    #[error("{target} has no `{form}`; {}", whose(takes))]
    Refused { form: String, target: Sm, takes: Vec<Sm> },
}

fn whose(takes: &[Sm]) -> String {
    let names: Vec<&str> = takes.iter().map(|sm| sm.name()).collect();
    match names.as_slice() {
        [] => "no target of ours has it".to_owned(),
        names => format!("it is one of {}", names.join(", ")),
    }
}

/// Whether a target takes a form.
///
/// # Errors
/// [`Missing::Refused`] if the assembler refused it for this target, [`Missing::Unknown`] if nobody
/// ever asked it.
pub fn require(form: &str, target: Sm) -> Result<(), Missing> {
    match PARSED.forms.get(form) {
        Some(takes) if takes.contains(&target) => Ok(()),
        Some(takes) => {
            Err(Missing::Refused { form: form.to_owned(), target, takes: takes.clone() })
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
    forms: BTreeMap<&'static str, Vec<Sm>>,
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
                    let takes = value.split_whitespace().filter_map(Sm::of_name).collect();
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

    fn check(form: &str, takes: &[Sm]) {
        for sm in Sm::ALL {
            assert_eq!(require(form, sm).is_ok(), takes.contains(&sm), "{form} on {sm}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let keys = TABLE.lines().filter(|line| line.starts_with('"')).count();
        assert_eq!(all().count(), keys, "a form stands twice, or a line is not read");
        for line in TABLE.lines().filter(|line| line.starts_with('"')) {
            let (_, value) = line.split_once("\" = \"").expect("`\"instruction\" = \"targets\"`");
            let names = value.strip_suffix('"').expect("a closing quote").split_whitespace();
            names.for_each(|name| assert!(Sm::of_name(name).is_some(), "{line}"));
        }
        assert!(ptxas_version().starts_with("13.") && ptx_version() == "9.0");
    }

    /// What NVIDIA's documentation of PTX says of each instruction's targets.
    #[test]
    fn the_targets_differ_where_the_language_says_so() {
        check("add.s32", &Sm::ALL);
        check("cvt.rn.f16x2.e4m3x2", &Sm::ALL);
        check("wgmma.fence.sync.aligned", &[Sm::Sm90a]);
        check("fma.rn.f32x2", &[Sm::Sm100a, Sm::Sm100f]);
        let blackwell = [Sm::Sm100a, Sm::Sm100f];
        for form in [
            "cvt.rn.f16x2.e2m1x2",
            "cvt.rp.satfinite.ue8m0x2.f32",
            "ld.global.v8.b32",
            "redux.sync.max.f32",
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
            "tcgen05.wait::ld.sync.aligned",
        ] {
            check(form, &blackwell);
        }
        for form in [
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "stmatrix.sync.aligned.m8n8.x4.shared.b16",
            "cp.async.cg.shared.global",
            "mbarrier.try_wait.parity.shared.b64",
            "red.global.add.v4.f32",
            "setmaxnreg.inc.sync.aligned.u32",
        ] {
            check(form, &Sm::ALL);
        }
        check("cvt.rs.satfinite.e4m3x4.f32", &[Sm::Sm100a]);
        check("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", &[]);
    }

    #[test]
    fn a_missing_form_says_who_has_it() {
        let message = |form| require(form, Sm::Sm90a).unwrap_err().to_string();
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
