//! The prefill pool's thread: reads prompts, samples first tokens, hands requests off.

use super::config::{Clock, KvScales};
use super::decode::DecodeInbox;
use super::handle::{Command, Fault};
use super::pool::{digest_key, gauge, mirror_tags};
use super::record::{Record, Shared, add, transfer_error};
use crate::cache::{CacheNamespace, CacheSalt, LeaseId, PageId, PageTag, PageTracker, tracking};
use crate::device::{Device, DeviceError};
use crate::model::{Forward, SeqInput, SeqOutput};
use crate::request::{IntegrityKind, RequestError, RequestId};
use crate::schedule::{Arrival, Chunk, PrefillBatch, PrefillEvent, PrefillScheduler};
use crate::transfer::{
    AbortReason, Message, PageMessage, PeerGone, SendOffer, Sender, SenderAction, Signal, WireEnd,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use tessera_kernels::formats::KvFormat;
use tessera_kernels::ops::page_digest::digest_layer;

/// Headroom of a measured scale over the prompt's largest value (docs/adr/0007).
const AUTO_SCALE_HEADROOM: f32 = 2.0;

/// What reaches the prefill pool.
#[derive(Debug)]
pub(super) enum PrefillInbox {
    /// From the engine's handle.
    Command(Command),
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
    pub(super) records: BTreeMap<RequestId, Record>,
    pub(super) events: Vec<PrefillEvent>,
    pub(super) damage_next_page: bool,
}

impl<D: Device, T: PageTracker> PrefillWorker<D, T> {
    /// Serves until the engine is drained or the handle is gone and nothing is left.
    pub(super) fn run(mut self) {
        if let Err(error) = self.serve() {
            self.shared.metrics.ready.store(false, Ordering::Release);
            let reason = error_chain(&error);
            for record in self.records.values() {
                record.fail(RequestError::EngineDied { reason: reason.clone() });
            }
        }
        // The decode pool hears of the end by this side of the wire being dropped.
        let _ = self.decode.send(DecodeInbox::Wake);
    }

    fn serve(&mut self) -> Result<(), PoolError> {
        let mut batch = PrefillBatch::default();
        let mut changes: Vec<(PageId, PageTag)> = Vec::new();
        loop {
            if !self.take_inbox(batch.chunks.is_empty())? || self.shared.is_drained() {
                return Ok(());
            }
            self.drop_abandoned()?;
            let now = (self.clock)();
            self.scheduler.step(now, std::mem::take(&mut self.events), &mut batch);
            for admitted in &batch.admitted {
                add(&self.shared.metrics.cached_tokens_total, admitted.cached_tokens as u64);
                if let Some(record) = self.records.get_mut(&admitted.request) {
                    record.cached_tokens = admitted.cached_tokens;
                }
            }
            for (request, error) in std::mem::take(&mut batch.refused) {
                if let Some(record) = self.records.remove(&request) {
                    record.fail(error);
                }
            }
            tracking! {
                mirror_tags(&mut self.forward, self.scheduler.pool_mut(), &mut changes)?;
            }
            self.run_chunks(&batch.chunks)?;
            self.show();
        }
    }

    /// Handles what has arrived; waits for something if `idle`. False once nothing can arrive.
    ///
    /// The wire is read between taking the inbox and acting on it: a request is preempted only
    /// after its hand-off was committed, so the commit must be acted on first.
    fn take_inbox(&mut self, idle: bool) -> Result<bool, PoolError> {
        let mut arrived = Vec::new();
        if idle && self.events.is_empty() {
            match self.inbox.recv() {
                Ok(message) => arrived.push(message),
                Err(_) => return Ok(false),
            }
        }
        arrived.extend(self.inbox.try_iter());
        while let Some(message) = self.wire.try_recv()? {
            for action in self.sender.on_message(message) {
                self.act(action)?;
            }
        }
        for message in arrived {
            match message {
                PrefillInbox::Command(command) => self.command(command)?,
                PrefillInbox::Preempted(record) => self.arrive(*record, true),
                PrefillInbox::Wake => {}
            }
        }
        Ok(true)
    }

    fn command(&mut self, command: Command) -> Result<(), PoolError> {
        match command {
            Command::Submit { id, request, events } => {
                let record = Record::new(id, request, events, self.shared.clone());
                if self.shared.draining.load(Ordering::Acquire) {
                    record.fail(RequestError::ShuttingDown);
                } else {
                    self.arrive(record, false);
                }
            }
            Command::Abort(id) => self.abort(id, RequestError::Aborted, AbortReason::Client)?,
            Command::Inject(Fault::PageInFlight) => self.damage_next_page = true,
            Command::Inject(fault) => self.tell_decode(DecodeInbox::Inject(fault))?,
            Command::Drain => {
                self.shared.draining.store(true, Ordering::Release);
                self.tell_decode(DecodeInbox::Wake)?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, record: Record, is_preempted: bool) {
        if record.is_ended() {
            return;
        }
        let salt = match &record.request.cache_salt {
            Some(salt) => CacheSalt::Tenant(salt.clone()),
            None => CacheSalt::Private(record.id),
        };
        let model_revision = self.model_revision.clone();
        self.events.push(PrefillEvent::Arrive(Arrival {
            request: record.id,
            prompt: Arc::from(record.tokens.as_slice()),
            max_tokens: record.remaining(),
            namespace: CacheNamespace { salt, adapter: None, model_revision },
            is_preempted,
        }));
        self.records.insert(record.id, record);
    }

    /// Ends a request wherever it is.
    fn abort(
        &mut self,
        id: RequestId,
        error: RequestError,
        reason: AbortReason,
    ) -> Result<(), PoolError> {
        if let Some(record) = self.records.remove(&id) {
            record.fail(error);
            self.events.push(PrefillEvent::Abort(id));
            for message in self.sender.abort(id, reason) {
                self.send(message)?;
            }
        }
        self.tell_decode(DecodeInbox::Abort(id))
    }

    fn drop_abandoned(&mut self) -> Result<(), PoolError> {
        let abandoned = self.records.values().filter(|record| record.is_abandoned());
        for id in abandoned.map(|record| record.id).collect::<Vec<_>>() {
            self.abort(id, RequestError::Aborted, AbortReason::Client)?;
        }
        Ok(())
    }

    fn run_chunks(&mut self, chunks: &[Chunk]) -> Result<(), PoolError> {
        let mut inputs: Vec<SeqInput<'_, T>> = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let record = &self.records[&chunk.request];
            let table = self.scheduler.table(chunk.request).expect("a chunk's request has pages");
            inputs.push(SeqInput {
                tokens: &record.tokens[chunk.start..chunk.start + chunk.len],
                start: chunk.start,
                pages: table.pages(),
                ledger: table.ledger(),
                sample: chunk.is_last.then(|| record.sample_row()),
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
            self.events.push(PrefillEvent::Fault { request: id, pages });
            if let Some(record) = self.records.remove(&id) {
                record.fail(RequestError::KvIntegrity { kind: IntegrityKind::PageTag });
            }
            return Ok(());
        }
        let Some(sampled) = output.sampled else { return Ok(()) };
        let Some(record) = self.records.get_mut(&id) else { return Ok(()) };
        match record.token(sampled) {
            Err(error) => {
                record.fail(error);
                self.records.remove(&id);
                self.clear_own_pages(chunk)?;
                self.events.push(PrefillEvent::Abort(id));
            }
            Ok(token) if record.reason_to_stop(token.id).is_some() => {
                record.push(token);
                self.records.remove(&id);
                self.events.push(PrefillEvent::HandedOff(id));
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
    fn clear_own_pages(&mut self, chunk: Chunk) -> Result<(), DeviceError> {
        let table = self.scheduler.table(chunk.request).expect("a chunk's request has pages");
        let first_own = chunk.start / self.forward.cache_spec().page_size;
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
                self.records.remove(&request);
                self.events.push(PrefillEvent::HandedOff(request));
            }
            SenderAction::Failed(request, reason) => {
                add(&self.shared.metrics.transfer_failed_total, 1);
                self.events.push(PrefillEvent::Abort(request));
                if let Some(record) = self.records.remove(&request) {
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
            (self.records.get(&request), self.scheduler.table(request))
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
        for (index, (place, key)) in measured.into_iter().zip(&keys).enumerate() {
            let page = self.forward.convert_page(place, self.target, &scales)?;
            let metrics = &self.shared.metrics;
            add(&metrics.kv_saturated_elements_total, page.saturated);
            add(&metrics.transfer_bytes_total, page.bytes.len() as u64);
            let layer_bytes = page.bytes.len() / scales.len();
            let valid = layer_bytes / page_size * key.valid_tokens as usize;
            let layers = page.bytes.chunks_exact(layer_bytes).zip(scales.iter()).enumerate();
            let digest = |(layer, (codes, &scale)): (usize, (&[u8], &f32))| {
                digest_layer(key, layer, scale, &codes[..valid])
            };
            let digests: Vec<u64> =
                if self.integrity { layers.map(digest).collect() } else { Vec::new() };
            let mut bytes = page.bytes;
            if std::mem::take(&mut self.damage_next_page) {
                bytes[0] ^= 1;
            }
            let (bytes, digests, scales) = (bytes.into(), digests.into(), scales.clone());
            let page = PageMessage { index, bytes, scales, digests };
            self.send(Message { lease, signal: Signal::Page(page) })?;
        }
        match self.sender.pages_sent(lease) {
            Some(message) => self.send(message),
            None => Ok(()),
        }
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
