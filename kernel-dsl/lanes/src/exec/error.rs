//! What a launch can fail with.

/// Why a launch did not start, or stopped.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum LaunchError {
    #[error("{kernel}: `{arg}` has shape {got:?}, expected {want}")]
    Shape { kernel: &'static str, arg: &'static str, got: Vec<usize>, want: String },
    #[error("{kernel}: no variant for {got}")]
    Format { kernel: &'static str, got: String },
    #[error("{kernel}: {message} (program {program:?})")]
    Assert { kernel: &'static str, message: &'static str, program: [i64; 3] },
}

/// An `assert` of a kernel that did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssertFailed {
    /// The author's message.
    pub message: &'static str,
}

impl AssertFailed {
    /// The error of a launch that no variant of a kernel fits.
    #[cold]
    pub fn at_launch(self, kernel: &'static str) -> LaunchError {
        LaunchError::Assert { kernel, message: self.message, program: [0; 3] }
    }
}

/// There is no variant for arguments of these formats.
#[cold]
pub fn no_variant(kernel: &'static str, formats: &[&str]) -> LaunchError {
    LaunchError::Format { kernel, got: formats.join(", ") }
}
