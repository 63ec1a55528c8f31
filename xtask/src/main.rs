//! `cargo xtask ...`: whatever a developer of Tessera repeats.
fn main() {}
