//! HTTP/1.1: connections, routes, bodies and event streams.
//!
//! A request is checked and tokenized off the async threads, handed to the engine, and its events
//! become text in one place for streamed and whole answers alike. A dropped response drops the
//! engine's receivers, which aborts the request.

mod body;
mod framing;
mod generate;
mod prepare;
mod routes;
mod server;
mod sse;

pub use server::{Server, ServerConfig, ServerParts, ShutdownHandle};
