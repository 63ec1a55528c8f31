//! The OpenAI surface as data: requests checked at the door, answers, errors.
//!
//! It knows JSON and limits; it knows nothing of sockets.

mod chat;
mod completions;
mod errors;
mod fields;
mod options;
mod reply;

pub use chat::parse_chat;
pub use completions::parse_completion;
pub use errors::ApiError;
pub use options::{Limits, Options};
pub use reply::{Delta, Reply, Surface, TokenEntry, Usage};

use crate::text::ChatInput;

/// A request whose every field has been checked.
#[derive(Debug)]
pub struct ApiRequest {
    /// What the prompts are made from.
    pub prompt: PromptSource,
    /// Everything else.
    pub options: Options,
}

/// What the prompts of a request are made from.
#[derive(Debug)]
pub enum PromptSource {
    /// One conversation.
    Chat(Box<ChatInput>),
    /// Raw prompts, at least one.
    Raw(Vec<RawPrompt>),
}

/// A prompt of `/v1/completions`.
#[derive(Debug)]
pub enum RawPrompt {
    /// To be tokenized; control tokens in it are text.
    Text(String),
    /// Token ids, at least one, all inside the vocabulary.
    Ids(Vec<u32>),
}
