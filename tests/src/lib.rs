//! Fixtures that the tests and tools of several crates share.

pub mod bench;
pub mod cases;
pub mod client;
pub mod engine;
pub mod generated;
pub mod golden;
pub mod kernels;
pub mod launches;
pub mod plot;
pub mod script;
pub mod sim;
pub mod stand_in;
pub mod tiny;
pub mod wire;
