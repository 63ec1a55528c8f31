//! Tile IR to Rust source: loops over lanes, calls of micro-kernels, one body for every
//! instruction set. Deterministic: the same kernel gives the same text.
//!
//! The generated text has no unsafe code and needs nothing but the crate `tessera_lanes`. It
//! computes as the f64 evaluator of the IR says, in f32, with the same bits on every instruction
//! set and for any number of threads.

mod class;
mod codecs;
mod dots;
mod entry;
mod explain;
mod flow;
mod generate;
mod lane;
mod memory;
mod nest;
mod plan;
mod reduce;
mod scalar;
mod text;

pub use explain::{CodeLine, Made, SourceLine, explain};

use crate::entry::Variant;
use crate::text::Text;
use std::collections::BTreeMap;
use tessera_tile_ir::{BuildError, Kernel};

/// Rust source of entries, each given by its variants in order of preference: a launch takes the
/// first that is built for the formats of its arguments and whose extents they fit.
///
/// The text is a module's content: it belongs into a file that is included by
/// `#[path] mod` or `include!`.
///
/// # Errors
/// What this target has no code for, at the author's place.
pub fn source(entries: &[Vec<Kernel>]) -> Result<String, Vec<BuildError>> {
    let mut errors = Vec::new();
    let mut text = Text::default();
    let (mut elements, mut formats) = (BTreeMap::new(), BTreeMap::new());
    for kernels in entries {
        let mut variants = Vec::new();
        for kernel in kernels {
            match Variant::generate(kernel) {
                Ok(variant) => variants.push(variant),
                Err(found) => errors.extend(found),
            }
        }
        for variant in &variants {
            elements.extend(variant.codecs.iter().map(|(name, element)| (name.clone(), *element)));
            formats.extend(variant.formats.iter().map(|(name, format)| (*name, *format)));
        }
        entry::entry(&variants, &mut text);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut head = Text::default();
    head.line("// Generated from tile IR by tessera-kernel-cpu; not for editing.");
    head.line("");
    for module in [
        "exec::*",
        "isa::Isa",
        "math",
        "micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided}",
        "packed::PackedWeights",
        "view::{View, ViewMut}",
    ] {
        head.line(format!("use tessera_lanes::{module};"));
    }
    head.line("");
    head.append(codecs::codecs(&elements, &formats));
    head.append(text);
    Ok(head.to_string())
}
