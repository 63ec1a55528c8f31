//! The `tessera` binary: parses the command line and calls the library.

use clap::Parser;
use tessera::cli::{Cli, Command};

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(args) => tessera::serve::serve(&args),
        Command::Quantize(_) => anyhow::bail!("this build has no quantizer yet"),
        Command::Inspect(_) => anyhow::bail!("this build has no inspector yet"),
    }
}
