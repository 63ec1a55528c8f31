//! Runs the programs of a launch with the instructions of the CPU: the code of a kernel starts
//! here, once for each instruction set.
//!
//! All of it is methods of the kernel's own type. The compiler puts a method into the codegen unit
//! of the module that declares its type, so that a kernel in a module of its own is compiled again
//! only when it changes. A function with the kernel as a parameter would be put into the unit of
//! this module, with all other kernels.
#![expect(unsafe_code, reason = "calls code for the instruction set that a token proves")]

use super::{AssertFailed, Program, Scratch};
#[cfg(target_arch = "aarch64")]
use crate::isa::Neon;
use crate::isa::{AnyIsa, Isa, Scalar, compiled_for, features};
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512};
use std::ops::Range;

/// Programs of a grid that one thread runs one after the other.
pub(super) struct Part<'a> {
    pub(super) range: Range<usize>,
    pub(super) grid: [i64; 3],
    pub(super) scratch: &'a mut Scratch,
}

/// The first program with an assert that did not hold, if there is one.
type Ran = Result<(), (usize, AssertFailed)>;

/// A [`Program`], whichever it is.
pub(super) trait Runs: Sync {
    /// Runs programs until one fails.
    fn run_part(&self, isa: AnyIsa, part: Part<'_>) -> Ran;
}

impl<P: Program> Runs for P {
    fn run_part(&self, isa: AnyIsa, part: Part<'_>) -> Ran {
        match isa {
            // SAFETY: no features are asked for.
            AnyIsa::Scalar(isa) => unsafe { self.run_with(isa, part) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` exists only because `detect` saw the features of its type.
            AnyIsa::Avx2(isa) => unsafe { self.run_with(isa, part) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` exists only because `detect` saw the features of its type.
            AnyIsa::Avx512(isa) => unsafe { self.run_with(isa, part) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: `isa` exists only because `detect` saw the features of its type.
            AnyIsa::Neon(isa) => unsafe { self.run_with(isa, part) },
        }
    }
}

/// A program compiled for an instruction set.
trait RunsWith<I> {
    /// Runs programs until one fails.
    ///
    /// # Safety
    /// The CPU has the features that `detect` of `I` looks for.
    unsafe fn run_with(&self, isa: I, part: Part<'_>) -> Ran;
}

macro_rules! runs_with {
    ($isa:ident) => {
        impl<P: Program> RunsWith<$isa> for P {
            compiled_for! { $isa;
                unsafe fn run_with(&self, isa: $isa, part: Part<'_>) -> Ran {
                    run_each(self, isa, part)
                }
            }
        }
    };
}

runs_with!(Scalar);
#[cfg(target_arch = "x86_64")]
runs_with!(Avx2);
#[cfg(target_arch = "x86_64")]
runs_with!(Avx512);
#[cfg(target_arch = "aarch64")]
runs_with!(Neon);

#[inline(always)]
fn run_each<I: Isa>(program: &impl Program, isa: I, part: Part<'_>) -> Ran {
    let mut at = program_id(part.range.start, part.grid);
    for id in part.range {
        if let Err(failed) = program.run(isa, at, part.scratch) {
            return Err((id, failed));
        }
        at = next_program(at, part.grid);
    }
    Ok(())
}

/// The place in a grid of its `linear`th program.
#[inline(always)]
pub(super) fn program_id(linear: usize, grid: [i64; 3]) -> [i64; 3] {
    let linear = i64::try_from(linear).expect("a grid has fewer than 2^63 programs");
    let [x, y, _] = grid.map(|extent| extent.max(1));
    [linear % x, linear / x % y, linear / x / y]
}

/// The place after `at`, without a division.
#[inline(always)]
fn next_program([x, y, z]: [i64; 3], grid: [i64; 3]) -> [i64; 3] {
    if x + 1 < grid[0] {
        [x + 1, y, z]
    } else if y + 1 < grid[1] {
        [0, y + 1, z]
    } else {
        [0, 0, z + 1]
    }
}
