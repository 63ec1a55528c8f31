//! Kernels compiled for a CUDA device, without an assembler: the stand-in driver runs their text.

use std::path::Path;
use tessera_kernel_tool::gpu::generate::variants;
use tessera_ptx::{KernelEntry, Manifest, Sm};

/// Compiles every variant whose formats are all among `formats` and writes text and manifest to
/// `folder`.
///
/// # Panics
/// If the folder cannot be written.
pub fn write_bundle(folder: &Path, formats: &[&str]) {
    std::fs::create_dir_all(folder).expect("a folder to write to");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let variants = variants(Sm::Sm90a, "", &root).variants;
    let mut kernels: Vec<KernelEntry> = Vec::new();
    for variant in variants {
        let Some(source) = variant.source else { continue };
        if !source.entry.formats.iter().all(|format| formats.contains(&format.as_str())) {
            continue;
        }
        std::fs::write(folder.join(&source.entry.file), variant.ptx).expect("a file to write");
        kernels.push(source.entry);
    }
    let manifest = Manifest { target: Sm::Sm90a.name().to_owned(), kernels };
    let text = serde_json::to_string(&manifest).expect("a manifest is plain data");
    std::fs::write(folder.join("manifest.json"), text).expect("a file to write");
}
