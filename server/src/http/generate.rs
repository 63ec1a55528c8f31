//! The engine's events to deltas of text: the one path that streamed and whole answers share.

use super::prepare::{Prepared, engine_requests};
use super::server::App;
use crate::api::{ApiError, Delta, TokenEntry, Usage};
use crate::text::TextStream;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tessera_runtime::engine::Events;
use tessera_runtime::request::{FinishReason, GenerateEvent, GeneratedToken, RequestError};

/// All choices of one request, while they run. Dropping it aborts what still runs.
#[derive(Debug)]
pub(super) struct Generation {
    app: Arc<App>,
    choices: Vec<Choice>,
    /// Choice that is asked first, so that none starves.
    first: usize,
    /// Tokens that end an output and are not part of its text.
    end_ids: Vec<u32>,
    skip_special: bool,
    pub(super) prompts: Vec<Arc<[u32]>>,
    pub(super) usage: Usage,
    per_prompt: usize,
    started: Duration,
}

#[derive(Debug)]
struct Choice {
    /// `None` once the choice has ended.
    events: Option<Events>,
    stream: TextStream,
    /// Entries of tokens whose text has not been sent yet.
    entries: VecDeque<TokenEntry>,
    last_token: Option<Duration>,
}

impl Generation {
    /// Submits every choice.
    pub(super) fn start(app: &Arc<App>, prepared: Prepared) -> Result<Self, ApiError> {
        let started = app.clock.now();
        let mut choices = Vec::new();
        for request in engine_requests(&prepared, app) {
            let (_, events) = app.engine.submit(request)?;
            choices.push(Choice {
                events: Some(events),
                stream: TextStream::new(prepared.options.stops.clone()),
                entries: VecDeque::new(),
                last_token: None,
            });
        }
        let mut end_ids = prepared.options.stop_token_ids.clone();
        if !prepared.options.ignore_eos {
            end_ids.extend_from_slice(&app.engine.info().eos_token_ids);
        }
        let prompt_tokens = prepared.prompts.iter().map(|prompt| prompt.len()).sum();
        Ok(Self {
            app: Arc::clone(app),
            choices,
            first: 0,
            end_ids,
            skip_special: prepared.options.skip_special_tokens.unwrap_or(true),
            prompts: prepared.prompts,
            usage: Usage { prompt_tokens, ..Usage::default() },
            per_prompt: prepared.options.n as usize,
            started,
        })
    }

    /// Choices, over all prompts.
    pub(super) fn num_choices(&self) -> usize {
        self.choices.len()
    }

    /// The prompt of choice `index`.
    pub(super) fn prompt_of(&self, index: usize) -> &Arc<[u32]> {
        &self.prompts[index / self.per_prompt]
    }

    /// The next thing any choice has to say; `None` once all have ended. A delta may be empty.
    pub(super) async fn next(&mut self) -> Option<Result<(usize, Delta), RequestError>> {
        if self.choices.iter().all(|choice| choice.events.is_none()) {
            self.app.metrics.e2e_request_latency.observe(self.app.clock.now() - self.started);
            return None;
        }
        let (index, event) = poll_fn(|cx| {
            let len = self.choices.len();
            for index in (0..len).map(|offset| (self.first + offset) % len) {
                let Some(events) = &mut self.choices[index].events else { continue };
                if let Poll::Ready(event) = events.poll_recv(cx) {
                    return Poll::Ready((index, event));
                }
            }
            Poll::Pending
        })
        .await;
        self.first = index + 1;
        let delta = match event {
            Some(GenerateEvent::Token(token)) => self.token(index, &token),
            Some(GenerateEvent::Finished { reason, cached_tokens }) => {
                if index.is_multiple_of(self.per_prompt) {
                    self.usage.cached_tokens += cached_tokens;
                }
                self.choices[index].finish(reason)
            }
            Some(GenerateEvent::Failed(error)) => return Some(Err(error)),
            None => {
                let reason = "it dropped a request without a word".to_owned();
                return Some(Err(RequestError::EngineDied { reason }));
            }
        };
        Some(Ok((index, delta)))
    }

    fn token(&mut self, index: usize, token: &GeneratedToken) -> Delta {
        let (now, choice) = (self.app.clock.now(), &mut self.choices[index]);
        match choice.last_token.replace(now) {
            None => self.app.metrics.time_to_first_token.observe(now - self.started),
            Some(last) => self.app.metrics.inter_token_latency.observe(now - last),
        }
        self.usage.completion_tokens += 1;
        let mut delta = Delta { token_ids: vec![token.id], ..Delta::default() };
        if self.end_ids.contains(&token.id) {
            return delta;
        }
        let text = &self.app.text;
        let hidden = self.skip_special && text.is_special(token.id);
        let bytes = if hidden { &[][..] } else { text.token_bytes(token.id) };
        if let Some(logprobs) = &token.logprobs {
            let top = logprobs.top.iter();
            choice.entries.push_back(TokenEntry {
                bytes: text.token_bytes(token.id).to_vec(),
                logprob: logprobs.logprob,
                top: top.map(|&(id, logprob)| (text.token_bytes(id).to_vec(), logprob)).collect(),
                start: choice.stream.decoded(),
            });
        }
        delta.text = choice.stream.push(bytes);
        delta.logprobs = choice.release();
        if choice.stream.stopped() {
            // Dropping the events tells the engine that nobody wants the rest.
            choice.events = None;
            delta.finish = Some("stop");
        }
        delta
    }
}

impl Choice {
    /// Entries of tokens whose text begins in what has been sent.
    fn release(&mut self) -> Vec<TokenEntry> {
        let sent = self.stream.released();
        let count = self.entries.iter().take_while(|entry| entry.start < sent).count();
        self.entries.drain(..count).collect()
    }

    fn finish(&mut self, reason: FinishReason) -> Delta {
        self.events = None;
        Delta {
            text: self.stream.finish(),
            token_ids: Vec::new(),
            logprobs: self.entries.drain(..).collect(),
            finish: Some(match reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
            }),
        }
    }
}
