//! Kernels compiled for a CUDA device, without an assembler: the stand-in driver runs their text.

use std::collections::HashMap;
use std::path::Path;
use tessera_kernel_dsl::Target;
use tessera_ptx::{KernelEntry, Manifest, Origin, Sm, compile};

/// Hash of the source of each kernel, as this program was built.
fn sources() -> HashMap<String, String> {
    let built: serde_json::Value = serde_json::from_str(tessera_kernel_artifacts::MANIFEST)
        .expect("the build wrote its manifest as JSON");
    let text = |entry: &serde_json::Value, key: &str| {
        entry[key].as_str().map(str::to_owned).expect("a kernel's row has names")
    };
    let rows = built.as_array().expect("a row a variant").iter();
    rows.map(|row| (text(row, "kernel"), text(row, "source_hash"))).collect()
}

/// Compiles every variant whose formats are all among `formats` and writes text and manifest to
/// `folder`.
///
/// # Panics
/// If a kernel does not compile or the folder cannot be written.
pub fn write_bundle(folder: &Path, formats: &[&str]) {
    std::fs::create_dir_all(folder).expect("a folder to write to");
    let sources = sources();
    let mut kernels: Vec<KernelEntry> = Vec::new();
    for entry in tessera_kernels::tiles::entries() {
        let mut variants = (entry.build)(Target::Sm90a);
        if variants.is_empty() {
            // Not tuned for a GPU yet: what the CPU has is a kernel too.
            variants = (entry.build)(Target::Cpu);
        }
        for kernel in variants {
            let kernel = kernel.unwrap_or_else(|errors| panic!("{}", errors[0]));
            if !kernel.formats.iter().all(|format| formats.contains(&format.as_str())) {
                continue;
            }
            let origin = Origin {
                class: format!("{:?}", entry.class).to_lowercase(),
                source_hash: sources[entry.name].clone(),
            };
            let compiled = match compile(&kernel, &origin, Sm::Sm90a) {
                Ok(compiled) => compiled,
                // A size that GPUs have no tiles for; whoever needs it misses it at the launch.
                Err(errors) if errors[0].code == "K030" => continue,
                Err(errors) => panic!("{}", errors[0]),
            };
            std::fs::write(folder.join(&compiled.entry.file), compiled.ptx)
                .expect("a file in the folder");
            kernels.push(compiled.entry);
        }
    }
    let manifest = Manifest { target: Sm::Sm90a.name().to_owned(), kernels };
    let text = serde_json::to_string(&manifest).expect("a manifest is plain data");
    std::fs::write(folder.join("manifest.json"), text).expect("a file in the folder");
}
