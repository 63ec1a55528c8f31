//! Where the time of a step goes, kernel by kernel.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tessera_lanes::exec::Watch;

/// Time and number of launches of each kernel.
#[derive(Debug, Default)]
pub(super) struct Profile(Mutex<BTreeMap<&'static str, (Duration, usize)>>);

impl Watch for Profile {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn launch(&self, kernel: &'static str, run: &mut dyn FnMut()) {
        let start = Instant::now();
        run();
        let time = start.elapsed();
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kernels.entry(kernel).or_default();
        *entry = (entry.0 + time, entry.1 + 1);
    }
}

impl Profile {
    /// Forgets what was seen.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Prints what was seen since the last time, of `seconds` in all.
    pub(super) fn print(&self, what: &str, seconds: f64) {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kernels: Vec<_> = std::mem::take(&mut *kernels).into_iter().collect();
        kernels.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
        eprintln!("\n{what}: {:.1} ms", seconds * 1e3);
        let mut outside = seconds;
        for (kernel, (time, launches)) in kernels {
            let time = time.as_secs_f64();
            outside -= time;
            let share = 100.0 * time / seconds;
            eprintln!("{:10.1} ms {share:5.1} % {launches:6} x {kernel}", time * 1e3);
        }
        eprintln!("{:10.1} ms {:5.1} % outside kernels", outside * 1e3, 100.0 * outside / seconds);
    }
}
