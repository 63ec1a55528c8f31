//! Decides what each step runs: pure state machines with no device, no clock and no thread.

/// A point in time, in microseconds since some start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);
