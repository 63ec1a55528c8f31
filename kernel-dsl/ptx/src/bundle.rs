//! A bundle: a folder of assembled kernels with the manifest that says how to launch them and what
//! they were made of. Whoever loads one asks [`check`] first, so that no kernel of another source,
//! architecture or assembler is ever launched in place of the one meant.

use crate::isa::Sm;
use crate::manifest::Manifest;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The assembler that bundles are made with.
pub const PTXAS_VERSION: &str = "13.0.88";
/// The manifest's file in a bundle's folder.
pub const MANIFEST_FILE: &str = "manifest.json";

/// A manifest and the record of how its kernels were assembled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// How to launch what is usable.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// How it was made.
    pub bundle: Record,
}

/// How a bundle was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the assembler; none if nothing was assembled.
    pub ptxas: Option<String>,
    /// What the assembler was told, file names aside.
    pub flags: Vec<String>,
    /// One a kernel of the manifest, in its order.
    pub kernels: Vec<Assembled>,
    /// Variants that must not be launched, and are not in the manifest.
    pub ineligible: Vec<Ineligible>,
}

/// What came of one usable variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assembled {
    /// Its label in the manifest.
    pub label: String,
    /// File of its machine code, beside the manifest.
    pub cubin: String,
    /// SHA-256 of the PTX, in hexadecimal.
    pub ptx_sha256: String,
    /// SHA-256 of the machine code, in hexadecimal.
    pub cubin_sha256: String,
    /// What it takes of a multiprocessor.
    pub usage: Usage,
}

/// What a kernel takes of a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a program, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Programs that fit one multiprocessor at a time.
    pub ctas_per_sm: u32,
    /// Machine instructions, each counted once.
    pub instructions: u32,
}

/// A variant that was built and must not be launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ineligible {
    /// Its label.
    pub label: String,
    /// Why.
    pub reason: String,
}

/// Why a bundle cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum Refused {
    #[error("no kernels for {target} in {}: run `cargo xtask build-kernels`", path.display())]
    None { target: Sm, path: PathBuf, source: std::io::Error },
    #[error("{} is no manifest of kernels", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("the kernels in {} are for {got}, the device needs {target}", dir.display())]
    Target { dir: PathBuf, got: String, target: Sm },
    #[error("the kernels in {} were not assembled", dir.display())]
    NotAssembled { dir: PathBuf },
    #[error("the kernels in {} are of ptxas {got}, not {PTXAS_VERSION}", dir.display())]
    Ptxas { dir: PathBuf, got: String },
    #[error("{label} was built from source {got}, this program from {want}: build kernels again")]
    Stale { label: String, got: String, want: String },
    #[error("no variant of {kernel} is usable{}", reasons(why))]
    Absent { kernel: String, why: Vec<Ineligible> },
    #[error("{label} has no record of how it was assembled")]
    Unrecorded { label: String },
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is not what was assembled: it has SHA-256 {got}, not {want}", path.display())]
    Changed { path: PathBuf, got: String, want: String },
}

fn reasons(why: &[Ineligible]) -> String {
    let each = why.iter().map(|one| format!("; {}: {}", one.label, one.reason));
    each.collect()
}

/// Reads a bundle and makes sure that it is the one meant: its target, its assembler, the source of
/// each kernel, and every file as it was assembled.
///
/// `sources` has the hash of the source of each kernel that is needed, by the kernel's name.
///
/// # Errors
/// The first thing that is not as expected.
pub fn check(
    dir: &Path,
    sources: &BTreeMap<String, String>,
    target: Sm,
) -> Result<Bundle, Refused> {
    let path = dir.join(MANIFEST_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(Refused::None { target, path, source }),
    };
    let bundle: Bundle = match serde_json::from_str(&text) {
        Ok(bundle) => bundle,
        Err(source) => return Err(Refused::Malformed { path, source }),
    };
    let dir_owned = || dir.to_path_buf();
    if bundle.manifest.target != target.name() {
        let got = bundle.manifest.target;
        return Err(Refused::Target { dir: dir_owned(), got, target });
    }
    match &bundle.bundle.ptxas {
        Some(version) if version == PTXAS_VERSION => {}
        Some(version) => {
            return Err(Refused::Ptxas { dir: dir_owned(), got: version.clone() });
        }
        None => return Err(Refused::NotAssembled { dir: dir_owned() }),
    }
    check_sources(&bundle, sources)?;
    check_files(dir, &bundle)?;
    Ok(bundle)
}

fn check_sources(bundle: &Bundle, sources: &BTreeMap<String, String>) -> Result<(), Refused> {
    for entry in &bundle.manifest.kernels {
        let want = sources.get(&entry.kernel).filter(|want| **want != entry.source_hash);
        if let Some(want) = want {
            let (label, got) = (entry.label.clone(), entry.source_hash.clone());
            return Err(Refused::Stale { label, got, want: want.clone() });
        }
    }
    for kernel in sources.keys() {
        if bundle.manifest.kernels.iter().any(|entry| entry.kernel == *kernel) {
            continue;
        }
        let own = |one: &&Ineligible| kernel_of(&one.label) == kernel;
        let why = bundle.bundle.ineligible.iter().filter(own).cloned().collect();
        return Err(Refused::Absent { kernel: kernel.clone(), why });
    }
    Ok(())
}

/// The kernel that a label is of: what stands before its formats and constants.
fn kernel_of(label: &str) -> &str {
    label.split(['<', '[']).next().unwrap_or(label)
}

fn check_files(dir: &Path, bundle: &Bundle) -> Result<(), Refused> {
    for entry in &bundle.manifest.kernels {
        let record = bundle.bundle.kernels.iter().find(|one| one.label == entry.label);
        let Some(record) = record else {
            return Err(Refused::Unrecorded { label: entry.label.clone() });
        };
        for (file, want) in
            [(&entry.file, &record.ptx_sha256), (&record.cubin, &record.cubin_sha256)]
        {
            let path = dir.join(file);
            let got = match std::fs::read(&path) {
                Ok(bytes) => sha256(&bytes),
                Err(source) => return Err(Refused::Unreadable { path, source }),
            };
            if got != *want {
                return Err(Refused::Changed { path, got, want: want.clone() });
            }
        }
    }
    Ok(())
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
