//! Time as the server takes it: handed in, so that a test can own it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock and the calendar time; clones read the same one.
#[derive(Clone)]
pub struct Clock {
    monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    unix: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The machine's clock.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn system() -> Self {
        let start = Instant::now();
        Self {
            monotonic: Arc::new(move || start.elapsed()),
            // A clock set before 1970 reads as 1970.
            unix: Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        }
    }

    /// A clock that reads whatever `monotonic` and `unix` say.
    pub fn from_fns(
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
        unix: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { monotonic: Arc::new(monotonic), unix: Arc::new(unix) }
    }

    /// Time since some fixed moment; never runs backwards.
    pub fn now(&self) -> Duration {
        (self.monotonic)()
    }

    /// Whole seconds since 1970-01-01 UTC.
    pub fn unix_seconds(&self) -> u64 {
        (self.unix)().as_secs()
    }
}
