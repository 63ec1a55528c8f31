//! The other side: who Tessera can be compared with, and on what weights.

mod llama;
mod vllm;

use super::Rates;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who Tessera is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    #[value(name = "llama.cpp")]
    LlamaCpp,
    #[value(name = "ik_llama.cpp")]
    IkLlamaCpp,
    #[value(name = "vllm")]
    Vllm,
}

impl Peer {
    /// As `--peer` takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::IkLlamaCpp => "ik_llama.cpp",
            Self::Vllm => "vllm",
        }
    }

    /// What the records of this comparison are called.
    pub(super) fn record(self) -> &'static str {
        match self {
            Self::LlamaCpp => "peer",
            Self::IkLlamaCpp => "peer-ik",
            Self::Vllm => "peer-vllm",
        }
    }

    /// Tessera's model, a folder of the work folder: in the bits that the peer keeps.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::LlamaCpp | Self::IkLlamaCpp => "int4",
            Self::Vllm => "hf",
        }
    }

    /// What both sides keep.
    pub(super) fn weights(self) -> &'static str {
        match self {
            Self::LlamaCpp | Self::IkLlamaCpp => {
                "both with 4-bit weights (int4-g32, Q4_0) and a 16-bit cache"
            }
            Self::Vllm => "both with the same checkpoint's BF16 weights and a 16-bit cache",
        }
    }

    /// Whether `setup.sh` has made what this peer needs.
    ///
    /// # Errors
    /// What is missing, and the command that makes it.
    pub(super) fn check(self, workdir: &Path) -> Result<()> {
        let (argument, files) = match self {
            Self::LlamaCpp => ("", llama::files("bin").to_vec()),
            Self::IkLlamaCpp => (" ik", llama::files("ik-bin").to_vec()),
            Self::Vllm => (" vllm", vec![PathBuf::from(vllm::INSTALLED)]),
        };
        let model = PathBuf::from("hf/model.safetensors.index.json");
        for file in files.iter().chain([&model]).map(|file| workdir.join(file)) {
            if !file.exists() {
                let (name, file, workdir) = (self.name(), file.display(), workdir.display());
                bail!("{name} needs {file}: bash bench/peer/setup.sh {workdir}{argument}");
            }
        }
        Ok(())
    }

    /// Tokens a second of what is compared and has `only` in its name; may give more.
    ///
    /// # Errors
    /// If the peer fails, or prints what is not understood.
    pub(super) fn run(self, workdir: &Path, threads: usize, only: &str) -> Result<Rates> {
        let workdir = &std::path::absolute(workdir)?;
        match self {
            Self::LlamaCpp => llama::run(workdir, threads),
            Self::IkLlamaCpp => llama::run_ik(workdir, threads),
            Self::Vllm => vllm::run(workdir, threads, only),
        }
    }
}

/// Threads that wait passively, as a spinning barrier loses most of its speed when anything else
/// wants a core, and weights in large pages.
fn strongest(command: &mut Command) -> &mut Command {
    command.env("OMP_WAIT_POLICY", "passive").env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
}
