//! A kernel's source with the ops and the generated code of each line under it.

use crate::choose::mistakes;
use crate::source::{items, wrap};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tessera_kernel_cpu::{CodeLine, Made, SourceLine, explain as made_of};
use tessera_tile_ir::Kernel;

/// From this width on, ops and code stand beside each other.
const TWO_COLUMNS: usize = 100;
/// Before each line: its number and a bar.
const MARGIN: usize = 7;
/// Between ops and code: a bar and the number of the generated line.
const GAP: usize = 8;

/// Every item of the source that has ops of this kernel, line by line.
///
/// # Errors
/// What this target has no code for.
pub fn explain(
    kernel: &Kernel,
    read: &dyn Fn(&str) -> Vec<String>,
    width: usize,
) -> Result<String> {
    let made = made_of(kernel).map_err(|errors| mistakes(&errors))?;
    let own = SourceLine::of(kernel.loc);
    let mut files: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for place in made.keys().chain([&own]) {
        files.entry(&place.file).or_default().insert(place.line);
    }
    let mut order: Vec<&str> = files.keys().copied().collect();
    order.sort_by_key(|&file| file != own.file);
    let page = Page::new(&made, width);
    let mut out = format!("{}\n", kernel.label());
    for file in order {
        let _ = writeln!(out, "\n{file}");
        let lines = read(file);
        let wanted = &files[file];
        let ranges = if lines.is_empty() {
            wanted.iter().map(|&line| line..=line).collect()
        } else {
            items(&lines, wanted)
        };
        for range in ranges {
            out.push('\n');
            for line in range {
                let text = lines.get(line as usize - 1).map_or("", String::as_str);
                let _ = writeln!(out, "{}", format!("{line:4} │ {text}").trim_end());
                let place = SourceLine { file: file.to_owned(), line };
                if let Some(made) = made.get(&place) {
                    page.write(made, &mut out);
                }
            }
        }
    }
    Ok(out)
}

/// How ops and code share the width.
struct Page {
    /// Width of the ops, if the code stands beside them.
    beside: Option<usize>,
    width: usize,
}

impl Page {
    fn new(made: &BTreeMap<SourceLine, Made>, width: usize) -> Self {
        let ops = made.values().flat_map(|made| &made.ops);
        let longest = ops.map(|op| op.trim_start().chars().count()).max().unwrap_or(0);
        let half = width.saturating_sub(MARGIN + GAP) * 9 / 20;
        let beside = (width >= TWO_COLUMNS).then_some(longest.min(half));
        Self { beside, width }
    }

    /// What a line became.
    fn write(&self, made: &Made, out: &mut String) {
        let ops_width = self.beside.unwrap_or(self.width.saturating_sub(MARGIN));
        let shared = made.ops.iter().map(|op| indent(op)).min().unwrap_or(0);
        let ops = made.ops.iter().flat_map(|op| wrap(&op[shared..], ops_width));
        let ops: Vec<String> = ops.collect();
        let taken = MARGIN + GAP + self.beside.unwrap_or(0);
        let code = numbered(&made.code, self.width.saturating_sub(taken));
        match self.beside {
            Some(column) if !code.is_empty() => {
                for row in 0..ops.len().max(code.len()) {
                    let op = ops.get(row).map_or("", String::as_str);
                    let code = code.get(row).map_or("", String::as_str);
                    let line = format!("     ╎ {op:column$} ╎ {code}");
                    let _ = writeln!(out, "{}", line.trim_end());
                }
            }
            _ => {
                ops.iter().for_each(|op| _ = writeln!(out, "     ╎ {op}"));
                code.iter().for_each(|code| _ = writeln!(out, "     ┃ {code}"));
            }
        }
        out.push_str("     │\n");
    }
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// Generated lines with their numbers, without the indentation that all share; dots stand where
/// lines of other places lie between.
fn numbered(code: &[CodeLine], width: usize) -> Vec<String> {
    let shared = code.iter().map(|line| indent(&line.text)).min().unwrap_or(0);
    let mut rows = Vec::new();
    let mut before: Option<usize> = None;
    for line in code {
        if before.is_some_and(|before| before + 1 != line.number) {
            rows.push("   ⋮".to_owned());
        }
        before = Some(line.number);
        let parts = wrap(&line.text[shared..], width);
        for (i, part) in parts.iter().enumerate() {
            let number = if i == 0 { line.number.to_string() } else { String::new() };
            rows.push(format!("{number:>4} {part}"));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize, text: &str) -> CodeLine {
        CodeLine { number, text: text.to_owned() }
    }

    fn made() -> Made {
        Made {
            ops: vec!["%1: i64 = const 4".to_owned(), "%2: i64 = mul (%0, %1)".to_owned()],
            code: vec![line(7, "        let a = 1;"), line(12, "            let b = 2;")],
        }
    }

    fn check(width: usize, want: &str) {
        let place = SourceLine { file: "a.rs".to_owned(), line: 1 };
        let made = BTreeMap::from([(place, made())]);
        let mut out = String::new();
        Page::new(&made, width).write(made.values().next().unwrap(), &mut out);
        assert_eq!(out, want);
    }

    #[test]
    fn a_wide_page_has_two_columns() {
        check(
            120,
            "     ╎ %1: i64 = const 4      ╎    7 let a = 1;\n     \
                  ╎ %2: i64 = mul (%0, %1) ╎    ⋮\n     \
                  ╎                        ╎   12     let b = 2;\n     │\n",
        );
    }

    #[test]
    fn a_narrow_page_stacks() {
        check(
            60,
            "     ╎ %1: i64 = const 4\n     ╎ %2: i64 = mul (%0, %1)\n     ┃    7 let a = 1;\n     \
                  ┃    ⋮\n     ┃   12     let b = 2;\n     │\n",
        );
    }
}
