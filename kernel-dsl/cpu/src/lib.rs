//! Tile IR to Rust source: loops over lanes, calls of micro-kernels, one body for every
//! instruction set. Deterministic: the same kernel gives the same text.
