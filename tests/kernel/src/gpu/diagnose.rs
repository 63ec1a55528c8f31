//! From a line of PTX back to the kernel's source, and mistakes printed as rustc prints its own.

use super::ptxas::Finding;
use std::fmt::Write;

/// The author's place that each line of a PTX text comes from, by its `.file` and `.loc`.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    /// By line of the PTX, from 1.
    places: Vec<Option<Place>>,
    text: Vec<String>,
}

/// A place in the author's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the three parts of a place")]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl SourceMap {
    /// Reads the marks of a PTX text.
    pub fn of(ptx: &str) -> Self {
        let files: Vec<(u32, String)> = ptx.lines().filter_map(file).collect();
        let mut at = None;
        let mut map = Self::default();
        for line in ptx.lines() {
            if let Some((index, line, column)) = loc(line) {
                let file = files.iter().find(|(number, _)| *number == index);
                at = file.map(|(_, file)| Place { file: file.clone(), line, column });
            }
            map.places.push(at.clone());
            map.text.push(line.to_owned());
        }
        map
    }

    /// Where a line of the PTX, from 1, comes from.
    pub fn place(&self, line: usize) -> Option<&Place> {
        self.places.get(line.checked_sub(1)?)?.as_ref()
    }

    /// Each line of code with its number and place; marks and declarations are left out.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str, Option<&Place>)> {
        let lines = self.text.iter().zip(&self.places).zip(1..);
        let code = lines.filter(|((text, place), _)| {
            let text = text.trim();
            place.is_some() && !text.is_empty() && !text.starts_with(['.', '}', '{', '/'])
        });
        code.map(|((text, place), number)| (number, text.as_str(), place.as_ref()))
    }

    fn text(&self, line: usize) -> &str {
        line.checked_sub(1).and_then(|i| self.text.get(i)).map_or("", |text| text.trim())
    }
}

/// `.file 1 "path"`.
fn file(line: &str) -> Option<(u32, String)> {
    let rest = line.trim().strip_prefix(".file")?.trim_start();
    let (number, path) = rest.split_once(char::is_whitespace)?;
    let path = path.trim().strip_prefix('"')?.split('"').next()?;
    Some((number.parse().ok()?, path.to_owned()))
}

/// `.loc 1 13 9`, whatever follows.
fn loc(line: &str) -> Option<(u32, u32, u32)> {
    let rest = line.trim().strip_prefix(".loc")?;
    let mut numbers = rest.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?, next()?))
}

/// Something to tell an author, at a place of the source.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// `error[K039]`, `warning` or `note`.
    pub head: &'a str,
    /// What is wrong.
    pub text: String,
    /// Where.
    pub place: Option<&'a Place>,
    /// What else to know.
    pub notes: Vec<String>,
}

impl Message<'_> {
    /// As rustc prints it, with the line of the source if it can be read.
    pub fn print(&self, read: &dyn Fn(&str) -> Vec<String>) -> String {
        let mut out = format!("{}: {}\n", self.head, self.text);
        let Some(place) = self.place else {
            self.notes.iter().for_each(|note| _ = writeln!(out, "  = note: {note}"));
            return out;
        };
        let number = place.line.to_string();
        let gap = " ".repeat(number.len());
        let _ = writeln!(out, "{gap}--> {}:{}:{}", place.file, place.line, place.column);
        let lines = read(&place.file);
        let source = (place.line as usize).checked_sub(1).and_then(|line| lines.get(line));
        if let Some(source) = source {
            let before: usize = (place.column as usize).saturating_sub(1);
            let width = token_width(source, before);
            let caret = format!("{}{}", " ".repeat(before), "^".repeat(width));
            let _ = writeln!(out, "{gap} |\n{number} | {source}\n{gap} | {caret}");
        }
        self.notes.iter().for_each(|note| _ = writeln!(out, "{gap} = note: {note}"));
        out
    }
}

/// Characters of the word or operator that begins at a column.
fn token_width(source: &str, before: usize) -> usize {
    let word = |c: &char| c.is_alphanumeric() || *c == '_';
    let rest = source.chars().skip(before);
    rest.take_while(word).count().max(1)
}

/// What the assembler found in a kernel, at the author's lines.
pub fn refusals(
    label: &str,
    findings: &[Finding],
    map: &SourceMap,
    read: &dyn Fn(&str) -> Vec<String>,
) -> String {
    let each = findings.iter().map(|finding| {
        let head = if finding.fatal { "error[K039]" } else { "warning" };
        let place = finding.line.and_then(|line| map.place(line));
        let mut notes = Vec::new();
        if let Some(line) = finding.line {
            notes.push(format!("line {line} of its PTX is `{}`", map.text(line)));
        }
        notes.push(format!("in variant {label}"));
        let text = format!("ptxas: {}", finding.message);
        Message { head, text, place, notes }.print(read)
    });
    each.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 9.0\n.visible .entry k()\n{\n.reg .b32 %r<2>;\n.loc 1 2 17\n\
                       mul.rn.f33 %f1, %f2, %f3;\n.loc 2 7 1, function_name $f, inlined_at 1 3 4\n\
                       ret;\n}\n.file 1 \"a.rs\"\n.file\t2 \"b c.rs\", 1, 2\n";

    fn read(file: &str) -> Vec<String> {
        let text = if file == "a.rs" { "fn k() {\n    let product = left * right;\n}" } else { "" };
        text.lines().map(str::to_owned).collect()
    }

    fn check(line: usize, want: &str) {
        let finding = Finding { fatal: true, line: Some(line), message: "no".to_owned() };
        assert_eq!(refusals("k<a>", &[finding], &SourceMap::of(PTX), &read), want);
    }

    #[test]
    fn an_error_shows_the_authors_line() {
        check(
            6,
            "error[K039]: ptxas: no\n --> a.rs:2:17\n  |\n2 |     let product = left * right;\n  \
             |                 ^\n  = note: line 6 of its PTX is `mul.rn.f33 %f1, %f2, %f3;`\n  \
             = note: in variant k<a>\n",
        );
    }

    #[test]
    fn a_source_that_cannot_be_read_is_still_named() {
        check(
            8,
            "error[K039]: ptxas: no\n --> b c.rs:7:1\n  = note: line 8 of its PTX is `ret;`\n  \
             = note: in variant k<a>\n",
        );
    }

    #[test]
    fn an_error_before_any_mark_has_no_place() {
        check(
            1,
            "error[K039]: ptxas: no\n  = note: line 1 of its PTX is `.version 9.0`\n  \
             = note: in variant k<a>\n",
        );
    }

    #[test]
    fn code_is_what_is_neither_mark_nor_declaration() {
        let map = SourceMap::of(PTX);
        let code: Vec<_> = map.code().map(|(n, t, p)| (n, t, p.unwrap().line)).collect();
        assert_eq!(code, [(6, "mul.rn.f33 %f1, %f2, %f3;", 2), (8, "ret;", 7)]);
    }
}
