//! `POST /v1/completions`: raw prompts, as text or token ids.

use super::fields::{Fields, token_id};
use super::options::{Limits, Options, max_tokens};
use super::{ApiError, ApiRequest, PromptSource, RawPrompt};
use serde_json::Value;
use tessera_runtime::request::MAX_TOP_LOGPROBS;

const DEFAULT_MAX_TOKENS: usize = 16;
const MAX_PROMPTS: usize = 64;

/// Checks the body of a raw completion.
///
/// # Errors
/// [`ApiError::Field`] naming the first field that will not do, [`ApiError::Model`].
pub fn parse_completion(body: &Value, limits: &Limits) -> Result<ApiRequest, ApiError> {
    let fields = Fields::of(body, "")?;
    let mut options = Options::parse(fields, limits)?;
    options.max_tokens = max_tokens(fields, "max_tokens")?;
    options.default_max_tokens = Some(DEFAULT_MAX_TOKENS);
    let logprobs = fields.integer("logprobs", (0, MAX_TOP_LOGPROBS.into()))?;
    options.sampling.top_logprobs = logprobs.and_then(|top| u32::try_from(top).ok());
    for key in ["echo", "suffix", "best_of"] {
        let off = match fields.value(key) {
            None | Some(Value::Bool(false)) => true,
            Some(value) => key == "best_of" && value.as_u64() == Some(options.n.into()),
        };
        if !off {
            return Err(fields.error(key, "is not supported"));
        }
    }
    let prompt = fields.value("prompt").ok_or_else(|| fields.error("prompt", "is required"))?;
    let prompts = prompts(prompt, limits.vocab_size)?;
    Ok(ApiRequest { prompt: PromptSource::Raw(prompts), options })
}

fn prompts(value: &Value, vocab_size: usize) -> Result<Vec<RawPrompt>, ApiError> {
    let refuse = |reason: &str| ApiError::field("prompt", reason);
    match value {
        Value::String(text) => Ok(vec![RawPrompt::Text(text.clone())]),
        Value::Array(items) if items.is_empty() => Err(refuse("must not be empty")),
        Value::Array(items) if items[0].is_number() => Ok(vec![ids(items, vocab_size)?]),
        Value::Array(items) if items.len() > MAX_PROMPTS => {
            Err(refuse(&format!("must hold at most {MAX_PROMPTS} prompts")))
        }
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(RawPrompt::Text(text.clone())),
                Value::Array(inner) => ids(inner, vocab_size),
                _ => Err(refuse("must hold strings, or arrays of token ids")),
            })
            .collect(),
        _ => Err(refuse("must be a string, an array of strings, or token ids")),
    }
}

fn ids(items: &[Value], vocab_size: usize) -> Result<RawPrompt, ApiError> {
    let ids = items.iter().map(|item| token_id(item, vocab_size)).collect::<Option<Vec<_>>>();
    match ids {
        Some(ids) if !ids.is_empty() => Ok(RawPrompt::Ids(ids)),
        Some(_) => Err(ApiError::field("prompt", "must have at least one token")),
        None => Err(ApiError::field(
            "prompt",
            format!("must hold token ids from 0 to {}", vocab_size - 1),
        )),
    }
}
