//! `cargo xtask build-kernels`: PTX of every kernel, assembled, measured and bundled.
//!
//! The assembler and the disassembler are NVIDIA's, as wheels on PyPI; both run without a GPU. They
//! are never committed, and without them everything but what only they know is still made: the
//! report then says "not assembled". Nothing here launches a kernel.

pub mod arch;
pub mod assemble;
pub mod baseline;
pub mod build;
pub mod bundle;
pub mod by_hand;
pub mod diagnose;
pub mod emulated;
pub mod explain;
pub mod facts;
pub mod generate;
pub mod probe;
pub mod ptxas;
pub mod report;
pub mod sass;
pub mod toolchain;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, shown only where that is a terminal.
pub fn bar(length: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}
