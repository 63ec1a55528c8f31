//! `cargo xtask build-kernels` and what belongs to it.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tessera_kernel_tool::floor;
use tessera_kernel_tool::gpu::build::{self, Places};
use tessera_kernel_tool::gpu::probe;
use tessera_kernel_tool::gpu::toolchain::Toolchain;

/// Kernels for GPUs, without a GPU.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Builds, assembles and bundles every kernel and says what each takes.
    #[command(name = "build-kernels")]
    Build(build::Options),
    /// What kernels would take on GPUs, by the emulator's counts.
    Floor(floor::Options),
    /// Asks the assembler which targets take each form of the instruction table.
    #[command(name = "probe-isa")]
    Probe {
        /// Write nothing; fail if the table says something else.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let places = Places::of_workspace();
    match run(&Options::parse().command, &places) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, places: &Places) -> Result<bool> {
    match command {
        Command::Build(options) => build::run(options, places),
        Command::Floor(options) => floor::run(options, places).map(|()| true),
        Command::Probe { check } => {
            let tools = Toolchain::fetch(&places.toolchain())?;
            let table = places.root.join("kernel-dsl/ptx/src/isa.toml");
            let changed = probe::run(&tools, &table, &places.target.join("kernels/probe"), *check)?;
            Ok(!(*check && changed))
        }
    }
}
