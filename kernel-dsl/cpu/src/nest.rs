//! Loops over a tile, and the statements at each depth of them.

use crate::text::Text;
use std::collections::HashMap;
use tessera_tile_ir::Value;

/// An index: its text, how deep in the loops it is known, and whether it is the first of sixteen
/// that go to the lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ix {
    pub(crate) text: String,
    pub(crate) level: usize,
    pub(crate) lane: bool,
}

impl Ix {
    pub(crate) fn zero() -> Self {
        Self { text: "0".to_owned(), level: 0, lane: false }
    }

    /// This index plus a constant.
    pub(crate) fn plus(&self, offset: usize) -> Self {
        match (offset, self.text.as_str()) {
            (0, _) => self.clone(),
            (_, "0") => Self { text: offset.to_string(), ..self.clone() },
            _ => Self { text: format!("({} + {offset})", self.text), ..self.clone() },
        }
    }

    /// The index of one lane, by the variable of a closure.
    pub(crate) fn lane(&self) -> Self {
        if !self.lane {
            return self.clone();
        }
        let text = if self.text == "0" { "l".to_owned() } else { format!("({} + l)", self.text) };
        Self { text, level: self.level, lane: false }
    }
}

/// Place of an element in a tile with rows `stride` apart.
pub(crate) fn place(r: &Ix, c: &Ix, stride: usize) -> String {
    match (r.text.as_str(), c.text.as_str()) {
        ("0", c) => c.to_owned(),
        (r, "0") => format!("{r} * {stride}"),
        (r, c) => format!("{r} * {stride} + {c}"),
    }
}

/// Two loops, one inside the other.
#[derive(Debug)]
pub(crate) struct Nest {
    /// Statements outside, in the outer loop and in the inner one.
    pub(crate) levels: [Vec<String>; 3],
    /// Statements of the outer loop around the inner one.
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
    /// Names of what has been computed.
    pub(crate) known: HashMap<(Value, String, String), String>,
    heads: [Option<String>; 2],
    pub(crate) r: Ix,
    pub(crate) c: Ix,
}

impl Nest {
    /// No loop: a scalar.
    pub(crate) fn flat() -> Self {
        Self::with(Ix::zero(), Ix::zero(), [None, None])
    }

    /// Rows outside, columns inside, sixteen columns at a time if `lanes`.
    pub(crate) fn by_rows([rows, cols]: [usize; 2], lanes: bool) -> Self {
        let (r, outer) = counter("r", rows, 1, false);
        let (c, inner) = counter("c", cols, 2, lanes);
        Self::with(r, c, [outer, inner])
    }

    /// Columns outside, rows inside.
    pub(crate) fn by_cols([rows, cols]: [usize; 2], lanes: bool) -> Self {
        let (c, outer) = counter("c", cols, 1, lanes);
        let (r, inner) = counter("r", rows, 2, false);
        Self::with(r, c, [outer, inner])
    }

    fn with(r: Ix, c: Ix, heads: [Option<String>; 2]) -> Self {
        Self {
            levels: Default::default(),
            before: Vec::new(),
            after: Vec::new(),
            known: HashMap::new(),
            heads,
            r,
            c,
        }
    }

    /// Adds a statement of the innermost depth that its indices are known at.
    pub(crate) fn push(&mut self, level: usize, statement: String) {
        self.levels[level].push(statement);
    }

    /// Writes the loops.
    pub(crate) fn write(self, text: &mut Text) {
        let [outside, outer, inner] = self.levels;
        outside.iter().for_each(|line| text.line(line));
        if let Some(head) = &self.heads[0] {
            text.line(head);
        }
        outer.iter().chain(&self.before).for_each(|line| text.line(line));
        if let Some(head) = &self.heads[1] {
            text.line(head);
        }
        inner.iter().for_each(|line| text.line(line));
        if self.heads[1].is_some() {
            text.line("}");
        }
        self.after.iter().for_each(|line| text.line(line));
        if self.heads[0].is_some() {
            text.line("}");
        }
    }
}

/// A loop variable and the head of its loop; none where there is one round.
fn counter(name: &str, extent: usize, level: usize, lanes: bool) -> (Ix, Option<String>) {
    let step = if lanes { 16 } else { 1 };
    if extent <= step && extent > 0 {
        return (Ix { text: "0".to_owned(), level: 0, lane: lanes }, None);
    }
    let head = match lanes {
        true => format!("for {name} in (0..{extent}).step_by(16) {{"),
        false => format!("for {name} in 0..{extent} {{"),
    };
    (Ix { text: name.to_owned(), level, lane: lanes }, Some(head))
}
