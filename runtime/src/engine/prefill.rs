//! The prefill pool's thread: reads prompts, samples first tokens, hands requests off.

use super::config::{Clock, KvScales};
use super::decode::DecodeInbox;
use super::handle::Fault;
use super::pool::{digest_key, gauge, mirror_tags};
use super::record::{Life, Record, Shared, add, transfer_error};
use crate::cache::{
    AuditError, CacheNamespace, CacheSalt, LeaseId, PageId, PageTag, PageTracker, tracking,
};
use crate::device::{Device, DeviceError};
use crate::model::{ConvertedPage, Forward, NewTokens, SeqInput, SeqOutput};
use crate::request::{IntegrityKind, RequestError, RequestId};
use crate::schedule::{Arrival, Chunk, PrefillBatch, PrefillEvent, PrefillScheduler};
use crate::transfer::{
    AbortReason, Message, PageMessage, PeerGone, SendOffer, Sender, SenderAction, Signal, WireEnd,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::sync::{Arc, Weak};
use tessera_kernels::formats::KvFormat;
use tessera_kernels::ops::page_digest::{DigestKey, digest_layer};

/// Headroom of a measured scale over the prompt's largest value (docs/adr/0007).
const AUTO_SCALE_HEADROOM: f32 = 2.0;

/// Pages of a request that are converted with one wait: what bounds the memory they arrive in.
const PAGES_AT_ONCE: usize = 16;

/// What reaches the prefill pool.
#[derive(Debug)]
pub(super) enum PrefillInbox {
    /// A new request.
    Submit(Box<Record>),
    /// End a request, whatever its state.
    Abort(RequestId),
    /// Do damage on purpose.
    Inject(Fault),
    /// Refuse what comes, and end when nothing is left.
    Drain,
    /// From the decode pool: read this again, with what it has generated.
    Preempted(Box<Record>),
    /// The wire has a message, or the last request has ended.
    Wake,
}

/// Why a pool's thread ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub(super) enum PoolError {
    #[error("device")]
    Device(#[from] DeviceError),
    #[error(transparent)]
    PeerGone(#[from] PeerGone),
    #[error("pages are lost")]
    Books(#[from] AuditError),
}

/// The prefill pool.
pub(super) struct PrefillWorker<D: Device, T: PageTracker> {
    pub(super) forward: Forward<D>,
    pub(super) scheduler: PrefillScheduler<T>,
    pub(super) sender: Sender,
    pub(super) wire: WireEnd,
    pub(super) inbox: Inbox<PrefillInbox>,
    pub(super) decode: Outbox<DecodeInbox>,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) target: &'static KvFormat,
    pub(super) kv_scales: KvScales,
    pub(super) integrity: bool,
    pub(super) model_revision: Arc<str>,
    pub(super) state: PrefillState,
}

/// What the thread begins with empty.
#[derive(Debug, Default)]
pub(super) struct PrefillState {
    /// Requests in this pool.
    records: BTreeMap<RequestId, Record>,
    /// Requests anywhere, so that an abort finds one on its way between the pools too.
    lives: BTreeMap<RequestId, Weak<Life>>,
    events: Vec<PrefillEvent>,
    damage_next_page: bool,
}

impl<D: Device, T: PageTracker> PrefillWorker<D, T> {
    /// Serves until the engine is drained.
    pub(super) fn run(mut self) {
        if let Err(error) = self.serve() {
            self.shared.stop(format!("prefill pool: {}", error_chain(&error)));
        }
    }

    fn serve(&mut self) -> Result<(), PoolError> {
        let mut batch = PrefillBatch::default();
        let mut changes: Vec<(PageId, PageTag)> = Vec::new();
        while !(self.shared.is_drained() && self.state.events.is_empty()) {
            self.take_inbox(batch.chunks.is_empty())?;
            self.drop_unwanted()?;
            let events = std::mem::take(&mut self.state.events);
            self.scheduler.step((self.clock)(), events, &mut batch);
            debug_assert_eq!(self.scheduler.audit().err(), None);
            self.after_schedule(&mut batch);
            tracking! {
                mirror_tags(&mut self.forward, self.scheduler.pool_mut(), &mut changes)?;
            }
            self.run_chunks(&batch.chunks)?;
            self.show();
        }
        self.scheduler.audit()?;
        Ok(())
    }

    /// Handles what has arrived; waits for something if `idle`.
    ///
    /// The wire is read between taking the inbox and acting on it: a request is preempted only
    /// after its hand-off was committed, so the commit must be acted on first.
    fn take_inbox(&mut self, idle: bool) -> Result<(), PoolError> {
        let mut arrived = Vec::new();
        if idle && self.state.events.is_empty() {
            arrived.push(self.inbox.recv().map_err(|_| PeerGone)?);
        }
        arrived.extend(self.inbox.try_iter());
        while let Some(message) = self.wire.try_recv()? {
            for action in self.sender.on_message(message) {
                self.act(action)?;
            }
        }
        arrived.into_iter().try_for_each(|message| self.handle(message))
    }

    fn handle(&mut self, message: PrefillInbox) -> Result<(), PoolError> {
        match message {
            PrefillInbox::Submit(record) => {
                if self.shared.draining.load(Ordering::Acquire) {
                    record.fail(RequestError::ShuttingDown);
                    return Ok(());
                }
                self.state.lives.retain(|_, life| life.strong_count() > 0);
                self.state.lives.insert(record.id, record.life());
                self.arrive(*record, false);
                Ok(())
            }
            PrefillInbox::Abort(id) => {
                if let Some(life) = self.state.lives.remove(&id).and_then(|life| life.upgrade()) {
                    life.fail(RequestError::Aborted);
                }
                self.tell_decode(DecodeInbox::Wake)
            }
            PrefillInbox::Inject(Fault::PageInFlight) => {
                self.state.damage_next_page = true;
                Ok(())
            }
            PrefillInbox::Inject(fault) => self.tell_decode(DecodeInbox::Inject(fault)),
            PrefillInbox::Drain => {
                self.shared.draining.store(true, Ordering::Release);
                self.tell_decode(DecodeInbox::Wake)
            }
            PrefillInbox::Preempted(record) => {
                self.arrive(*record, true);
                Ok(())
            }
            PrefillInbox::Wake => Ok(()),
        }
    }

    fn arrive(&mut self, record: Record, is_preempted: bool) {
        let salt = match &record.request.cache_salt {
            Some(salt) => CacheSalt::Tenant(salt.clone()),
            None => CacheSalt::Private(record.id),
        };
        let model_revision = self.model_revision.clone();
        self.state.events.push(PrefillEvent::Arrive(Arrival {
            request: record.id,
            prompt: Arc::from(record.tokens.as_slice()),
            max_tokens: record.remaining(),
            namespace: CacheNamespace { salt, adapter: None, model_revision },
            is_preempted,
        }));
        self.state.records.insert(record.id, record);
    }

    /// Lets go of the requests that need not go on.
    fn drop_unwanted(&mut self) -> Result<(), PoolError> {
        let unwanted = self.state.records.iter().filter(|(_, record)| record.is_unwanted());
        for id in unwanted.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(record) = self.state.records.remove(&id) {
                record.fail(RequestError::Aborted);
            }
            self.state.events.push(PrefillEvent::Abort(id));
            for message in self.sender.abort(id, AbortReason::Client) {
                self.send(message)?;
            }
        }
        Ok(())
    }

    /// Keeps the records in step with what the scheduler decided.
    fn after_schedule(&mut self, batch: &mut PrefillBatch) {
        for admitted in &batch.admitted {
            if let Some(record) = self.state.records.get_mut(&admitted.request) {
                record.admitted(admitted.cached_tokens);
            }
        }
        for (request, error) in batch.refused.drain(..) {
            if let Some(record) = self.state.records.remove(&request) {
                record.fail(error);
            }
        }
    }

    fn run_chunks(&mut self, chunks: &[Chunk]) -> Result<(), PoolError> {
        let mut inputs: Vec<SeqInput<'_, T>> = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let record = &self.state.records[&chunk.request];
            let table = self.scheduler.table(chunk.request).expect("a chunk's request has pages");
            inputs.push(SeqInput {
                tokens: NewTokens::Given(&record.tokens[chunk.start..chunk.start + chunk.len]),
                start: chunk.start,
                pages: table.pages(),
                ledger: table.ledger(),
                sample: chunk.is_last.then(|| record.sample_row(record.tokens.len())),
            });
        }
        if inputs.is_empty() {
            return Ok(());
        }
        let outputs = self.forward.step(&inputs)?;
        add(&self.shared.metrics.prefill.steps_total, 1);
        for (chunk, output) in chunks.iter().zip(outputs) {
            self.after_chunk(*chunk, output)?;
        }
        Ok(())
    }

    fn after_chunk(&mut self, chunk: Chunk, output: SeqOutput) -> Result<(), PoolError> {
        let id = chunk.request;
        add(&self.shared.metrics.kv_saturated_elements_total, output.saturated);
        if let Some(index) = output.bad_page {
            let table = self.scheduler.table(id).expect("a chunk's request has pages");
            let pages = vec![table.pages()[index]];
            self.state.events.push(PrefillEvent::Fault { request: id, pages });
            if let Some(record) = self.state.records.remove(&id) {
                record.fail(RequestError::KvIntegrity { kind: IntegrityKind::PageTag });
            }
            return Ok(());
        }
        let Some(sampled) = output.sampled else { return Ok(()) };
        let Some(record) = self.state.records.get_mut(&id) else { return Ok(()) };
        match record.token(sampled) {
            Err(error) => {
                record.fail(error);
                let shared_tokens = record.shared_tokens;
                self.state.records.remove(&id);
                self.clear_own_pages(id, shared_tokens)?;
                self.state.events.push(PrefillEvent::Abort(id));
            }
            Ok(token) if record.reason_to_stop(token.id).is_some() => {
                record.push(token);
                self.state.records.remove(&id);
                self.state.events.push(PrefillEvent::HandedOff(id));
            }
            Ok(token) => {
                let offer = SendOffer {
                    request: id,
                    prompt_tokens: record.tokens.len(),
                    max_tokens: record.remaining(),
                    first_token: token.id,
                };
                record.first = Some(token);
                let copy = Box::new(record.clone());
                self.tell_decode(DecodeInbox::Offered(copy))?;
                let message = self.sender.offer(offer);
                self.send(message)?;
            }
        }
        Ok(())
    }

    /// Zeroes what a request with poisoned values wrote, so that nothing can read it again.
    fn clear_own_pages(&mut self, id: RequestId, shared_tokens: usize) -> Result<(), DeviceError> {
        let table = self.scheduler.table(id).expect("a chunk's request has pages");
        let first_own = shared_tokens / self.forward.cache_spec().page_size;
        table.pages()[first_own..].iter().try_for_each(|&page| self.forward.clear_page(page))
    }

    fn act(&mut self, action: SenderAction) -> Result<(), PoolError> {
        match action {
            SenderAction::Send(message) => self.send(message)?,
            SenderAction::SendPages { request, lease, num_pages } => {
                self.send_pages(request, lease, num_pages)?;
            }
            SenderAction::HandedOff(request) => {
                add(&self.shared.metrics.transfers_total, 1);
                self.state.records.remove(&request);
                self.state.events.push(PrefillEvent::HandedOff(request));
            }
            SenderAction::Failed(request, reason) => {
                add(&self.shared.metrics.transfer_failed_total, 1);
                self.state.events.push(PrefillEvent::Abort(request));
                if let Some(record) = self.state.records.remove(&request) {
                    record.fail(transfer_error(reason));
                }
            }
            // The handshake is over before the thread starts.
            SenderAction::Ready(_) | SenderAction::NotReady(_) => {}
        }
        Ok(())
    }

    fn send_pages(
        &mut self,
        request: RequestId,
        lease: LeaseId,
        num_pages: usize,
    ) -> Result<(), PoolError> {
        let (Some(record), Some(table)) =
            (self.state.records.get(&request), self.scheduler.table(request))
        else {
            return Ok(());
        };
        let (tokens, page_size) = (record.tokens.len(), self.forward.cache_spec().page_size);
        let pages = table.pages()[..num_pages].to_vec();
        let keys: Vec<_> =
            (0..num_pages).map(|index| digest_key(lease, index, page_size, tokens)).collect();
        let measured: Vec<_> =
            pages.iter().zip(&keys).map(|(&page, key)| (page, key.valid_tokens)).collect();
        let scales: Arc<[f32]> = self.target_scales(&measured)?.into();
        let mut converted = keys.iter().enumerate();
        for places in measured.chunks(PAGES_AT_ONCE) {
            let pages = self.forward.convert_pages(places, self.target, &scales)?;
            for (page, (index, key)) in pages.into_iter().zip(&mut converted) {
                let page = self.page_message((index, key), page, &scales);
                self.send(Message { lease, signal: Signal::Page(page) })?;
            }
        }
        match self.sender.pages_sent(lease) {
            Some(message) => self.send(message),
            None => Ok(()),
        }
    }

    /// A converted page as it is sent, with the digest of each layer.
    fn page_message(
        &mut self,
        (index, key): (usize, &DigestKey),
        page: ConvertedPage,
        scales: &Arc<[f32]>,
    ) -> PageMessage {
        let metrics = &self.shared.metrics;
        add(&metrics.kv_saturated_elements_total, page.saturated);
        add(&metrics.transfer_bytes_total, page.bytes.len() as u64);
        let layer_bytes = page.bytes.len() / scales.len();
        let page_size = self.forward.cache_spec().page_size;
        let valid = layer_bytes / page_size * key.valid_tokens as usize;
        let layers = page.bytes.chunks_exact(layer_bytes).zip(scales.iter()).enumerate();
        let digest = |(layer, (codes, &scale)): (usize, (&[u8], &f32))| {
            digest_layer(key, layer, scale, &codes[..valid])
        };
        let digests: Vec<u64> =
            if self.integrity { layers.map(digest).collect() } else { Vec::new() };
        let mut bytes = page.bytes;
        if std::mem::take(&mut self.state.damage_next_page) {
            bytes[0] ^= 1;
        }
        let (bytes, digests, scales) = (bytes.into(), digests.into(), scales.clone());
        PageMessage { index, bytes, scales, digests }
    }

    /// Scales for the target format: given, or measured over the valid tokens of `pages`.
    fn target_scales(&mut self, pages: &[(PageId, u32)]) -> Result<Vec<f32>, DeviceError> {
        let num_layers = self.forward.cache_spec().num_layers;
        if !self.target.scaled || self.kv_scales != KvScales::Auto {
            return Ok(self.kv_scales.of(self.target, num_layers));
        }
        let largest = self.target.element.max();
        let amax = self.forward.amax(pages)?;
        let scale = |amax: f32| AUTO_SCALE_HEADROOM * amax / largest;
        Ok(amax.into_iter().map(|amax| if amax > 0.0 { scale(amax) } else { 1.0 }).collect())
    }

    fn send(&self, message: Message) -> Result<(), PoolError> {
        self.wire.send(message)?;
        self.tell_decode(DecodeInbox::Wake)
    }

    fn tell_decode(&self, message: DecodeInbox) -> Result<(), PoolError> {
        self.decode.send(message).map_err(|_| PoolError::PeerGone(PeerGone))
    }

    fn show(&mut self) {
        let counts = self.scheduler.pool_mut().counts();
        let (running, waiting) = (self.scheduler.num_running(), self.scheduler.num_waiting());
        gauge(&self.shared.metrics.prefill, counts, running, waiting);
    }
}

/// An error and its causes in one line.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
