//! The author's source, and text that is cut to a width.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How far the rest of a wrapped line is indented.
const HANG: usize = 4;

/// Reads source files by the names that ops give them.
#[derive(Debug)]
pub struct Sources {
    root: PathBuf,
}

impl Sources {
    /// Files of the workspace.
    pub fn of_workspace() -> Self {
        Self { root: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")) }
    }

    /// The lines of a file; none if it cannot be read.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.root.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The top-level items that contain these lines, comments and attributes included, by line number.
///
/// An item begins after an empty line and ends with the first brace in column 0, as rustfmt has it.
pub fn items(lines: &[String], wanted: &BTreeSet<u32>) -> Vec<RangeInclusive<u32>> {
    let line = |number: u32| lines.get(number as usize - 1).map_or("", String::as_str);
    let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let mut found: Vec<RangeInclusive<u32>> = Vec::new();
    for &at in wanted.iter().filter(|&&at| at >= 1 && at <= count) {
        if found.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let begins = |number: u32| {
            let top = !line(number).starts_with([' ', '}', ')', ']']) && !line(number).is_empty();
            top && (number == 1 || line(number - 1).is_empty())
        };
        let first = (1..=at).rev().find(|&number| begins(number)).unwrap_or(at);
        let last = (at..=count).find(|&number| line(number).starts_with('}')).unwrap_or(at);
        found.push(first..=last);
    }
    found
}

/// A line cut at spaces to a width in characters, the rest indented further than its beginning. A
/// word that is too long is not cut.
pub fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let hang = " ".repeat((indent + HANG).min(width / 2));
    let mut lines = Vec::new();
    let mut current = line[..indent].to_owned();
    let mut empty = true;
    for word in line.trim().split(' ') {
        if !empty && current.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut current, hang.clone()));
            empty = true;
        }
        if !empty {
            current.push(' ');
        }
        current += word;
        empty = false;
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_wrap(line: &str, width: usize, want: &[&str]) {
        assert_eq!(wrap(line, width), want);
    }

    #[test]
    fn long_lines_are_cut_at_spaces() {
        check_wrap("short", 20, &["short"]);
        check_wrap("  let a = b + c;", 12, &["  let a = b", "      + c;"]);
        check_wrap("averyverylongword x", 5, &["averyverylongword", "  x"]);
        check_wrap("", 5, &[""]);
    }

    #[test]
    fn items_are_found_around_lines() {
        let text = "//! Head.\n\nuse a;\n\n/// Doc.\n#[kernel(\n    a,\n)]\npub fn f(\n    x: u8,\n) {\n    \
                    one();\n\n    two();\n}\n\nfn g() {\n    three();\n}\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let wanted = BTreeSet::from([9, 12, 14, 18, 99]);
        assert_eq!(items(&lines, &wanted), [5..=15, 17..=19]);
    }
}
