//! What can be wrong with a checkpoint.

use super::quant::QuantError;
use super::shard::ShardError;
use crate::model::ConfigError;
use std::io;
use std::path::PathBuf;
use tessera_kernels::formats::MatrixError;

/// Why a checkpoint is not loaded, written or inspected.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum CheckpointError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: not JSON: {why}", path.display())]
    Json { path: PathBuf, why: String },
    #[error("{}: {source}", path.display())]
    Config { path: PathBuf, source: ConfigError },
    #[error("{}: quantization config: {source}", path.display())]
    Quantization { path: PathBuf, source: QuantError },
    #[error("{}: {source}", path.display())]
    Shard { path: PathBuf, source: ShardError },
    #[error("{}: no .safetensors file", dir.display())]
    NoWeights { dir: PathBuf },
    #[error("the index names {files:?}, which are not there (tensor {tensor:?} and more)")]
    ShardAbsent { files: Vec<String>, tensor: String },
    /// Every mismatch between the model's parameters and the checkpoint's tensors.
    #[error("{} problems:\n  {}", problems.len(), problems.join("\n  "))]
    Problems { problems: Vec<String> },
    #[error("unknown weight policy {name:?}; there are {supported:?}")]
    Policy { name: String, supported: &'static [&'static str] },
    #[error("{parameter}: {source}")]
    Matrix { parameter: String, source: MatrixError },
    #[error("{} exists; name a directory that does not", path.display())]
    OutExists { path: PathBuf },
    #[error("weights of policy {policy:?} cannot be written: {why}")]
    NotWritable { policy: &'static str, why: String },
}
