//! The HTTP and command-line face of Tessera. It alone knows JSON requests, flags and environment
//! variables; it knows nothing of pages, formats or schedules beyond what it passes on.

pub mod api;
pub mod cli;
pub mod clock;
pub mod http;
pub mod metrics;
pub mod serve;
pub mod text;
