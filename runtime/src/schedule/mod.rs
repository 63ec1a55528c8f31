//! Decides what each step runs: pure state machines with no device, no clock and no thread.
