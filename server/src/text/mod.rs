//! Text in and out: chat template, tokenizer, and output bytes back to text.
//!
//! It knows a checkpoint's text files and nothing of HTTP or of the engine.

mod bytes;
mod control;
mod model;
mod stream;
mod template;
mod tojson;

pub use model::{ChatInput, TextModel, TextParts};
pub use stream::{StopStrings, TextStream};

use std::path::PathBuf;

/// Why text could not become tokens.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum TextError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not JSON", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("tokenizer.json: {reason}")]
    Tokenizer { reason: String },
    #[error(
        "tokenizer.json: token {id} is `{token}`, which is not written in the byte-level alphabet; \
         only byte-level BPE is served"
    )]
    NotByteLevel { id: u32, token: String },
    #[error("tokenizer.json: special token `{token}` has single_word set, which is not supported")]
    SingleWord { token: String },
    #[error("tokenizer_config.json: {key} is `{token}`, which tokenizer.json does not have")]
    UnknownToken { key: &'static str, token: String },
    #[error("tokenizer_config.json: add_bos_token is set, but there is no bos_token")]
    NoBos,
    #[error("the chat template does not parse: {reason}")]
    BadTemplate { reason: String },
    #[error("this model has no chat template; use /v1/completions")]
    NoTemplate,
    #[error("the chat template refused the conversation: {reason}")]
    Refused { reason: String },
    #[error("the chat template did not finish within its budget of {fuel} steps and {bytes} bytes")]
    Budget { fuel: u64, bytes: usize },
}
