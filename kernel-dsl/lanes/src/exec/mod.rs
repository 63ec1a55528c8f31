//! Performs launches of generated kernels: checks the arguments, hands programs to threads, keeps
//! their scratch memory.

mod atomic;
mod bridge;
mod error;
mod run;
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

use crate::isa::{AnyIsa, Isa};
use crate::pool::Pool;
use run::{Part, Runs, program_id};
use std::fmt;
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
    #[inline]
    pub fn launch<P: Program>(&self, grid: [i64; 3], program: &P) -> Result<(), LaunchError> {
        self.launch_any(&Launch { kernel: P::KERNEL, sizes: P::SIZES, grid, programs: program })
    }

    fn launch_any(&self, launch: &Launch<'_>) -> Result<(), LaunchError> {
        let Some(watch) = &self.watch else { return self.launch_unseen(launch) };
        let mut result = Ok(());
        watch.launch(launch.kernel, &mut || result = self.launch_unseen(launch));
        result
    }

    fn launch_unseen(&self, launch: &Launch<'_>) -> Result<(), LaunchError> {
        let &Launch { kernel, sizes, grid, programs } = launch;
        let extents = grid.map(|extent| usize::try_from(extent).unwrap_or(0));
        let len = extents.iter().product::<usize>();
        let failed = Mutex::new(None);
        // A few chunks a thread, so that one that is held up does not hold up the launch.
        let grain = len.div_ceil(4 * self.pool.threads()).max(1);
        self.pool.run(len, grain, |range, thread| {
            let mut scratch = lock(&self.scratch[thread]);
            scratch.fit(sizes);
            let part = Part { range, grid, scratch: &mut scratch };
            if let Err((id, what)) = programs.run_part(self.isa, part) {
                let mut failed = lock(&failed);
                if failed.as_ref().is_none_or(|(first, _)| id < *first) {
                    *failed = Some((id, what));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((id, AssertFailed { message })) => {
                Err(LaunchError::Assert { kernel, message, program: program_id(id, grid) })
            }
        }
    }
}

/// A grid of programs. What performs it does not depend on the kernel, so that it is compiled once.
struct Launch<'a> {
    kernel: &'static str,
    sizes: Sizes,
    grid: [i64; 3],
    programs: &'a dyn Runs,
}

/// A thread that panicked leaves scratch memory that the next program overwrites anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
