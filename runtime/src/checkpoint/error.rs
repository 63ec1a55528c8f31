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
    #[error("{} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not what it should be: {why}", path.display())]
    Json { path: PathBuf, why: String },
    #[error("{} describes no model that is served", path.display())]
    Config { path: PathBuf, source: ConfigError },
    #[error("{}: the quantization config is not followed", dir.display())]
    Quantization { dir: PathBuf, source: QuantError },
    #[error("{} is not a sound safetensors file", path.display())]
    Shard { path: PathBuf, source: ShardError },
    #[error("{}: no .safetensors file", dir.display())]
    NoWeights { dir: PathBuf },
    #[error("the index names {files:?}, which are not there (tensor {tensor:?} and more)")]
    ShardAbsent { files: Vec<String>, tensor: String },
    /// Every mismatch between the model's parameters and the checkpoint's tensors.
    #[error("{} problems:\n  {}", problems.len(), problems.join("\n  "))]
    Problems { problems: Vec<String> },
    #[error("unknown weight policy {name:?}; there are {supported:?}")]
    Policy { name: String, supported: Vec<&'static str> },
    #[error("{parameter} cannot be held")]
    Matrix { parameter: String, source: MatrixError },
    #[error("{} exists; name a directory that does not", path.display())]
    OutExists { path: PathBuf },
    #[error("policy {policy:?} cannot be written: {why}")]
    NotWritable { policy: &'static str, why: String },
}
