//! Progress of what takes long, on stderr.

use indicatif::{ProgressBar, ProgressStyle};
use tessera_runtime::checkpoint::Progress;

/// A bar over bytes on their way. Invisible where stderr is no terminal.
#[derive(Debug, Clone)]
pub(super) struct LoadBar(ProgressBar);

impl LoadBar {
    /// A bar headed by `what`.
    pub(super) fn new(what: &str) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template(
            "{prefix} [{bar:32}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left  {msg}",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what.to_owned());
        Self(bar)
    }

    /// Moves the bar.
    pub(super) fn show(&self, progress: &Progress<'_>) {
        self.0.set_length(progress.total_bytes);
        self.0.set_position(progress.done_bytes);
        self.0.set_message(progress.name.to_owned());
    }

    /// Leaves the full bar standing.
    pub(super) fn finish(self) {
        self.0.finish_with_message("");
    }
}
