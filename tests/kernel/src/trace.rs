//! What the tiles of a source line hold while the f64 evaluator runs a case.

use crate::cases::{Built, Case};
use crate::choose::dims;
use crate::matrix;
use anyhow::{Result, anyhow, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use tessera_kernel_cpu::SourceLine;
use tessera_tile_ir::eval::{Cells, Evaluator, Event};
use tessera_tile_ir::{Kernel, Op, OpKind, Region, Value};

/// Times that a value is shown in one program before the rest is left out, but for the last.
const TIMES: usize = 3;
/// Lines with ops that are offered where one was asked for that has none.
const NEAREST: usize = 4;

/// Which values to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Those of a source line.
    Line(SourceLine),
    /// This one.
    Value(Value),
}

/// What to show.
#[derive(Debug)]
pub struct Request<'a> {
    /// Of which values.
    pub what: What,
    /// The programs, each by its index along the axes of the grid; zeros may be left out.
    pub programs: &'a [Vec<i64>],
    /// Characters of a line.
    pub width: usize,
}

/// What `LINE`, `FILE:LINE` or `%VALUE` means: without a file, the line is in that of the kernel.
///
/// # Errors
/// The nearest lines that have ops; the values that there are.
pub fn what(kernel: &Kernel, text: &str, read: &dyn Fn(&str) -> Vec<String>) -> Result<What> {
    let malformed =
        || anyhow!("`{text}` is neither a line, such as 12 or rope.rs:12, nor a value, such as %7");
    if let Some(number) = text.strip_prefix('%') {
        let value = Value(number.parse().map_err(|_| malformed())?);
        let last = kernel.values.len().saturating_sub(1);
        ensure!(value.0 as usize <= last, "{} has no {text}, but %0 to %{last}", kernel.label());
        return Ok(What::Value(value));
    }
    let own = SourceLine::of(kernel.loc).file;
    let (file, line) = text.rsplit_once(':').unwrap_or((&own, text));
    let line: u32 = line.parse().map_err(|_| malformed())?;
    let mut known: Vec<SourceLine> = every_op(kernel).map(|op| SourceLine::of(op.loc)).collect();
    known.sort();
    known.dedup();
    let tail = format!("/{file}");
    let named = |place: &&SourceLine| place.file == file || place.file.ends_with(&tail);
    let mut same: Vec<&SourceLine> = known.iter().filter(named).collect();
    if let Some(found) = same.iter().find(|place| place.line == line) {
        return Ok(What::Line((*found).clone()));
    }
    if same.is_empty() {
        known.dedup_by(|a, b| a.file == b.file);
        let files: Vec<&str> = known.iter().map(|place| place.file.as_str()).collect();
        bail!("{} has no ops in `{file}`, but in {}", kernel.name, files.join(", "));
    }
    same.sort_by_key(|place| place.line.abs_diff(line));
    same.truncate(NEAREST);
    same.sort();
    let lines = same.iter().map(|place| format!("\n  {:4} │ {}", place.line, source(place, read)));
    let lines = lines.collect::<String>();
    bail!(
        "{} has no ops at {file}:{line}; the nearest lines that have some are{lines}",
        kernel.name
    )
}

/// The text of a line, empty if it cannot be read.
fn source(place: &SourceLine, read: &dyn Fn(&str) -> Vec<String>) -> String {
    let lines = read(&place.file);
    lines.get(place.line as usize - 1).map_or_else(String::new, |text| text.trim().to_owned())
}

/// Runs a case in the evaluator and shows what was asked for. A launch that fails is shown up to
/// there, with what stopped it.
///
/// # Errors
/// A case that does not fit the kernel; a program that is not in the grid or does not get to the
/// line.
pub fn trace(
    kernel: &Kernel,
    case: &Case,
    request: &Request<'_>,
    read: &dyn Fn(&str) -> Vec<String>,
) -> Result<String> {
    let mut built = Built::new(kernel, case)?;
    let mut out = format!("{}, case `{}` ({})\n", kernel.label(), case.name, dims(case));
    let place = match &request.what {
        What::Line(place) => place.clone(),
        What::Value(value) => SourceLine::of(kernel.values[value.0 as usize].loc),
    };
    let text = source(&place, read);
    let _ = writeln!(out, "{}:{} │ {text}", place.file, place.line);
    let mut seen = Seen::new(kernel, request, read);
    let end = Evaluator::new(kernel).trace(|event| seen.note(event)).run(&mut built.args);
    seen.write(&mut out);
    match end {
        Ok(_) => seen.check(&case.name)?,
        Err(error) => _ = writeln!(out, "\nstopped: {error}"),
    }
    Ok(out)
}

/// What is counted: a program, a value, and whether it was made there or given to an op.
type Key = (Vec<i64>, Value, bool);

/// One value, once.
struct Shown {
    key: Key,
    header: String,
    lines: Vec<String>,
}

/// What of the events is to be shown.
struct Seen<'a> {
    kernel: &'a Kernel,
    request: &'a Request<'a>,
    /// Of each op, by its address in the arena, the index values of the loops around it.
    loops: BTreeMap<*const Op, Vec<Value>>,
    names: BTreeMap<Value, String>,
    indices: BTreeMap<Value, i64>,
    grid: Vec<i64>,
    shown: Vec<Option<Shown>>,
    /// How often a value was seen in a program, and where its latest copy is in `shown`.
    times: BTreeMap<Key, (usize, usize)>,
}

impl<'a> Seen<'a> {
    fn new(
        kernel: &'a Kernel,
        request: &'a Request<'a>,
        read: &dyn Fn(&str) -> Vec<String>,
    ) -> Self {
        let mut loops = BTreeMap::new();
        enclosing(kernel, &kernel.body, &mut Vec::new(), &mut loops);
        let mut names = BTreeMap::new();
        for op in every_op(kernel).filter(|op| matches!(op.kind, OpKind::For { .. })) {
            let name = loop_variable(&source(&SourceLine::of(op.loc), read));
            let index = op.regions[0].args[0];
            names.insert(index, name.unwrap_or_else(|| format!("%{}", index.0)));
        }
        Self {
            kernel,
            request,
            loops,
            names,
            indices: BTreeMap::new(),
            grid: Vec::new(),
            shown: Vec::new(),
            times: BTreeMap::new(),
        }
    }

    fn note(&mut self, event: &Event<'_>) {
        self.grid.resize(event.program.len(), 0);
        self.grid.iter_mut().zip(event.program).for_each(|(n, &i)| *n = (*n).max(i + 1));
        if let (true, Cells::Int(index)) = (self.names.contains_key(&event.value), event.cells) {
            self.indices.insert(event.value, index[0]);
        }
        let asked = event.program.is_empty()
            || self.request.programs.iter().any(|asked| same_program(asked, event.program));
        let here = match &self.request.what {
            What::Line(place) => SourceLine::of(event.loc) == *place,
            What::Value(value) => event.value == *value,
        };
        let by_line = matches!(self.request.what, What::Line(_));
        if !asked || !here || (by_line && matches!(event.op.kind, OpKind::Const(_))) {
            return;
        }
        let given = event.op.results.is_empty() && event.op.regions.is_empty();
        let made = (event.program.to_vec(), event.value, false);
        // What is stored and was made here is not shown again, but where it goes.
        let known = given && event.message.is_none() && self.times.contains_key(&made);
        if known && event.op.operands.last() != Some(&event.value) {
            return;
        }
        let key = (made.0, made.1, given);
        let (times, latest) = self.times.get(&key).copied().unwrap_or((0, 0));
        if times > TIMES {
            // There is a later one: the first few and the last are enough.
            self.shown[latest] = None;
        }
        self.times.insert(key.clone(), (times + 1, self.shown.len()));
        let (mut header, lines) = match known {
            true => (self.kernel.op_text(event.op), Vec::new()),
            false => self.show(event),
        };
        header += &self.around(event.op);
        if times > TIMES {
            header += &format!(", time {}", times + 1);
        }
        self.shown.push(Some(Shown { key, header, lines }));
    }

    fn show(&self, event: &Event<'_>) -> (String, Vec<String>) {
        let mut header = self.header(event);
        let mut lines = match event.op.kind {
            // It says which value it repeats.
            OpKind::Broadcast => Vec::new(),
            _ => matrix::show(event.ty, event.cells, self.request.width.saturating_sub(4)),
        };
        if event.ty.shape.is_empty() && !lines.is_empty() {
            header += &format!("  →  {}", lines.remove(0));
        }
        (header, lines)
    }

    /// Where the loops around an op are.
    fn around(&self, op: &Op) -> String {
        let around = self.loops.get(&std::ptr::from_ref(op)).into_iter().flatten();
        let index = |index| Some(format!("{} = {}", self.names[index], self.indices.get(index)?));
        match around.filter_map(index).collect::<Vec<_>>() {
            none if none.is_empty() => String::new(),
            at => format!("    at {}", at.join(", ")),
        }
    }

    /// How the value came to be.
    fn header(&self, event: &Event<'_>) -> String {
        let Event { op, value, ty, message, .. } = event;
        let plain = format!("%{}: {ty}", value.0);
        if let Some(message) = message {
            return format!("{plain}, {message}");
        }
        let text = self.kernel.op_text(op);
        if op.results.as_slice() == [*value] {
            return text;
        }
        if op.results.contains(value) {
            return format!("{plain}, after `{}`", op.kind.name());
        }
        match op.regions.first().map(|region| region.args.as_slice()) {
            Some([index, ..]) if index == value => format!("{plain}, index of the loop"),
            Some(_) => format!("{plain}, carried into the loop"),
            None => format!("{plain}, for {text}"),
        }
    }

    fn write(&self, out: &mut String) {
        let mut program = None;
        let mut gap: Vec<Value> = Vec::new();
        for (i, shown) in self.shown.iter().enumerate() {
            let Some(Shown { key, header, lines }) = shown else { continue };
            let (now, value, _) = key;
            if program != Some(now) {
                program = Some(now);
                gap.clear();
                let name = if now.is_empty() {
                    "grid".to_owned()
                } else {
                    format!("program {}", joined(now))
                };
                let _ = writeln!(out, "\n{name}");
            }
            let (times, latest) = self.times[key];
            if times > TIMES + 1 && latest == i && !gap.contains(value) {
                if gap.is_empty() {
                    let _ = writeln!(out, "  ⋮  {} times more", times - TIMES - 1);
                }
                gap.push(*value);
            }
            let _ = writeln!(out, "  {header}");
            lines.iter().for_each(|line| _ = writeln!(out, "    {line}"));
        }
    }

    /// Whether every program asked for was there and got to the line.
    fn check(&self, case: &str) -> Result<()> {
        for asked in self.request.programs {
            let extent = |axis: usize| self.grid.get(axis).copied().unwrap_or(1);
            let inside = asked.iter().enumerate().all(|(axis, &i)| i < extent(axis));
            if !inside || self.grid.is_empty() {
                let extents: Vec<String> = self.grid.iter().map(ToString::to_string).collect();
                let count = if extents.is_empty() { "no".to_owned() } else { extents.join(" x ") };
                bail!("case `{case}` has {count} programs: there is no {}", joined(asked));
            }
            let reached =
                |shown: &Shown| shown.key.0.is_empty() || same_program(asked, &shown.key.0);
            if !self.shown.iter().flatten().any(reached) {
                let what = match &self.request.what {
                    What::Line(SourceLine { file, line }) => format!("{file}:{line}"),
                    What::Value(value) => format!("%{}", value.0),
                };
                bail!("program {} of case `{case}` does not get to {what}", joined(asked));
            }
        }
        Ok(())
    }
}

/// `1,0,2`: a program as a command line gives it.
fn joined(program: &[i64]) -> String {
    program.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Whether an index that may be shorter means this program.
fn same_program(asked: &[i64], program: &[i64]) -> bool {
    let at = |index: &[i64], axis: usize| index.get(axis).copied().unwrap_or(0);
    (0..asked.len().max(program.len())).all(|axis| at(asked, axis) == at(program, axis))
}

/// Every op of the grid and of the body, those of regions after their own.
fn every_op(kernel: &Kernel) -> impl Iterator<Item = &Op> {
    let mut open = vec![&kernel.body, &kernel.grid];
    let mut ops = Vec::new();
    while let Some(region) = open.pop() {
        for &id in &region.ops {
            let op = kernel.op(id);
            open.extend(&op.regions);
            if op.kind != OpKind::Yield {
                ops.push(op);
            }
        }
    }
    ops.into_iter()
}

fn enclosing(
    kernel: &Kernel,
    region: &Region,
    around: &mut Vec<Value>,
    found: &mut BTreeMap<*const Op, Vec<Value>>,
) {
    for &id in &region.ops {
        let op = kernel.op(id);
        found.insert(std::ptr::from_ref(op), around.clone());
        for inner in &op.regions {
            let index = inner.args.first().filter(|_| matches!(op.kind, OpKind::For { .. }));
            around.extend(index);
            enclosing(kernel, inner, around, found);
            if index.is_some() {
                around.pop();
            }
        }
    }
}

/// The name in `for NAME in`.
fn loop_variable(line: &str) -> Option<String> {
    let (name, _) = line.trim().strip_prefix("for ")?.split_once(" in ")?;
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    plain.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_leave_zeros_out() {
        assert!(same_program(&[0, 0, 0], &[0]));
        assert!(same_program(&[1], &[1, 0]));
        assert!(!same_program(&[0, 1], &[0]));
        assert!(!same_program(&[0], &[0, 2]));
    }

    #[test]
    fn loops_are_called_as_in_the_source() {
        assert_eq!(loop_variable("    for k in range(0, K, 64) {").as_deref(), Some("k"));
        assert_eq!(loop_variable("    for (i, x) in xs {"), None);
        assert_eq!(loop_variable("let x = 1;"), None);
    }
}
