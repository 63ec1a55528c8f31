//! Performs launches of generated kernels: checks the arguments, hands programs to threads, keeps
//! their scratch memory.

mod atomic;
mod bridge;
mod error;
mod scaled;
mod scratch;
mod shape;
mod stored;

pub use atomic::AtomicElem;
pub use bridge::*;
pub use error::{AssertFailed, LaunchError, no_variant};
pub use scaled::{
    PackedView, Quantized, ScaledBlock, decode_block, dot, scaled_float, scaled_int, whole_steps,
};
pub use scratch::{Scratch, Sizes, carve};
pub use shape::{Axis, Signature};
pub use stored::*;

use crate::isa::{AnyIsa, Isa, WithIsa};
use crate::pool::Pool;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A kernel with its arguments, ready to run program by program.
pub trait Program: Sync {
    /// Name of the kernel.
    const KERNEL: &'static str;
    /// Scratch memory that one program needs.
    const SIZES: Sizes;
    /// Runs the program at `id` of the grid. `#[inline(always)]`, as all below it.
    ///
    /// # Errors
    /// An `assert` of the kernel that does not hold.
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed>;
}

/// Sees every launch, for profiles.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Calls `run` once, which is a launch of `kernel`.
    fn launch(&self, kernel: &'static str, run: &mut dyn FnMut());
}

/// The threads, the instruction set and the scratch memory that launches share.
#[derive(Debug)]
pub struct Cpu {
    watch: Option<Arc<dyn Watch>>,
    isa: AnyIsa,
    pool: Pool,
    scratch: Vec<Mutex<Scratch>>,
    /// Words of quantized rows, by parameter of a launch.
    activations: [Mutex<Vec<i32>>; 4],
}

impl Cpu {
    /// Launches run on the threads of `pool`, with the instructions of `isa`.
    pub fn new(isa: AnyIsa, pool: Pool) -> Self {
        let scratch = (0..pool.threads()).map(|_| Mutex::default()).collect();
        Self { watch: None, isa, pool, scratch, activations: Default::default() }
    }

    /// The fastest instruction set there is, on the calling thread alone.
    pub fn of_caller() -> Self {
        Self::new(AnyIsa::best(), Pool::of_caller())
    }

    /// Lets `watch` see every launch from now on.
    pub fn watch(&mut self, watch: Arc<dyn Watch>) {
        self.watch = Some(watch);
    }

    /// The instruction set.
    pub fn isa(&self) -> AnyIsa {
        self.isa
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Runs every program of a grid; the first axis varies fastest. Each thread takes runs of
    /// neighbours.
    ///
    /// # Errors
    /// The assert that did not hold in the first program that has one. The others run on.
    pub fn launch<P: Program>(&self, grid: [i64; 3], program: &P) -> Result<(), LaunchError> {
        let Some(watch) = &self.watch else { return self.launch_unseen(grid, program) };
        let mut result = Ok(());
        watch.launch(P::KERNEL, &mut || result = self.launch_unseen(grid, program));
        result
    }

    fn launch_unseen<P: Program>(&self, grid: [i64; 3], program: &P) -> Result<(), LaunchError> {
        let extents = grid.map(|extent| usize::try_from(extent).unwrap_or(0));
        let programs = extents.iter().product::<usize>();
        let failed = Mutex::new(None);
        // A few chunks a thread, so that one that is held up does not hold up the launch.
        let grain = programs.div_ceil(4 * self.pool.threads()).max(1);
        self.pool.run(programs, grain, |range, thread| {
            let mut scratch = lock(&self.scratch[thread]);
            scratch.fit(P::SIZES);
            let run = RunRange { program, range, grid, scratch: &mut scratch };
            if let Err((id, what)) = self.isa.run(run) {
                let mut failed = lock(&failed);
                if failed.as_ref().is_none_or(|(first, _)| id < *first) {
                    *failed = Some((id, what));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((id, what)) => {
                let program = program_id(id, grid);
                Err(LaunchError::Assert { kernel: P::KERNEL, message: what.message, program })
            }
        }
    }
}

struct RunRange<'a, P> {
    program: &'a P,
    range: Range<usize>,
    grid: [i64; 3],
    scratch: &'a mut Scratch,
}

impl<P: Program> WithIsa for RunRange<'_, P> {
    type Output = Result<(), (usize, AssertFailed)>;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Self::Output {
        let mut at = program_id(self.range.start, self.grid);
        for id in self.range {
            if let Err(failed) = self.program.run(isa, at, self.scratch) {
                return Err((id, failed));
            }
            at = next_program(at, self.grid);
        }
        Ok(())
    }
}

/// The place in a grid of its `linear`th program.
#[inline(always)]
fn program_id(linear: usize, grid: [i64; 3]) -> [i64; 3] {
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

/// A thread that panicked leaves scratch memory that the next program overwrites anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
