//! The text form of a kernel: one op a line, every type stated, places in the source kept.
//!
//! ```text
//! kernel double formats("int4-g32") consts(BM = 4) dims(M, N) loc("src/double.rs":3:1) {
//!   param x: in f32[M, N + 8]
//!   param y: out f32[M, N + 8]
//!   grid {
//!     %0: i64 = dim M
//!     yield (%0)
//!   }
//!   body {
//!     %1: i64 = program_id 0
//!     %2: i64 = const 0
//!     %3: f32[16] = load x (%1, %2)
//!     %4: f32[16] = add (%3, %3)
//!     store y (%1, %2, %4) loc("src/double.rs":5:10)
//!     yield
//!   }
//! }
//! ```
//! A region with arguments starts `{|%5: i64, %6: f32[4]|`. Without a `loc`, the place is that in
//! the text itself. Formats are found by name among those the reader is given.

mod lex;
mod names;
mod parse;
mod print;

pub use parse::parse;

use crate::format::{Element, Format};

/// The number formats that a text may name.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the two kinds")]
pub struct Names<'a> {
    pub elements: &'a [Element],
    pub formats: &'a [&'static Format],
}

/// Where a text is not of the text form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {fault}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong there.
    pub fault: ParseFault,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum ParseFault {
    #[error("expected {want}, found {got}")]
    Expected { got: String, want: String },
    #[error("`%{0}` is no value: it has a number")]
    Value(String),
    #[error("a quoted text has no end")]
    OpenText,
    #[error("no character is `{0}`")]
    Escape(String),
    #[error("%{0} is not defined")]
    Undefined(usize),
    #[error("regions are nested deeper than {0}")]
    Depth(usize),
    #[error("%{0} is defined twice")]
    DefinedTwice(usize),
}
