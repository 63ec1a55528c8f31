//! Picks the next token of each row from its logits.

use crate::launch::{BufferId, RowView};

/// How one request samples. Values are checked at the door by [`SampleParams::check`].
#[derive(Debug, Clone, PartialEq)]
pub struct SampleParams {
    /// Divides the logits; up to 1e-5 means greedy.
    pub temperature: f32,
    /// Keeps the smallest set of tokens whose probability reaches this; 1 keeps all, 0 one token.
    pub top_p: f32,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps tokens at least this likely relative to the likeliest.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the output.
    pub frequency_penalty: f32,
    /// Subtracted once if in the output.
    pub presence_penalty: f32,
    /// Added to logits of single tokens, before anything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// Keys the random stream together with `choice` and the position, and with nothing else.
    pub seed: u64,
    /// Which of a request's `n` choices this is.
    pub choice: u32,
    /// Report the log probability of the sampled token and of this many likeliest tokens.
    pub top_logprobs: Option<u32>,
}

/// One row to sample.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRow {
    /// How.
    pub params: std::sync::Arc<SampleParams>,
    /// Index of the token to be sampled, counted from the start of the prompt.
    pub position: u64,
    /// Tokens of prompt and output so far, the first `prompt_len` the prompt; may be empty if the
    /// row has no penalty.
    pub tokens: std::sync::Arc<[u32]>,
    /// Length of the prompt.
    pub prompt_len: usize,
}

/// Samples every row on its own: the result depends on no other row.
///
/// # Shapes
/// - `logits`: f32 `[num_rows, vocab_size]`
/// - `tokens`: i32 `[num_rows]`; -1 where the row's logits hold a NaN or a +inf, or no finite value
/// - `logprob`: f32 `[num_rows]`, natural log, of the raw (unpenalized, temperature 1) distribution
/// - `top_ids`: i32, `top_logprobs`: f32, both `[num_rows, max_top]`, sorted, -1 past what the row asked
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Sample {
    pub logits: RowView,
    pub rows: Vec<SampleRow>,
    pub max_top: usize,
    pub tokens: BufferId,
    pub logprob: BufferId,
    pub top_ids: BufferId,
    pub top_logprobs: BufferId,
}
