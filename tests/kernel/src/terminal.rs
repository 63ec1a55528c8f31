//! How wide a page may be, and how it is written.

use anyhow::Result;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::Command;

/// Width where there is no terminal to ask.
pub const WIDTH: usize = 160;

/// Columns of the terminal, if there is one.
pub fn terminal_width() -> Option<usize> {
    let terminal = File::open("/dev/tty").ok()?;
    let output = Command::new("stty").arg("size").stdin(terminal).output().ok()?;
    String::from_utf8(output.stdout).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no error.
///
/// # Errors
/// What else keeps it from being written.
pub fn show(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
