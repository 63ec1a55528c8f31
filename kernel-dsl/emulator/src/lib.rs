//! Executes PTX on the host, for tests: correct, and above all a detector of bugs.
//!
//! A [`Module`] is parsed from text, a [`Machine`] has memory and launches its entries. A launch
//! returns a [`Profile`], or the first [`Fault`]: an access outside its allocation, a race, a copy
//! that nobody waited for, a barrier that not all can reach.
//!
//! ```
//! use tessera_emulator::{Config, Launch, Machine, Module};
//!
//! let module = Module::parse(
//!     ".version 9.0
//!      .target sm_90a
//!      .address_size 64
//!      .visible .entry double(.param .u64 values)
//!      {
//!          .reg .b32 %t, %v;
//!          .reg .b64 %p, %at;
//!          ld.param.u64 %p, [values];
//!          mov.u32 %t, %tid.x;
//!          mul.wide.u32 %at, %t, 4;
//!          add.s64 %p, %p, %at;
//!          ld.global.u32 %v, [%p];
//!          shl.b32 %v, %v, 1;
//!          st.global.u32 [%p], %v;
//!          ret;
//!      }",
//! )?;
//! let mut machine = Machine::new(Config::default());
//! let values = machine.alloc(128, 256)?;
//! machine.fill(values, 1, 128)?;
//! let params = values.to_le_bytes();
//! let launch = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0, params: &params };
//! let profile = machine.launch(&module, "double", &launch)?;
//! let mut first = [0; 4];
//! machine.read(values, &mut first)?;
//! assert_eq!((first, profile.total.global_sectors), ([2; 4], 8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod op;
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
