//! Threads that share the work of one launch: no allocation, no lock held while they work, and
//! never a barrier that spins.
//!
//! A launch is a range that is handed out in chunks by one counter. Whoever launches works too, and
//! waits only for workers that have *joined*: one that the system has not woken by the time the
//! chunks are gone is shut out, so a core that another process holds delays nothing. A launch and
//! its workers meet in one word:
//!
//! ```text
//! | generation | SHUT_DOWN | WAITING | OPEN | joined, 16 bits |
//! ```
//! The launcher writes the job, then opens the word under a new generation; a worker joins by adding
//! one while the word is open, and reads the job only after that; the launcher closes the word and
//! returns when none is joined. So a job is read while its launcher still stands on its frame.

use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Most threads of a pool.
pub const MAX_THREADS: usize = 1 << 10;

const JOINED: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
/// The launcher sleeps until the last worker that joined has left.
const WAITING: u64 = 1 << 17;
const SHUT_DOWN: u64 = 1 << 18;
const GENERATION: u64 = 1 << 19;

/// Looks at the word before a thread sleeps: 1 to 4 microseconds, by CPU. To wake a thread takes
/// both sides as long, so a worker is still awake for the next launch of a step; and another process
/// waits no longer than that for the core.
const LOOKS: u32 = 64;

/// What one chunk is computed by: its part of the range, and the index of the thread.
type Chunk<'a> = dyn Fn(Range<usize>, usize) + Sync + 'a;

/// A fixed number of threads, the launching one included.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether a launch has the workers.
    busy: AtomicBool,
}

/// What a worker may do with a launch.
#[derive(Clone, Copy)]
struct Job {
    chunk: *const Chunk<'static>,
    len: usize,
    grain: usize,
}

struct Shared {
    word: Line<AtomicU64>,
    /// Chunks handed out.
    next: Line<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    looks: u32,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Held by a launcher that is about to sleep, and by the worker that wakes it.
    sleep: Mutex<()>,
    left: Condvar,
}

/// Alone in its cache lines, the neighbour that is prefetched with it included.
#[repr(align(128))]
struct Line<T>(T);

#[expect(unsafe_code, reason = "a job is shared by the protocol of the module's head")]
// SAFETY: all but `job` is `Sync`. `job` is written by the launcher that holds `Pool::busy`, while
// the word is closed and none is joined; it is read by workers that have joined an open word. The
// pointer in it leads to a `Sync` function.
unsafe impl Sync for Shared {}

#[expect(unsafe_code, reason = "a job is shared by the protocol of the module's head")]
// SAFETY: as above; no part of it belongs to a thread.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("word", &self.word.0).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts `threads - 1` workers; the launching thread is the other one.
    ///
    /// # Errors
    /// That of the system, if it does not start a thread; and if `threads` is 0 or above
    /// [`MAX_THREADS`].
    pub fn new(threads: usize) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // With more threads than cores, whoever looks keeps another thread of the same launch out.
        let looks = if threads > cores { 0 } else { LOOKS };
        Self::with_looks(threads, looks)
    }

    /// A pool whose threads look `looks` times for work before they sleep, to measure.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_looks(threads: usize, looks: u32) -> io::Result<Self> {
        if !(1..=MAX_THREADS).contains(&threads) {
            let what = format!("{threads} threads, expected 1 to {MAX_THREADS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut pool = Self::with_shared(looks);
        for index in 1..threads {
            let shared = pool.shared.clone();
            let worker = thread::Builder::new().name(format!("launch-{index}"));
            pool.workers.push(worker.spawn(move || shared.work(index))?);
        }
        Ok(pool)
    }

    /// The launching thread alone; starts none.
    pub fn of_caller() -> Self {
        Self::with_shared(0)
    }

    fn with_shared(looks: u32) -> Self {
        let shared = Shared {
            word: Line(AtomicU64::new(0)),
            next: Line(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            looks,
            panic: Mutex::new(None),
            sleep: Mutex::new(()),
            left: Condvar::new(),
        };
        Self { shared: Arc::new(shared), workers: Vec::new(), busy: AtomicBool::new(false) }
    }

    /// Threads that a launch may use, the launching one included: `thread` of [`Pool::run`] is below.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `chunk(part, thread)` with parts that together are `0..len`, each of `grain` elements
    /// but the last, and returns when all are done. No two calls of a launch at once have the same
    /// `thread`.
    ///
    /// A pool of one thread, a range of one chunk, and a launch made while another has the workers
    /// (of another thread, or from within a chunk) are one plain call `chunk(0..len, 0)`.
    ///
    /// # Panics
    /// If `grain` is 0; and with what a chunk panicked with, after the other threads are done. A
    /// thread that panics takes no more chunks; if all do, or none joined, some are left undone.
    pub fn run<F: Fn(Range<usize>, usize) + Sync>(&self, len: usize, grain: usize, chunk: F) {
        assert!(grain > 0, "chunks of no elements");
        if len <= grain || self.workers.is_empty() || self.busy.swap(true, Acquire) {
            if len > 0 {
                chunk(0..len, 0);
            }
            return;
        }
        let job = Job { chunk: erase(&chunk), len, grain };
        self.publish(job);
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_chunks(job, 0)));
        self.shared.close();
        let others = lock(&self.shared.panic).take();
        self.busy.store(false, Release);
        if let Some(payload) = own.err().or(others) {
            resume_unwind(payload);
        }
    }

    /// Opens the word for `job` and wakes as many workers as there are other chunks.
    fn publish(&self, job: Job) {
        let shared = &*self.shared;
        #[expect(unsafe_code, reason = "see the module's head")]
        // SAFETY: `run` holds `busy`, and the launch before waited until none was joined, so nobody
        // reads `job` until the word is opened below.
        unsafe {
            *shared.job.get() = Some(job);
        }
        shared.next.0.store(0, Relaxed);
        let generation = (shared.word.0.load(Relaxed) / GENERATION).wrapping_add(1);
        shared.word.0.store(generation.wrapping_mul(GENERATION) | OPEN, Release);
        let others = job.len.div_ceil(job.grain) - 1;
        self.workers.iter().take(others).for_each(|worker| worker.thread().unpark());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.word.0.fetch_or(SHUT_DOWN, Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of chunks, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, index: usize) {
        let mut seen = 0;
        let mut looks = self.looks;
        loop {
            let word = self.word.0.load(Acquire);
            let is_new = word / GENERATION != seen && word & OPEN != 0;
            if is_new {
                if self.word.0.compare_exchange(word, word + 1, Acquire, Relaxed).is_ok() {
                    seen = word / GENERATION;
                    looks = self.looks;
                    self.serve(index);
                }
            } else if word & SHUT_DOWN != 0 {
                return;
            } else if looks > 0 {
                looks -= 1;
                std::hint::spin_loop();
            } else {
                thread::park();
                looks = self.looks;
            }
        }
    }

    /// Works on the job that was joined, then leaves it.
    fn serve(&self, index: usize) {
        #[expect(unsafe_code, reason = "see the module's head")]
        // SAFETY: this worker has joined an open word: the job was written before it was opened,
        // and none is written until this worker has left.
        let job = unsafe { *self.job.get() };
        if let Some(job) = job {
            let done = catch_unwind(AssertUnwindSafe(|| self.take_chunks(job, index)));
            if let Err(payload) = done {
                lock(&self.panic).get_or_insert(payload);
            }
        }
        let before = self.word.0.fetch_sub(1, AcqRel);
        if before & JOINED == 1 && before & WAITING != 0 {
            // The launcher holds the lock from setting WAITING until it sleeps.
            drop(lock(&self.sleep));
            self.left.notify_one();
        }
    }

    fn take_chunks(&self, job: Job, thread: usize) {
        let chunks = job.len.div_ceil(job.grain);
        #[expect(unsafe_code, reason = "see the module's head")]
        // SAFETY: the launcher's `run` has not returned: it takes chunks itself, or waits for this
        // worker, which has joined. So the function it borrows is alive.
        let chunk = unsafe { &*job.chunk };
        loop {
            let index = self.next.0.fetch_add(1, Relaxed);
            if index >= chunks {
                return;
            }
            let start = index * job.grain;
            chunk(start..job.len.min(start.saturating_add(job.grain)), thread);
        }
    }

    /// Lets no more workers join and waits for those that have.
    fn close(&self) {
        let mut word = self.word.0.fetch_and(!OPEN, AcqRel);
        for _ in 0..self.looks {
            if word & JOINED == 0 {
                return;
            }
            std::hint::spin_loop();
            word = self.word.0.load(Acquire);
        }
        if word & JOINED == 0 {
            return;
        }
        let mut guard = lock(&self.sleep);
        word = self.word.0.fetch_or(WAITING, AcqRel);
        while word & JOINED != 0 {
            guard = self.left.wait(guard).unwrap_or_else(PoisonError::into_inner);
            word = self.word.0.load(Acquire);
        }
    }
}

/// The function without its lifetime; [`Pool::run`] returns only when nobody will call it again.
fn erase<'a>(chunk: &'a Chunk<'a>) -> *const Chunk<'static> {
    let chunk: *const Chunk<'a> = chunk;
    #[expect(unsafe_code, reason = "see the module's head")]
    // SAFETY: both are wide pointers of one trait; what it may be used for is said at its use.
    unsafe {
        std::mem::transmute::<*const Chunk<'a>, *const Chunk<'static>>(chunk)
    }
}

/// Nothing behind these locks is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each element was visited.
    fn visits(pool: &Pool, len: usize, grain: usize) -> Vec<usize> {
        let visits: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
        pool.run(len, grain, |part, thread| {
            assert!(thread < pool.threads() && !part.is_empty());
            part.for_each(|i| {
                visits[i].fetch_add(1, Relaxed);
            });
        });
        visits.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_element_is_visited_once() {
        for threads in 1..=5 {
            let pool = Pool::new(threads).unwrap();
            for len in 0..40 {
                for grain in [1, 2, 7, 39, 100] {
                    assert_eq!(visits(&pool, len, grain), vec![1; len], "{threads} {len} {grain}");
                }
            }
        }
    }

    #[test]
    fn the_largest_grain_does_not_overflow() {
        assert_eq!(visits(&Pool::new(2).unwrap(), 3, usize::MAX), [1; 3]);
    }

    #[test]
    fn a_job_is_never_seen_after_its_launch() {
        // Each launch borrows its own counter; a worker that came late would hit a dead one, or the
        // counter of another launch. More threads than cores, with and without looking.
        for looks in [0, 1, LOOKS] {
            let pool = Pool::with_looks(4, looks).unwrap();
            for round in 0..20_000_usize {
                let seen = Box::new(AtomicUsize::new(0));
                let len = 2 + round % 7;
                pool.run(len, 1, |part, _| {
                    seen.fetch_add(part.len() * round, Relaxed);
                });
                assert_eq!(seen.into_inner(), len * round);
            }
        }
    }

    #[test]
    fn a_thread_index_has_one_user_at_a_time() {
        let pool = Pool::with_looks(4, 0).unwrap();
        let in_use: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
        for _ in 0..2_000 {
            pool.run(16, 1, |_, thread| {
                assert!(!in_use[thread].swap(true, AcqRel));
                thread::yield_now();
                in_use[thread].store(false, Release);
            });
        }
    }

    #[test]
    fn workers_join_in() {
        let pool = Pool::new(2).unwrap();
        // The launcher's chunk ends only when a worker has taken the other one.
        let begun = AtomicUsize::new(0);
        pool.run(2, 1, |_, _| {
            begun.fetch_add(1, AcqRel);
            while begun.load(Acquire) < 2 {
                thread::yield_now();
            }
        });
        assert_eq!(begun.into_inner(), 2);
    }

    #[test]
    fn a_panic_reaches_the_launcher_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for bad in 0..8 {
            let done = AtomicUsize::new(0);
            let run = || {
                pool.run(8, 1, |part, _| {
                    assert!(part.start != bad, "chunk {bad}");
                    done.fetch_add(1, Relaxed);
                });
            };
            let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(payload.downcast_ref::<String>().unwrap(), &format!("chunk {bad}"));
            assert!(done.into_inner() < 8);
            assert_eq!(visits(&pool, 9, 2), [1; 9]);
        }
    }

    #[test]
    fn a_launch_within_a_launch_is_a_plain_call() {
        let pool = Pool::new(2).unwrap();
        let sum = AtomicUsize::new(0);
        pool.run(4, 1, |_, _| {
            pool.run(10, 1, |part, thread| {
                assert_eq!((part.clone(), thread), (0..10, 0));
                sum.fetch_add(part.len(), Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 40);
    }

    #[test]
    fn threads_that_share_a_pool_do_not_meet() {
        let pool = Pool::new(3).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..2_000).for_each(|_| assert_eq!(visits(&pool, 6, 1), [1; 6])));
            }
        });
    }

    #[test]
    fn the_number_of_threads_is_checked() {
        assert!(Pool::new(0).is_err() && Pool::new(MAX_THREADS + 1).is_err());
        assert_eq!(Pool::of_caller().threads(), 1);
    }
}
