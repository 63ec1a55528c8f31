//! A kernel's source with what became of each line under it: its ops, its PTX and its machine code.

use super::diagnose::SourceMap;
use super::generate::Variant;
use super::sass::Sass;
use crate::source::{items, wrap};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tessera_kernel_cpu::SourceLine;
use tessera_tile_ir::{Kernel, OpKind, Region};

/// From this width on, the three stand beside each other.
const COLUMNS: usize = 140;
/// Before each line: its number and a bar.
const MARGIN: usize = 7;
/// Between columns: a space, a bar, a space.
const GAP: usize = 3;

/// What one line of the source became.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Tile IR.
    pub ops: Vec<String>,
    /// PTX.
    pub ptx: Vec<String>,
    /// Machine code.
    pub sass: Vec<String>,
}

/// The page of a variant; without machine code where there was no assembler.
pub fn explain(
    variant: &Variant,
    sass: Option<&Sass>,
    read: &dyn Fn(&str) -> Vec<String>,
    width: usize,
) -> String {
    let mut made: BTreeMap<SourceLine, Made> = BTreeMap::new();
    let mut own = None;
    if let Some(source) = &variant.source {
        own = Some(SourceLine::of(source.kernel.loc));
        add_ops(&source.kernel, &source.kernel.grid, 0, &mut made);
        add_ops(&source.kernel, &source.kernel.body, 0, &mut made);
    }
    let map = SourceMap::of(&variant.ptx);
    for (number, text, place) in map.code() {
        let Some(place) = place else { continue };
        let line = SourceLine { file: place.file.clone(), line: place.line };
        made.entry(line).or_default().ptx.push(format!("{number:>4} {}", text.trim()));
    }
    for instruction in sass.iter().flat_map(|sass| &sass.instructions) {
        let Some((file, line)) = instruction.source.clone() else { continue };
        let text = format!("{:04x} {}", instruction.address, instruction.text);
        made.entry(SourceLine { file, line }).or_default().sass.push(text);
    }
    let mut out = format!("{}\n", variant.label);
    if sass.is_none() {
        out.push_str("not assembled: there is no machine code to show\n");
    }
    page(&made, own.as_ref(), read, width, &mut out);
    out
}

fn add_ops(kernel: &Kernel, region: &Region, depth: usize, made: &mut BTreeMap<SourceLine, Made>) {
    for &id in &region.ops {
        let op = kernel.op(id);
        if op.kind != OpKind::Yield || !op.operands.is_empty() {
            let text = format!("{}{}", "  ".repeat(depth), kernel.op_text(op));
            made.entry(SourceLine::of(op.loc)).or_default().ops.push(text);
        }
        op.regions.iter().for_each(|inner| add_ops(kernel, inner, depth + 1, made));
    }
}

/// Every item of every file that something comes from, the kernel's own file first.
fn page(
    made: &BTreeMap<SourceLine, Made>,
    own: Option<&SourceLine>,
    read: &dyn Fn(&str) -> Vec<String>,
    width: usize,
    out: &mut String,
) {
    let mut files: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for place in made.keys().chain(own) {
        files.entry(&place.file).or_default().insert(place.line);
    }
    let mut order: Vec<&str> = files.keys().copied().collect();
    order.sort_by_key(|&file| own.is_none_or(|own| file != own.file));
    for file in order {
        let _ = writeln!(out, "\n{file}");
        let lines = read(file);
        let wanted = &files[file];
        let ranges = match lines.is_empty() {
            true => wanted.iter().map(|&line| line..=line).collect(),
            false => items(&lines, wanted),
        };
        for line in ranges.into_iter().flatten() {
            let text = lines.get(line as usize - 1).map_or("", String::as_str);
            let _ = writeln!(out, "{}", format!("{line:4} │ {text}").trim_end());
            if let Some(made) = made.get(&SourceLine { file: file.to_owned(), line }) {
                under(made, width, out);
            }
        }
    }
}

/// What a line became, in three columns or one after the other.
fn under(made: &Made, width: usize, out: &mut String) {
    let shared = made.ops.iter().map(|op| op.len() - op.trim_start().len()).min().unwrap_or(0);
    let ops = made.ops.iter().map(|op| op[shared..].to_owned()).collect();
    let all: [Vec<String>; 3] = [ops, made.ptx.clone(), made.sass.clone()];
    if width < COLUMNS {
        for (bar, texts) in ["╎", "┃", "┋"].into_iter().zip(&all) {
            for line in texts.iter().flat_map(|text| wrap(text, width.saturating_sub(MARGIN))) {
                let _ = writeln!(out, "     {bar} {line}");
            }
        }
    } else {
        let each = (width - MARGIN - 2 * GAP) / 3;
        let [ops, ptx, sass] = all
            .map(|texts| texts.iter().flat_map(|text| wrap(text, each)).collect::<Vec<String>>());
        for row in 0..ops.len().max(ptx.len()).max(sass.len()) {
            let cell = |column: &[String]| column.get(row).cloned().unwrap_or_default();
            let (op, ptx, sass) = (cell(&ops), cell(&ptx), cell(&sass));
            let line = format!("     ╎ {op:each$} ┃ {ptx:each$} ┋ {sass}");
            let _ = writeln!(out, "{}", line.trim_end_matches([' ', '┃', '┋']));
        }
    }
    out.push_str("     │\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Made {
        let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
        Made {
            ops: texts(&["  %1: i64 = const 4", "    %2: i64 = mul (%0, %1)"]),
            ptx: texts(&["   9 mul.lo.s64 %rd1, %rd2, 4;"]),
            sass: texts(&["0010 IMAD.WIDE R2, R3, 0x4, RZ", "0020 NOP", "0030 EXIT"]),
        }
    }

    fn check(width: usize, want: &str) {
        let mut out = String::new();
        under(&made(), width, &mut out);
        assert_eq!(out, want);
    }

    #[test]
    fn a_narrow_page_stacks() {
        check(
            80,
            "     ╎ %1: i64 = const 4\n     ╎   %2: i64 = mul (%0, %1)\n     \
                  ┃    9 mul.lo.s64 %rd1, %rd2, 4;\n     ┋ 0010 IMAD.WIDE R2, R3, 0x4, RZ\n     \
                  ┋ 0020 NOP\n     ┋ 0030 EXIT\n     │\n",
        );
    }

    #[test]
    fn a_wide_page_has_three_columns() {
        let mut out = String::new();
        under(&made(), 160, &mut out);
        let lines: Vec<Vec<&str>> =
            out.lines().map(|line| line.split(['╎', '┃', '┋']).map(str::trim).collect()).collect();
        let first = [
            "",
            "%1: i64 = const 4",
            "9 mul.lo.s64 %rd1, %rd2, 4;",
            "0010 IMAD.WIDE R2, R3, 0x4, RZ",
        ];
        assert_eq!(lines[0], first);
        assert_eq!(lines[1], ["", "%2: i64 = mul (%0, %1)", "", "0020 NOP"]);
        let none = Made { ptx: Vec::new(), sass: Vec::new(), ..made() };
        let mut out = String::new();
        under(&none, 160, &mut out);
        assert!(!out.contains(['┃', '┋']), "{out}");
        assert_eq!(lines[2], ["", "", "", "0030 EXIT"]);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn lines_come_from_all_three() {
        let ptx = "\t.loc 1 2 5\n\tret;\n.file 1 \"a.rs\"\n".to_owned();
        let label = "k".to_owned();
        let variant = Variant { label, ptx, threads: 32, shared_bytes: 0, source: None };
        let sass = Sass::parse("//## File \"a.rs\", line 2\n/*0000*/ EXIT ;\n");
        let read = |_: &str| vec!["fn k() {".to_owned(), "    done();".to_owned(), "}".to_owned()];
        let text = explain(&variant, Some(&sass), &read, 80);
        let want = "k\n\na.rs\n   1 │ fn k() {\n   2 │     done();\n     ┃    2 ret;\n     \
                    ┋ 0000 EXIT\n     │\n   3 │ }\n";
        assert_eq!(text, want);
        assert!(explain(&variant, None, &read, 80).contains("not assembled"));
    }
}
