//! The `tessera` binary: parses the command line and calls the library.

use clap::Parser;
use std::process::ExitCode;
use tessera::cli::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tessera: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => tessera::serve::serve(&args),
        Command::Quantize(args) => tessera::cli::quantize(&args),
        Command::Inspect(args) => tessera::cli::inspect(&args),
    }
}
