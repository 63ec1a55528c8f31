//! What can be wrong with a checkpoint.

use crate::model::ConfigError;

/// Why a checkpoint is not loaded, written or inspected.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum CheckpointError {
    #[error("config.json")]
    Config(#[from] ConfigError),
    #[error("unknown weight policy {name:?}; there are {supported:?}")]
    Policy { name: String, supported: Vec<&'static str> },
}
