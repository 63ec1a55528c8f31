//! A kernel with what became of it: for each line of its source, the ops and the generated code.

use crate::entry::Variant;
use crate::text::source_file;
use std::collections::BTreeMap;
use tessera_tile_ir::{BuildError, Kernel, Loc, OpKind, Region};

/// A line of the author's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// Its file, without detours in the path.
    pub file: String,
    /// Its number, from 1.
    pub line: u32,
}

/// What one line of the source became.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// Its ops, in the text form, indented as in the kernel.
    pub ops: Vec<String>,
    /// Its lines of the generated program. An op that is computed where it is read has none.
    pub code: Vec<CodeLine>,
}

/// A line of the generated program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLine {
    /// Its number in the program, from 1.
    pub number: usize,
    /// Its text, indented as in the program.
    pub text: String,
}

/// Where a kernel's ops and generated code come from, by source line.
///
/// # Errors
/// What this target has no code for.
pub fn explain(kernel: &Kernel) -> Result<BTreeMap<SourceLine, Made>, Vec<BuildError>> {
    let variant = Variant::generate(kernel)?;
    let mut lines: BTreeMap<SourceLine, Made> = BTreeMap::new();
    add_ops(kernel, &kernel.grid, 0, &mut lines);
    add_ops(kernel, &kernel.body, 0, &mut lines);
    let mut number = 0;
    let mut open: Vec<Option<Loc>> = Vec::new();
    for (at, text) in variant.body.located() {
        let code = text.trim();
        if code.is_empty() || (code.starts_with("// ") && code.contains(".rs:")) {
            continue;
        }
        // The end of a block belongs to the line that began it.
        let loc = if code.starts_with(['}', ']', ')']) { open.pop().flatten() } else { *at };
        if code.ends_with(['{', '[', '(']) {
            open.push(loc);
        }
        number += 1;
        let made = lines.entry(SourceLine::of(loc.unwrap_or(kernel.loc))).or_default();
        made.code.push(CodeLine { number, text: text.clone() });
    }
    Ok(lines)
}

impl SourceLine {
    /// The line of a place.
    pub fn of(loc: Loc) -> Self {
        Self { file: source_file(loc), line: loc.line }
    }
}

/// Adds the ops of a region, those inside them indented further.
fn add_ops(kernel: &Kernel, region: &Region, depth: usize, lines: &mut BTreeMap<SourceLine, Made>) {
    for &id in &region.ops {
        let op = kernel.op(id);
        if op.kind != OpKind::Yield || !op.operands.is_empty() {
            let text = format!("{}{}", "  ".repeat(depth), kernel.op_text(op));
            lines.entry(SourceLine::of(op.loc)).or_default().ops.push(text);
        }
        op.regions.iter().for_each(|inner| add_ops(kernel, inner, depth + 1, lines));
    }
}
