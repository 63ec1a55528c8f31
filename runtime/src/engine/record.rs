//! A request inside the engine: its tokens, and the one end it has.

use super::info::EngineMetrics;
use crate::model::Sampled;
use crate::request::{
    FinishReason, GenerateEvent, GenerateRequest, GeneratedToken, IntegrityKind, RequestError,
    RequestId, TokenLogprobs,
};
use crate::transfer::AbortReason;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tessera_kernels::ops::sample::{SampleParams, SampleRow};

use super::EventSink;

/// What all parts of an engine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) metrics: Arc<EngineMetrics>,
    pub(super) eos_token_ids: Vec<u32>,
    /// Requests that have not ended.
    pub(super) live: AtomicUsize,
    pub(super) draining: AtomicBool,
    /// Why the first pool to end before it was asked to did so.
    pub(super) died: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(metrics: Arc<EngineMetrics>, eos_token_ids: Vec<u32>) -> Self {
        let (live, draining) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { metrics, eos_token_ids, live, draining, died: OnceLock::new() }
    }

    /// The engine cannot go on. The first reason is the one that clients hear.
    pub(super) fn stop(&self, reason: String) {
        self.metrics.ready.store(false, Ordering::Release);
        // Set already if the other pool was first.
        let _ = self.died.set(reason);
    }

    /// Whether the engine was told to finish and has.
    pub(super) fn is_drained(&self) -> bool {
        self.draining.load(Ordering::Acquire) && self.live.load(Ordering::Acquire) == 0
    }
}

/// The one end of a request, shared by all its clones: the first counts, later ones are no-ops,
/// and one that nothing has ended when its last clone is dropped ends by that.
#[derive(Debug)]
pub(super) struct Life {
    // A lock, so that no token of one pool can follow an end that the other one tells.
    state: Mutex<State>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum State {
    Live(EventSink),
    Finished,
    Failed,
}

impl Life {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request with an error.
    pub(super) fn fail(&self, error: RequestError) {
        self.end(GenerateEvent::Failed(error), State::Failed);
    }

    fn tell(&self, token: GeneratedToken) {
        if let State::Live(events) = &*self.state() {
            add(&self.shared.metrics.generation_tokens_total, 1);
            // A client that no longer listens has nothing to miss, here and below.
            let _ = events.send(GenerateEvent::Token(token));
        }
    }

    fn end(&self, event: GenerateEvent, end: State) {
        let mut state = self.state();
        let State::Live(events) = &*state else { return };
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
        let _ = events.send(event);
        *state = end;
        self.shared.live.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Life {
    /// Whatever became of the thread that had the request, its client hears of it.
    fn drop(&mut self) {
        let is_drained = self.shared.draining.load(Ordering::Acquire);
        self.fail(match self.shared.died.get() {
            Some(reason) => RequestError::EngineDied { reason: reason.clone() },
            None if is_drained => RequestError::ShuttingDown,
            None => RequestError::EngineDied { reason: "a pool has ended".to_owned() },
        });
    }
}

/// A request. Clones are the same request and share its [`Life`].
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: RequestId,
    pub(super) request: Arc<GenerateRequest>,
    /// Prompt and output.
    pub(super) tokens: Vec<u32>,
    /// Sampled from the prompt, withheld until the hand-off is committed.
    pub(super) first: Option<GeneratedToken>,
    /// Tokens that came from the prefix cache when the request was last admitted.
    pub(super) shared_tokens: usize,
    /// The same of its first admission, which is what the client is told.
    pub(super) cached_tokens: usize,
    life: Arc<Life>,
}

impl Record {
    /// A request that has just been submitted; it counts as live from here on.
    pub(super) fn new(
        id: RequestId,
        request: GenerateRequest,
        events: EventSink,
        shared: Arc<Shared>,
    ) -> Self {
        shared.live.fetch_add(1, Ordering::AcqRel);
        add(&shared.metrics.prompt_tokens_total, request.prompt.len() as u64);
        let life = Arc::new(Life { state: Mutex::new(State::Live(events)), shared });
        let (tokens, request) = (request.prompt.to_vec(), Arc::new(request));
        Self { id, request, tokens, first: None, shared_tokens: 0, cached_tokens: 0, life }
    }

    /// What ends the request without having it.
    pub(super) fn life(&self) -> Weak<Life> {
        Arc::downgrade(&self.life)
    }

    /// Whether it need not go on: it has failed, here or in the other pool, or nobody listens.
    pub(super) fn is_unwanted(&self) -> bool {
        match &*self.life.state() {
            State::Live(events) => events.is_closed(),
            State::Finished => false,
            State::Failed => true,
        }
    }

    /// It has its pages, of which the first `shared_tokens` came from the prefix cache.
    pub(super) fn admitted(&mut self, shared_tokens: usize) {
        self.shared_tokens = shared_tokens;
        // Preempted and read again: what it finds then is its own.
        if self.tokens.len() == self.request.prompt.len() {
            self.cached_tokens = shared_tokens;
            add(&self.life.shared.metrics.cached_tokens_total, shared_tokens as u64);
        }
    }

    /// Tokens it may still generate.
    pub(super) fn remaining(&self) -> usize {
        self.request.max_tokens.saturating_sub(self.tokens.len() - self.request.prompt.len())
    }

    /// How it samples.
    pub(super) fn sampling(&self) -> &SampleParams {
        &self.request.sampling
    }

    /// How to sample the token at `position`, which is after the last that is known.
    pub(super) fn sample_row(&self, position: usize) -> SampleRow {
        let params = self.request.sampling.clone();
        // An empty list has one place for all rows and takes no memory.
        let tokens = match params.has_penalty() {
            true => Arc::from(self.tokens.as_slice()),
            false => Arc::default(),
        };
        SampleRow {
            tokens,
            position: position as u64,
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
                add(&self.life.shared.metrics.nan_logits_total, 1);
                Err(RequestError::NonFiniteLogits { position: self.tokens.len() as u64 })
            }
        }
    }

    /// Why the request would end with this token as its next, if it would.
    pub(super) fn reason_to_stop(&self, token: u32) -> Option<FinishReason> {
        let request = &self.request;
        let is_eos = !request.ignore_eos && self.life.shared.eos_token_ids.contains(&token);
        if is_eos || request.stop_token_ids.contains(&token) {
            return Some(FinishReason::Stop);
        }
        (self.remaining() <= 1).then_some(FinishReason::Length)
    }

    /// Tells the client a token, and the end if it is the last. True if that ended the request.
    pub(super) fn push(&mut self, token: GeneratedToken) -> bool {
        let reason = self.reason_to_stop(token.id);
        self.tokens.push(token.id);
        self.life.tell(token);
        let Some(reason) = reason else { return false };
        let cached_tokens = self.cached_tokens;
        self.life.end(GenerateEvent::Finished { reason, cached_tokens }, State::Finished);
        true
    }

    /// Ends the request with an error.
    pub(super) fn fail(&self, error: RequestError) {
        self.life.fail(error);
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
