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
    let Parts { mut root, kernels } = parts(entries)?;
    kernels.into_iter().for_each(|(_, kernel)| root.append(kernel));
    Ok(root.to_string())
}

/// A file of generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// As [`source`], with a module for each entry. The first file is the content of the module that
/// has them all; the others belong into the folder `folder` beside it.
///
/// A change to one kernel changes one file, so that the compiler keeps what it made of the others.
///
/// # Errors
/// What this target has no code for, at the author's place.
pub fn modules(entries: &[Vec<Kernel>], folder: &str) -> Result<Vec<SourceFile>, Vec<BuildError>> {
    let Parts { mut root, kernels } = parts(entries)?;
    let mut files = Vec::new();
    for (kernel, text) in kernels {
        let (module, launch) = (generate::field(kernel), text::camel(kernel));
        let name = format!("{folder}/{kernel}.rs");
        root.line(format!("#[path = {name:?}]"));
        root.line(format!("mod {module};"));
        root.line(format!("pub use {module}::{launch};"));
        files.push(SourceFile { name, text: format!("{HEAD}\nuse super::*;\n\n{text}") });
    }
    files.insert(0, SourceFile { name: format!("{folder}.rs"), text: root.to_string() });
    Ok(files)
}

const HEAD: &str = "// Generated from tile IR by tessera-kernel-cpu; not for editing.\n";

struct Parts<'k> {
    /// What all entries need.
    root: Text,
    /// Each entry by its name.
    kernels: Vec<(&'k str, Text)>,
}

fn parts(entries: &[Vec<Kernel>]) -> Result<Parts<'_>, Vec<BuildError>> {
    let mut errors = Vec::new();
    let mut texts = Vec::new();
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
        if let Some(first) = kernels.first() {
            texts.push((first.name.as_str(), entry::entry(&variants)));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut root = Text::default();
    root.lines(HEAD);
    root.line("");
    for module in [
        "exec::*",
        "isa::Isa",
        "math",
        "micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided}",
        "packed::PackedWeights",
        "view::{View, ViewMut}",
    ] {
        root.line(format!("use tessera_lanes::{module};"));
    }
    root.line("");
    root.append(codecs::codecs(&elements, &formats));
    Ok(Parts { root, kernels: texts })
}
