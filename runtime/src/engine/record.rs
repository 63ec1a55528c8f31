//! A request inside the engine: its tokens, and the one end it has.

use super::info::EngineMetrics;
use crate::model::Sampled;
use crate::request::{
    FinishReason, GenerateEvent, GenerateRequest, GeneratedToken, IntegrityKind, RequestError,
    RequestId, TokenLogprobs,
};
use crate::transfer::AbortReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tessera_kernels::ops::sample::SampleRow;

use super::EventSink;

/// What all parts of an engine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) metrics: Arc<EngineMetrics>,
    pub(super) eos_token_ids: Vec<u32>,
    /// Requests that have not ended.
    pub(super) live: AtomicUsize,
    pub(super) draining: AtomicBool,
}

impl Shared {
    /// Whether the engine was told to finish and has.
    pub(super) fn is_drained(&self) -> bool {
        self.draining.load(Ordering::Acquire) && self.live.load(Ordering::Acquire) == 0
    }
}

/// A request. Clones are the same request: its first end counts, later ones are no-ops.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: RequestId,
    pub(super) request: Arc<GenerateRequest>,
    /// Prompt and output.
    pub(super) tokens: Vec<u32>,
    /// Sampled from the prompt, withheld until the hand-off is committed.
    pub(super) first: Option<GeneratedToken>,
    pub(super) cached_tokens: usize,
    events: EventSink,
    ended: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Record {
    pub(super) fn new(
        id: RequestId,
        request: GenerateRequest,
        events: EventSink,
        shared: Arc<Shared>,
    ) -> Self {
        shared.live.fetch_add(1, Ordering::AcqRel);
        add(&shared.metrics.prompt_tokens_total, request.prompt.len() as u64);
        let (tokens, ended) = (request.prompt.to_vec(), Arc::new(AtomicBool::new(false)));
        let request = Arc::new(request);
        Self { id, request, tokens, first: None, cached_tokens: 0, events, ended, shared }
    }

    /// Whether nobody listens any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Whether it has ended, here or in the other pool.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Tokens it may still generate.
    pub(super) fn remaining(&self) -> usize {
        self.request.max_tokens.saturating_sub(self.tokens.len() - self.request.prompt.len())
    }

    /// How to sample the token after the last.
    pub(super) fn sample_row(&self) -> SampleRow {
        let params = self.request.sampling.clone();
        let tokens = if params.has_penalty() { self.tokens.as_slice() } else { &[] };
        SampleRow {
            tokens: Arc::from(tokens),
            position: self.tokens.len() as u64,
            prompt_len: self.request.prompt.len(),
            params,
        }
    }

    /// A sample as a token of this request.
    ///
    /// # Errors
    /// [`RequestError::NonFiniteLogits`].
    pub(super) fn token(&self, sampled: Sampled) -> Result<GeneratedToken, RequestError> {
        match sampled {
            Sampled::Token { id, logprob, top } => {
                let asked = self.request.sampling.top_logprobs.is_some();
                let logprobs = asked.then_some(TokenLogprobs { logprob, top });
                Ok(GeneratedToken { id, logprobs })
            }
            Sampled::NotFinite => {
                add(&self.shared.metrics.nan_logits_total, 1);
                Err(RequestError::NonFiniteLogits { position: self.tokens.len() as u64 })
            }
        }
    }

    /// Why the request would end with this token as its next, if it would.
    pub(super) fn reason_to_stop(&self, token: u32) -> Option<FinishReason> {
        let request = &self.request;
        let is_eos = !request.ignore_eos && self.shared.eos_token_ids.contains(&token);
        if is_eos || request.stop_token_ids.contains(&token) {
            return Some(FinishReason::Stop);
        }
        (self.remaining() <= 1).then_some(FinishReason::Length)
    }

    /// Tells the client a token, and the end if it is the last. True if that ended the request.
    pub(super) fn push(&mut self, token: GeneratedToken) -> bool {
        let reason = self.reason_to_stop(token.id);
        self.tokens.push(token.id);
        if !self.is_ended() {
            add(&self.shared.metrics.generation_tokens_total, 1);
            // A closed receiver is found by `is_abandoned`; nothing is lost by not hearing of it here.
            let _ = self.events.send(GenerateEvent::Token(token));
        }
        let Some(reason) = reason else { return false };
        let cached_tokens = self.cached_tokens;
        self.end(GenerateEvent::Finished { reason, cached_tokens });
        true
    }

    /// Ends the request with an error.
    pub(super) fn fail(&self, error: RequestError) {
        self.end(GenerateEvent::Failed(error));
    }

    fn end(&self, event: GenerateEvent) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let metrics = &self.shared.metrics;
        match &event {
            GenerateEvent::Failed(RequestError::Aborted) => add(&metrics.aborted_requests_total, 1),
            GenerateEvent::Failed(error) => {
                if let RequestError::KvIntegrity { kind } = error {
                    add(integrity_counter(metrics, *kind), 1);
                }
                add(&metrics.requests_failed_total, 1);
            }
            _ => add(&metrics.requests_finished_total, 1),
        }
        let _ = self.events.send(event);
        self.shared.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a client is told of a transfer that failed.
pub(super) fn transfer_error(reason: AbortReason) -> RequestError {
    match reason {
        AbortReason::Digest { .. } => RequestError::KvIntegrity { kind: IntegrityKind::PageDigest },
        AbortReason::Client => RequestError::Aborted,
        other => RequestError::Handoff { reason: other.to_string() },
    }
}

fn integrity_counter(metrics: &EngineMetrics, kind: IntegrityKind) -> &AtomicU64 {
    match kind {
        IntegrityKind::PageTag => &metrics.kv_integrity_page_tag_total,
        IntegrityKind::PageDigest => &metrics.kv_integrity_page_digest_total,
    }
}

/// Adds to a counter that only grows.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
