//! The fields that chat and raw completions share: sampling, stopping, streaming.

use super::ApiError;
use super::fields::{Fields, token_id};
use crate::text::StopStrings;
use serde_json::Value;
use tessera_runtime::request::SampleParams;

/// What a request is checked against.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Names that `model` may take; the first is the one reported.
    pub served_names: Vec<String>,
    /// Token ids lie below it.
    pub vocab_size: usize,
    /// Tokens of prompt and output together, at most.
    pub max_model_len: usize,
}

/// Checked options of a request.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to sample; `choice` and, without [`Options::seeded`], `seed` are yet to be filled in.
    pub sampling: SampleParams,
    /// Whether the client gave the seed.
    pub seeded: bool,
    /// Tokens to generate at most, as the client has it.
    pub max_tokens: Option<usize>,
    /// The same where the client has it not; `None` is the rest of the context.
    pub default_max_tokens: Option<usize>,
    /// Strings that end the output and are not part of it.
    pub stops: StopStrings,
    /// Tokens that end the output, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Goes on past the model's end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Choices a prompt.
    pub n: u32,
    /// Answer as server-sent events.
    pub stream: bool,
    /// Send a last event with the token counts.
    pub include_usage: bool,
    /// Whose cached prefixes may be shared; `None` shares with nobody.
    pub cache_salt: Option<String>,
    /// Report token ids of prompt and output.
    pub return_token_ids: bool,
    /// Leave control tokens out of the text; `None` leaves it to the endpoint.
    pub skip_special_tokens: Option<bool>,
}

const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
const MAX_SALT_BYTES: usize = 256;

impl Options {
    /// Reads and checks the shared fields of `fields`.
    pub(super) fn parse(fields: Fields<'_>, limits: &Limits) -> Result<Self, ApiError> {
        check_model(fields, limits)?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let n = fields.integer("n", (1, 16))?.unwrap_or(1);
        let sampling = sampling(fields, limits.vocab_size)?;
        let seed = fields.integer("seed", (i64::MIN.into(), u64::MAX.into()))?;
        let salt = fields.text("cache_salt")?;
        if salt.is_some_and(|salt| salt.is_empty() || salt.len() > MAX_SALT_BYTES) {
            return Err(
                fields.error("cache_salt", format!("must have 1 to {MAX_SALT_BYTES} bytes"))
            );
        }
        fields.text("user")?;
        Ok(Self {
            sampling: SampleParams { seed: seed.map_or(0, seed_bits), ..sampling },
            seeded: seed.is_some(),
            max_tokens: None,
            default_max_tokens: None,
            stops: stops(fields)?,
            stop_token_ids: stop_token_ids(fields, limits.vocab_size)?,
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            n: u32::try_from(n).expect("n was checked to be at most 16"),
            stream,
            include_usage: include_usage(fields, stream)?,
            cache_salt: salt.map(str::to_owned),
            return_token_ids: fields.flag("return_token_ids")?.unwrap_or(false),
            skip_special_tokens: fields.flag("skip_special_tokens")?,
        })
    }
}

/// Reads a token budget from `key`.
pub(super) fn max_tokens(fields: Fields<'_>, key: &str) -> Result<Option<usize>, ApiError> {
    let max = fields.integer(key, (1, i128::from(u32::MAX)))?;
    Ok(max.map(|max| usize::try_from(max).expect("checked to fit 32 bits")))
}

/// Negative seeds keep their two's-complement bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to fit 64 bits"
)]
fn seed_bits(seed: i128) -> u64 {
    seed as u64
}

fn check_model(fields: Fields<'_>, limits: &Limits) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(model) if !limits.served_names.iter().any(|name| name == model) => {
            let served = limits.served_names.first().cloned().unwrap_or_default();
            Err(ApiError::Model { model: model.chars().take(100).collect(), served })
        }
        _ => Ok(()),
    }
}

fn sampling(fields: Fields<'_>, vocab_size: usize) -> Result<SampleParams, ApiError> {
    let number = |key, range| fields.number(key, range);
    let repetition_penalty = number("repetition_penalty", (0.0, 10.0))?.unwrap_or(1.0);
    if repetition_penalty <= 0.0 {
        return Err(fields.error("repetition_penalty", "must be above 0 and at most 10"));
    }
    let top_k = fields.integer("top_k", (i64::MIN.into(), i64::MAX.into()))?.unwrap_or(0);
    let top_k = if (1..vocab_size as i128).contains(&top_k) { top_k } else { 0 };
    Ok(SampleParams {
        temperature: number("temperature", (0.0, 2.0))?.unwrap_or(1.0),
        top_p: number("top_p", (0.0, 1.0))?.unwrap_or(1.0),
        top_k: u32::try_from(top_k).unwrap_or(0),
        min_p: number("min_p", (0.0, 1.0))?.unwrap_or(0.0),
        repetition_penalty,
        frequency_penalty: number("frequency_penalty", (-2.0, 2.0))?.unwrap_or(0.0),
        presence_penalty: number("presence_penalty", (-2.0, 2.0))?.unwrap_or(0.0),
        logit_bias: logit_bias(fields, vocab_size)?,
        seed: 0,
        choice: 0,
        top_logprobs: None,
    })
}

fn logit_bias(fields: Fields<'_>, vocab_size: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(value) = fields.value("logit_bias") else { return Ok(Vec::new()) };
    let path = fields.path("logit_bias");
    let inner = Fields::of(value, &path)?;
    let Value::Object(map) = value else { return Ok(Vec::new()) };
    let mut bias = Vec::with_capacity(map.len());
    for (at, key) in map.keys().enumerate() {
        let id = key.parse::<u32>().ok().filter(|&id| (id as usize) < vocab_size);
        let id = id.ok_or_else(|| {
            ApiError::field(
                &path,
                format!("key {at} is not a token id from 0 to {}", vocab_size - 1),
            )
        })?;
        let number = inner.number(key, (-100.0, 100.0))?;
        bias.push((id, number.ok_or_else(|| inner.error(key, "must be a number"))?));
    }
    Ok(bias)
}

fn stops(fields: Fields<'_>) -> Result<StopStrings, ApiError> {
    let strings = match fields.value("stop") {
        None => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| fields.error("stop", "must hold strings that are not empty"))?,
        Some(_) => return Err(fields.error("stop", "must be a string or an array of strings")),
    };
    if strings.len() > MAX_STOPS || strings.iter().any(|text| text.len() > MAX_STOP_BYTES) {
        let limit =
            format!("must have at most {MAX_STOPS} strings of at most {MAX_STOP_BYTES} bytes");
        return Err(fields.error("stop", limit));
    }
    Ok(StopStrings::new(strings))
}

fn stop_token_ids(fields: Fields<'_>, vocab_size: usize) -> Result<Vec<u32>, ApiError> {
    let items = fields.array("stop_token_ids")?.unwrap_or_default();
    let ids = items.iter().map(|item| token_id(item, vocab_size)).collect::<Option<Vec<_>>>();
    ids.ok_or_else(|| {
        fields.error("stop_token_ids", format!("must hold integers from 0 to {}", vocab_size - 1))
    })
}

fn include_usage(fields: Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    let Some(value) = fields.value("stream_options") else { return Ok(false) };
    if !stream {
        return Err(fields.error("stream_options", "is only allowed with `stream`: true"));
    }
    Ok(Fields::of(value, "stream_options")?.flag("include_usage")?.unwrap_or(false))
}
