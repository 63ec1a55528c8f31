//! Executes PTX on the host, for tests: correct, and above all a detector of bugs.
//!
//! A [`Module`] is parsed from text, a [`Machine`] has memory and launches its entries. A launch
//! returns a [`Profile`], or the first [`Fault`]: an access outside its allocation, a race, a copy
//! that nobody waited for, a barrier that not all can reach.
//!
//! It knows the PTX that our compiler writes and a margin around it, and refuses the rest by name.
//! It does not know caches, occupancy or time.

#![allow(
    clippy::cast_possible_truncation,
    reason = "registers hold 64 bits and instructions cut them to their width; that is the machine"
)]

mod body;
mod clock;
mod decode;
mod exec;
mod fault;
mod global;
mod lex;
mod machine;
mod number;
mod parse;
mod profile;
mod program;
mod syntax;
mod tensor;
mod types;
mod written;

pub use fault::{Fault, FaultKind, MemoryError, Place};
pub use machine::{Config, Launch, Machine, Schedule};
pub use parse::ParseError;
pub use profile::{Counts, Line, Profile};
pub use program::{Class, Entry, Module, Param};
