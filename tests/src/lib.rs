//! Fixtures that the tests and tools of several crates share.

pub mod script;
pub mod wire;
