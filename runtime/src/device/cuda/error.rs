//! What can go wrong on a CUDA device, each with what an operator needs to know of it.

use std::path::PathBuf;
use tessera_ptx::launch::LaunchError;

/// Why a CUDA device cannot be used, or no longer. See `docs/howto/cuda.md` for what each means.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum CudaError {
    #[error("there is no CUDA driver here: no libcuda can be opened")]
    NoDriver,
    #[error("the CUDA driver is for CUDA {got}, the kernels need {want}")]
    DriverVersion { got: String, want: String },
    #[error("the CUDA driver lacks `{name}`")]
    Symbol { name: &'static str },
    #[error("there is no CUDA device {ordinal}, the driver has {count}")]
    NoDevice { ordinal: u32, count: u32 },
    #[error("{call}: {name} ({code}): {text}")]
    Driver { call: &'static str, code: u32, name: String, text: String },
    #[error("{bytes} bytes of device memory for {what}: {free} of {total} are free")]
    OutOfMemory { what: &'static str, bytes: usize, free: usize, total: usize },
    #[error("{}: {reason}", path.display())]
    Bundle { path: PathBuf, reason: String },
    #[error("kernels are for {got}, the device of compute capability {major}.{minor} takes {want}")]
    Target { got: String, major: u32, minor: u32, want: &'static str },
    #[error("the kernels in {} have no `{kernel}`{wanted}", path.display())]
    Missing { path: PathBuf, kernel: &'static str, wanted: String },
    #[error("`{kernel}` was built from source {got}, this program is of source {want}")]
    Source { kernel: String, got: String, want: String },
    #[error("{}: {name} ({code}): {log}", file.display())]
    Module { file: PathBuf, code: u32, name: String, log: String },
    #[error("{kernel}: {message} ({place})")]
    Assert { kernel: String, message: String, place: String },
    #[error(transparent)]
    Launch(#[from] LaunchError),
}
