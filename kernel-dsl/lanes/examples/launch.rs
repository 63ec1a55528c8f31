//! What a launch costs: an empty one, and one of known work, on one and two threads, awake and
//! asleep, alone and beside a process that wants every core.
//!
//! `cargo run --release -p tessera-lanes --example launch`

use std::hint::black_box;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tessera_lanes::Pool;

const LAUNCHES: usize = 2_000;
/// Looks at the word before a thread sleeps.
const LOOKS: [u32; 5] = [0, 16, 64, 256, 1024];

fn main() -> io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("spin") {
        loop {
            std::hint::spin_loop();
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{threads} cores; microseconds a launch, median and p95 of {LAUNCHES}");
    println!("work: a loop of 40 us on one thread, in chunks of 5 us; gap: the launcher is busy");
    println!("for 20 us between launches, which is when workers fall asleep\n");
    table(threads)?;
    let mut neighbours = Neighbours::start(threads)?;
    println!("\nbeside {threads} processes that spin");
    table(threads)?;
    neighbours.stop()
}

fn table(threads: usize) -> io::Result<()> {
    println!("{:<22} {:>15} {:>15} {:>15} {:>15}", "", "empty", "empty, gap", "work", "work, gap");
    row("1 thread", &Pool::of_caller());
    for looks in LOOKS {
        row(&format!("{threads} threads, {looks} looks"), &Pool::with_looks(threads, looks)?);
    }
    row(&format!("{threads} threads, as served"), &Pool::new(threads)?);
    Ok(())
}

fn row(name: &str, pool: &Pool) {
    let unit = calibrated();
    let empty = || pool.run(8, 1, |part, _| _ = black_box(part));
    let work = || pool.run(8, 1, |part, _| part.for_each(|_| busy(unit)));
    let gap = || busy(4 * unit);
    let cells =
        [measure(empty, || {}), measure(empty, gap), measure(work, || {}), measure(work, gap)];
    print!("{name:<22}");
    cells.iter().for_each(|(median, p95)| print!(" {median:>7.2} {p95:>7.2}"));
    println!();
}

/// Median and 95th percentile of a launch, in microseconds.
fn measure(launch: impl Fn(), gap: impl Fn()) -> (f64, f64) {
    (0..100).for_each(|_| launch());
    let mut times: Vec<f64> = (0..LAUNCHES)
        .map(|_| {
            gap();
            micros(&launch)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[LAUNCHES / 2], times[LAUNCHES * 95 / 100])
}

/// Iterations of [`busy`] that take 5 microseconds when nothing disturbs.
fn calibrated() -> u64 {
    let best = |n| (0..50).map(|_| micros(|| busy(n))).fold(f64::INFINITY, f64::min);
    let mut iterations = 1000;
    while best(iterations) < 5.0 {
        iterations += iterations / 16;
    }
    iterations
}

fn busy(iterations: u64) {
    (0..iterations).for_each(|i| _ = black_box(i));
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn micros(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64() * 1e6
}

/// Processes that want a core each.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start(num: usize) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let start = |_| Command::new(&program).arg("spin").spawn();
        let children = (0..num).map(start).collect::<io::Result<_>>()?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(Self(children))
    }

    fn stop(&mut self) -> io::Result<()> {
        self.0
            .drain(..)
            .try_for_each(|mut child| child.kill().and_then(|()| child.wait().map(drop)))
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        // Nothing is left to do about a child that does not end.
        let _ = self.stop();
    }
}
