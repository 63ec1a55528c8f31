//! A kernel with what became of it: for each line of its source, the ops and the generated code.

use crate::entry::Variant;
use crate::text::place;
use std::collections::BTreeSet;
use std::fmt::Write;
use tessera_tile_ir::{Kernel, Loc};

/// The generated lines of a kernel under the source lines and ops they come from.
pub fn explain(kernel: &Kernel) -> String {
    let mut out = format!("{}, {}\n", kernel.label(), place(kernel.loc));
    let variant = match Variant::generate(kernel) {
        Ok(variant) => variant,
        Err(errors) => {
            for error in errors {
                let _ = writeln!(out, "{error}");
            }
            return out;
        }
    };
    let mut shown = BTreeSet::new();
    let mut last = None;
    for (loc, line) in variant.body.located() {
        if line.trim_start().starts_with("// ") && line.contains(".rs:") {
            continue;
        }
        let at = loc.map(|loc| (loc.file, loc.line));
        if at != last {
            last = at;
            if let Some(loc) = loc {
                let _ = writeln!(out, "\n{}", place(*loc));
                if shown.insert((loc.file, loc.line)) {
                    out += &ops(kernel, *loc);
                }
            }
        }
        let _ = writeln!(out, "    {}", line.strip_prefix("        ").unwrap_or(line));
    }
    out
}

/// The ops that a source line made.
fn ops(kernel: &Kernel, loc: Loc) -> String {
    let mut out = String::new();
    let here = kernel.ops.iter().filter(|op| (op.loc.file, op.loc.line) == (loc.file, loc.line));
    for op in here {
        let operands: Vec<String> = op.operands.iter().map(|v| format!("%{}", v.0)).collect();
        let results: Vec<String> =
            op.results.iter().map(|&v| format!("%{}: {}", v.0, kernel.ty(v))).collect();
        let results = results.join(", ");
        let _ = writeln!(out, "  | {results} = {:?}({})", op.kind, operands.join(", "));
    }
    out
}
