//! From a request body to engine requests: parse, check, render, tokenize, submit.

use super::server::App;
use crate::api::{
    ApiError, ApiRequest, Limits, Options, PromptSource, RawPrompt, Surface, parse_chat,
    parse_completion,
};
use crate::text::TextModel;
use std::sync::Arc;
use tessera_runtime::request::{GenerateRequest, SampleParams};

/// A request that may be submitted.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) options: Options,
    pub(super) prompts: Vec<Arc<[u32]>>,
}

/// Checks and tokenizes a body, off the async threads.
pub(super) async fn prepare(
    app: &Arc<App>,
    surface: Surface,
    body: Vec<u8>,
) -> Result<Prepared, ApiError> {
    let app = Arc::clone(app);
    let work = tokio::task::spawn_blocking(move || {
        let json = serde_json::from_slice(&body).map_err(|error| json_error(&error))?;
        let request = match surface {
            Surface::Chat => parse_chat(&json, &app.limits)?,
            Surface::Raw => parse_completion(&json, &app.limits)?,
        };
        drop((body, json));
        let prompts = tokenize(&app.text, &request)?;
        let param = if surface == Surface::Chat { "messages" } else { "prompt" };
        for prompt in &prompts {
            check_length(prompt.len(), &request.options, &app.limits, param)?;
        }
        Ok(Prepared { options: request.options, prompts })
    });
    work.await.map_err(|error| ApiError::Worker { reason: error.to_string() })?
}

/// Where the JSON breaks, without a copy of what is there.
fn json_error(error: &serde_json::Error) -> ApiError {
    let reason = format!("line {} column {}", error.line(), error.column());
    ApiError::Json { reason }
}

fn tokenize(text: &TextModel, request: &ApiRequest) -> Result<Vec<Arc<[u32]>>, ApiError> {
    match &request.prompt {
        PromptSource::Chat(input) => Ok(vec![text.encode_chat(input)?.into()]),
        PromptSource::Raw(prompts) => prompts
            .iter()
            .map(|prompt| match prompt {
                RawPrompt::Ids(ids) => Ok(ids.as_slice().into()),
                RawPrompt::Text(prompt) => Ok(text.encode_prompt(prompt)?.into()),
            })
            .collect(),
    }
}

fn check_length(
    prompt_tokens: usize,
    options: &Options,
    limits: &Limits,
    param: &'static str,
) -> Result<(), ApiError> {
    if prompt_tokens == 0 {
        return Err(ApiError::field(param, "makes no token at all"));
    }
    let limit = limits.max_model_len;
    if prompt_tokens + options.max_tokens.unwrap_or(1) > limit {
        let max_tokens = options.max_tokens;
        return Err(ApiError::ContextLength { param, limit, prompt_tokens, max_tokens });
    }
    Ok(())
}

/// The engine requests of a prepared request, prompt by prompt, choice by choice.
pub(super) fn engine_requests(prepared: &Prepared, app: &App) -> Vec<GenerateRequest> {
    let options = &prepared.options;
    let stop_token_ids: Arc<[u32]> = options.stop_token_ids.as_slice().into();
    let cache_salt = options.cache_salt.as_deref().map(Arc::from);
    let mut requests = Vec::new();
    for prompt in &prepared.prompts {
        let seed = if options.seeded { options.sampling.seed } else { app.fresh_seed() };
        let rest = app.limits.max_model_len - prompt.len();
        let wanted = options.max_tokens.or(options.default_max_tokens);
        for choice in 0..options.n {
            requests.push(GenerateRequest {
                prompt: Arc::clone(prompt),
                sampling: Arc::new(SampleParams { seed, choice, ..options.sampling.clone() }),
                max_tokens: wanted.map_or(rest, |wanted| wanted.min(rest)),
                stop_token_ids: Arc::clone(&stop_token_ids),
                ignore_eos: options.ignore_eos,
                cache_salt: cache_salt.clone(),
            });
        }
    }
    requests
}
