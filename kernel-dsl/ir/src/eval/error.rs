//! What went wrong while a kernel was evaluated.

use crate::error::Loc;
use crate::launch::ShapeError;
use std::fmt;

/// A launch that the evaluator refused or stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalError {
    /// Label of the kernel.
    pub kernel: String,
    /// What went wrong.
    pub fault: Box<Fault>,
    /// The author's op, and the program that ran it; none if no program had started.
    pub at: Option<(Loc, Vec<i64>)>,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            // It names the kernel itself.
            None if matches!(*self.fault, Fault::Shape(_)) => write!(f, "{}", self.fault),
            None => write!(f, "{}: {}", self.kernel, self.fault),
            Some((loc, program)) => {
                write!(f, "{}: program {program:?}: {}\n  --> {loc}", self.kernel, self.fault)
            }
        }
    }
}

impl std::error::Error for EvalError {}

/// Why.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum Fault {
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("{got} arguments for {want} parameters")]
    NumArgs { got: usize, want: usize },
    #[error("`{arg}` holds {got}, expected {want}")]
    Kind { arg: String, got: String, want: String },
    #[error("`{arg}` has strides {strides:?} for shape {shape:?}: {why}")]
    Strides { arg: String, shape: Vec<usize>, strides: Vec<usize>, why: &'static str },
    #[error("the grid has {got} programs along axis {axis}")]
    Grid { axis: usize, got: i64 },
    #[error("the grid has too many programs: {0:?}")]
    GridSize(Vec<i64>),
    #[error("assertion failed: {0}")]
    Assert(String),
    #[error("{op} of {operands} overflows {elem}")]
    Overflow { op: &'static str, operands: String, elem: String },
    #[error("NaN has no code in {0}")]
    NoNan(&'static str),
    #[error("race: it {does} `{arg}`{idx:?}, which {other} {did}")]
    Race { arg: String, idx: Vec<usize>, does: &'static str, other: String, did: &'static str },
    #[error("one op writes `{arg}`{idx:?} more than once")]
    WrittenTwice { arg: String, idx: Vec<usize> },
}
