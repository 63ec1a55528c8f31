//! Where an op came from, and what the author did wrong there.

use std::fmt;
use std::panic::Location;

/// A place in the author's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the three parts of a place")]
pub struct Loc {
    pub file: &'static str,
    pub line: u32,
    pub column: u32,
}

impl Loc {
    /// The place that called into the language.
    #[track_caller]
    pub fn caller() -> Self {
        let at = Location::caller();
        Self { file: at.file(), line: at.line(), column: at.column() }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A mistake in a kernel that only running its builder can find: a shape, an axis, a misuse of a
/// stored tile. Prints as rustc prints its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// Stable code, `K001` and on; `docs/howto/op.md` lists them.
    pub code: &'static str,
    /// What is wrong, in the author's words.
    pub message: String,
    /// The token at fault.
    pub loc: Loc,
    /// What else to look at.
    pub notes: Vec<String>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}\n  --> {}", self.code, self.message, self.loc)?;
        for note in &self.notes {
            write!(f, "\n   = note: {note}")?;
        }
        Ok(())
    }
}

impl std::error::Error for BuildError {}
