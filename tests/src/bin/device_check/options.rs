//! What the check is told, and where everything lies.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Checks a CUDA device with every kernel, or the stand-in driver where there is none.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Options {
    /// Folder with kernels/, cases/, models/tiny-kimi/, record/ and stand-in/.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Folder of the records; record/ of the folder if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// File of the report; report.json in the folder if not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Take the stand-in driver even where there is a GPU.
    #[arg(long)]
    pub(crate) stand_in: bool,
    /// Fail where there is no GPU.
    #[arg(long, conflicts_with = "stand_in")]
    pub(crate) gpu: bool,
    /// On the stand-in driver too, every prompt.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only kernels whose name begins like this, and then cases alone.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Make the bits of this run the record.
    #[arg(long, conflicts_with = "only")]
    pub(crate) bless: bool,
    /// Minutes that it may take in all.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) minutes: u64,
    /// Step's own processes; none for the check itself.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Command {
    /// One step's process.
    #[command(hide = true)]
    Worker(Task),
}

/// What a worker does.
#[derive(Debug, Clone, Args)]
pub(crate) struct Task {
    /// Whether it does little, as on the stand-in driver, which is slow.
    #[arg(long)]
    pub(crate) small: bool,
    #[command(subcommand)]
    pub(crate) step: Step,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Step {
    /// Says what the device is.
    Probe,
    /// Runs the cases of one kernel.
    Cases {
        /// Its name.
        kernel: String,
        /// Cases that others have run.
        #[arg(long, default_value_t = 0)]
        skip: usize,
    },
    /// Times kernels.
    Timing,
    /// Serves the bundled model.
    Serve,
}

impl Options {
    pub(crate) fn kernels(&self) -> PathBuf {
        self.folder.join("kernels")
    }

    pub(crate) fn cases(&self) -> PathBuf {
        self.folder.join("cases")
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.folder.join("models/tiny-kimi")
    }

    pub(crate) fn stand_in_folder(&self) -> PathBuf {
        self.folder.join("stand-in")
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.record.clone().unwrap_or_else(|| self.folder.join("record"))
    }

    pub(crate) fn json(&self) -> PathBuf {
        self.json.clone().unwrap_or_else(|| self.folder.join("report.json"))
    }
}
