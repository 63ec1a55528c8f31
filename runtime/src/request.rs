//! What a client asks of the engine and what it hears back.

use std::sync::Arc;
pub use tessera_kernels::ops::sample::{MAX_TOP_LOGPROBS, SampleParams};

/// One request inside the engine: made by the server, unique for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "req-{}", self.0)
    }
}

/// One sequence to generate.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// Prompt token ids, at least one, all inside the vocabulary.
    pub prompt: Arc<[u32]>,
    /// How to sample.
    pub sampling: Arc<SampleParams>,
    /// Tokens to generate at most; prompt and output together fit the model's context.
    pub max_tokens: usize,
    /// Ends the output with [`FinishReason::Stop`]; the token itself is reported.
    pub stop_token_ids: Arc<[u32]>,
    /// Goes on past the model's end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Whose cached prefixes this request may share; `None` is a tenant of its own.
    pub cache_salt: Option<Arc<str>>,
}

/// What the engine says about a request; the last is `Finished` or `Failed`, exactly one of them.
#[derive(Debug, Clone, PartialEq)]
pub enum GenerateEvent {
    /// One token, already checked.
    Token(GeneratedToken),
    /// The request ended well.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Prompt tokens that came from the prefix cache.
        cached_tokens: usize,
    },
    /// The request ended badly; no other request is affected.
    Failed(RequestError),
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedToken {
    /// Token id.
    pub id: u32,
    /// Natural log probability, and the likeliest tokens, if the request asked.
    pub logprobs: Option<TokenLogprobs>,
}

/// Log probabilities at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Of the sampled token.
    pub logprob: f32,
    /// Likeliest tokens, best first.
    pub top: Vec<(u32, f32)>,
}

/// Why a request ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token (or, in the server, a stop string).
    Stop,
    /// `max_tokens` reached.
    Length,
}

/// Why a request ended badly.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum RequestError {
    #[error(
        "a request of {prompt_tokens} prompt tokens and up to {max_tokens} generated ones needs {needed_pages} \
         pages of {page_size} tokens, but the {pool} pool has {pool_pages}"
    )]
    NeverFits {
        prompt_tokens: usize,
        max_tokens: usize,
        needed_pages: usize,
        page_size: usize,
        pool: &'static str,
        pool_pages: usize,
    },
    #[error("the engine is at its limit of {limit} waiting requests")]
    Overloaded { limit: usize },
    #[error("the engine is shutting down")]
    ShuttingDown,
    #[error("the request was aborted")]
    Aborted,
    #[error("kv cache integrity: {kind} mismatch")]
    KvIntegrity { kind: IntegrityKind },
    #[error("the model produced logits that are not finite at position {position}")]
    NonFiniteLogits { position: u64 },
    #[error("hand-off to the decode pool: {reason}")]
    Handoff { reason: String },
    #[error("the engine stopped: {reason}")]
    EngineDied { reason: String },
}

/// What an integrity check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntegrityKind {
    /// A page's tag is not the one its reader holds (or the table points elsewhere).
    PageTag,
    /// A page's bytes are not the ones that were sent.
    PageDigest,
}

impl std::fmt::Display for IntegrityKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::PageTag => "page_tag",
            Self::PageDigest => "page_digest",
        })
    }
}
