//! Generated text: lines with indentation, each with the place in the author's source behind it.

use tessera_tile_ir::Loc;

/// Lines of generated code.
#[derive(Debug, Default)]
pub(crate) struct Text {
    lines: Vec<(Option<Loc>, String)>,
    indent: usize,
    at: Option<Loc>,
    /// The place that the last comment named.
    named: Option<(&'static str, u32)>,
}

impl Text {
    /// Code at some depth.
    pub(crate) fn indented(indent: usize) -> Self {
        Self { indent, ..Self::default() }
    }

    /// Says which op the next lines come from, in a comment where the source line is another.
    pub(crate) fn locate(&mut self, loc: Loc) {
        self.at = Some(loc);
        if self.named != Some((loc.file, loc.line)) {
            self.named = Some((loc.file, loc.line));
            self.line(format!("// {}", place(loc)));
        }
    }

    /// Adds a line, which may open or close blocks.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with('}') || line.starts_with(']') || line.starts_with(')') {
            self.indent = self.indent.saturating_sub(1);
        }
        let text = if line.is_empty() {
            String::new()
        } else {
            format!("{}{line}", "    ".repeat(self.indent))
        };
        self.lines.push((self.at, text));
        if line.ends_with('{') || line.ends_with('[') || line.ends_with('(') {
            self.indent += 1;
        }
    }

    /// Adds the lines of `text`.
    pub(crate) fn lines(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line.trim()));
    }

    /// Adds lines as they are.
    pub(crate) fn append(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// Each line with the op it comes from.
    pub(crate) fn located(&self) -> &[(Option<Loc>, String)] {
        &self.lines
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines.iter().try_for_each(|(_, line)| writeln!(f, "{line}"))
    }
}

/// File and line, the same however the file was included.
pub(crate) fn place(loc: Loc) -> String {
    format!("{}:{}", source_file(loc), loc.line)
}

/// The file of a place, without detours in its path.
pub(crate) fn source_file(loc: Loc) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in loc.file.split('/') {
        let turns_back = part == ".." && parts.last().is_some_and(|last| *last != "..");
        if turns_back {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// `rms_norm` as the name of a type: `RmsNorm`.
pub(crate) fn camel(name: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        let first = chars.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(chars).collect::<String>()
    };
    name.split(['_', '-', ' ', '.']).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_indent() {
        let mut text = Text::default();
        text.lines("for i in 0..4 {\nif a {\nb();\n} else {\nc();\n}\n}");
        let want =
            "for i in 0..4 {\n    if a {\n        b();\n    } else {\n        c();\n    }\n}\n";
        assert_eq!(text.to_string(), want);
        assert_eq!(camel("w_gemm"), "WGemm");
    }
}
