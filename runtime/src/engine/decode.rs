//! The decode pool's thread: receives requests, and gives each one token a step.

use super::config::Clock;
use super::handle::Fault;
use super::pool::{digest_key, gauge, mirror_tags};
use super::prefill::{PoolError, PrefillInbox, error_chain};
use super::record::{Record, Shared, add};
use crate::cache::{LeaseId, PageId, PageTag, PageTracker, tracking};
use crate::device::{Device, DeviceError};
use crate::model::{Forward, SeqInput, SeqOutput};
use crate::request::{IntegrityKind, RequestError, RequestId};
use crate::schedule::{DecodeBatch, DecodeEvent, DecodeScheduler, DecodeSeq};
use crate::transfer::{
    AbortReason, Message, PageMessage, PeerGone, Receiver, ReceiverAction, WireEnd,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};

/// What reaches the decode pool beside the wire.
#[derive(Debug)]
pub(super) enum DecodeInbox {
    /// The request that an offer on the wire will be about.
    Offered(Box<Record>),
    /// Do damage on purpose.
    Inject(Fault),
    /// The wire has a message, a request was aborted, or the engine is to end.
    Wake,
}

/// A request in the decode pool.
#[derive(Debug)]
struct Resident {
    record: Record,
    /// Scales of its pages, as they came with them.
    scales: Arc<[f32]>,
    /// Pages of its table that have their scales.
    scaled_pages: usize,
}

/// What the thread begins with empty.
#[derive(Debug, Default)]
pub(super) struct DecodeState {
    residents: BTreeMap<RequestId, Resident>,
    events: Vec<DecodeEvent>,
    faults: Vec<Fault>,
}

/// The decode pool.
pub(super) struct DecodeWorker<D: Device, T: PageTracker> {
    pub(super) forward: Forward<D>,
    pub(super) scheduler: DecodeScheduler<T>,
    pub(super) receiver: Receiver,
    pub(super) wire: WireEnd,
    pub(super) inbox: Inbox<DecodeInbox>,
    pub(super) prefill: Outbox<PrefillInbox>,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) integrity: bool,
    pub(super) state: DecodeState,
    /// Memory for the sequences of a step.
    pub(super) inputs: Vec<SeqInput<'static, T>>,
}

impl<D: Device, T: PageTracker> DecodeWorker<D, T> {
    /// Serves until the prefill pool has ended.
    pub(super) fn run(mut self) {
        if let Err(error) = self.serve() {
            self.shared.stop(format!("decode pool: {}", error_chain(&error)));
        }
    }

    fn serve(&mut self) -> Result<(), PoolError> {
        let mut batch = DecodeBatch::default();
        let mut changes: Vec<(PageId, PageTag)> = Vec::new();
        loop {
            match self.turn(&mut batch, &mut changes) {
                Err(PoolError::PeerGone(_)) if self.shared.is_drained() => break,
                other => other?,
            }
        }
        // Nothing is left but books to close: what the peer had leased, and what just ended.
        let actions = self.receiver.disconnected();
        self.act(actions)?;
        let events = std::mem::take(&mut self.state.events);
        self.scheduler.step((self.clock)(), events, &mut batch);
        self.show();
        self.scheduler.audit()?;
        Ok(())
    }

    fn turn(
        &mut self,
        batch: &mut DecodeBatch,
        changes: &mut Vec<(PageId, PageTag)>,
    ) -> Result<(), PoolError> {
        self.take_inbox(batch.seqs.is_empty())?;
        self.drop_unwanted()?;
        let events = std::mem::take(&mut self.state.events);
        self.scheduler.step((self.clock)(), events, batch);
        debug_assert_eq!(self.scheduler.audit().err(), None);
        self.after_schedule(batch)?;
        tracking! {
            mirror_tags(&mut self.forward, self.scheduler.pool_mut(), changes)?;
        }
        self.run_seqs(&batch.seqs)?;
        self.show();
        match self.shared.is_drained() {
            true => self.tell_prefill(PrefillInbox::Wake),
            false => Ok(()),
        }
    }

    /// Handles what has arrived; waits for something if `idle`.
    ///
    /// The inbox is acted on between taking the wire's messages and acting on them: the record of
    /// an offered request is sent before the offer, so it must be there first.
    fn take_inbox(&mut self, idle: bool) -> Result<(), PoolError> {
        let mut arrived = Vec::new();
        if idle && self.state.events.is_empty() {
            arrived.push(self.inbox.recv().map_err(|_| PeerGone)?);
        }
        let mut wired = Vec::new();
        while let Some(message) = self.wire.try_recv()? {
            wired.push(message);
        }
        arrived.extend(self.inbox.try_iter());
        for message in arrived {
            match message {
                DecodeInbox::Offered(record) => self.offered(*record),
                DecodeInbox::Inject(fault) => self.state.faults.push(fault),
                DecodeInbox::Wake => {}
            }
        }
        for message in wired {
            let actions = self.receiver.on_message(message);
            self.act(actions)?;
        }
        Ok(())
    }

    fn offered(&mut self, record: Record) {
        let resident = Resident { scales: Arc::from([]), scaled_pages: 0, record };
        self.state.residents.insert(resident.record.id, resident);
    }

    /// Lets go of the requests that need not go on.
    fn drop_unwanted(&mut self) -> Result<(), PoolError> {
        let residents = self.state.residents.iter();
        let unwanted = residents.filter(|(_, resident)| resident.record.is_unwanted());
        for id in unwanted.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(resident) = self.state.residents.remove(&id) {
                resident.record.fail(RequestError::Aborted);
            }
            self.state.events.push(DecodeEvent::Abort(id));
            if let Some(message) = self.receiver.abort(id, AbortReason::Client) {
                self.send(message)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, actions: Vec<ReceiverAction>) -> Result<(), PoolError> {
        for action in actions {
            match action {
                ReceiverAction::Send(message) => self.send(message)?,
                ReceiverAction::Offered(offer) => {
                    self.state.events.push(DecodeEvent::Offer(offer));
                }
                ReceiverAction::Write { request, lease, page } => {
                    self.write(request, lease, &page)?;
                }
                ReceiverAction::Run { request, .. } => self.start(request),
                // The prefill pool still has the request and tells its client.
                ReceiverAction::Failed(request, _) => {
                    self.state.residents.remove(&request);
                    self.state.events.push(DecodeEvent::Abort(request));
                }
                ReceiverAction::Fenced(lease) => {
                    self.state.events.push(DecodeEvent::Fenced(lease));
                }
            }
        }
        Ok(())
    }

    /// Writes an arriving page, if the lease still allows it, and checks what lies there then.
    fn write(
        &mut self,
        request: RequestId,
        lease: LeaseId,
        page: &PageMessage,
    ) -> Result<(), PoolError> {
        let Some(resident) = self.state.residents.get_mut(&request) else { return Ok(()) };
        let Some(table) = self.scheduler.table(request) else { return Ok(()) };
        let place = table.pages()[page.index];
        if !self.scheduler.pool_mut().may_write(lease, place) {
            return Ok(());
        }
        self.forward.receive_page(place, &page.bytes, &page.scales)?;
        resident.scales = page.scales.clone();
        resident.scaled_pages = resident.scaled_pages.max(page.index + 1);
        let tokens = resident.record.tokens.len();
        let page_size = self.forward.cache_spec().page_size;
        let key = digest_key(lease, page.index, page_size, tokens);
        let ok = !self.integrity || self.forward.digests(place, key)? == *page.digests;
        if !ok {
            self.state.events.push(DecodeEvent::Fault { request, pages: vec![place] });
        }
        let actions = self.receiver.page_verified(lease, page.index, ok);
        self.act(actions)
    }

    /// The hand-off is committed: the withheld first token may leave.
    fn start(&mut self, request: RequestId) {
        self.state.events.push(DecodeEvent::Committed(request));
        let Some(resident) = self.state.residents.get_mut(&request) else { return };
        if let Some(token) = resident.record.first.take() {
            let ended = resident.record.push(token);
            debug_assert!(!ended, "a request that ends with its first token is not handed off");
        }
    }

    /// Tells the other side what the scheduler decided.
    fn after_schedule(&mut self, batch: &mut DecodeBatch) -> Result<(), PoolError> {
        for grant in batch.grants.drain(..) {
            if let Some(message) = self.receiver.granted(grant.lease, grant.num_pages) {
                self.send(message)?;
            }
        }
        for id in batch.preempted.drain(..) {
            if let Some(resident) = self.state.residents.remove(&id) {
                add(&self.shared.metrics.preempted_requests_total, 1);
                self.tell_prefill(PrefillInbox::Preempted(Box::new(resident.record)))?;
            }
        }
        for (id, error) in batch.refused.drain(..) {
            if let Some(resident) = self.state.residents.remove(&id) {
                resident.record.fail(error);
            }
            if let Some(message) = self.receiver.abort(id, AbortReason::Refused) {
                self.send(message)?;
            }
        }
        Ok(())
    }

    fn run_seqs(&mut self, seqs: &[DecodeSeq]) -> Result<(), PoolError> {
        if seqs.is_empty() {
            return Ok(());
        }
        self.scale_new_pages(seqs)?;
        let bent = self.do_damage(seqs[0].request)?;
        let mut inputs = SeqInput::recycle(std::mem::take(&mut self.inputs));
        for (index, seq) in seqs.iter().enumerate() {
            let record = &self.state.residents[&seq.request].record;
            let table = self.scheduler.table(seq.request).expect("a running request has pages");
            let pages = match &bent {
                Some(bent) if index == 0 => bent,
                _ => table.pages(),
            };
            inputs.push(SeqInput {
                tokens: &record.tokens[seq.position..=seq.position],
                start: seq.position,
                pages,
                ledger: table.ledger(),
                sample: Some(record.sample_row()),
            });
        }
        let outputs = self.forward.step(&inputs)?;
        self.inputs = SeqInput::recycle(inputs);
        add(&self.shared.metrics.decode.steps_total, 1);
        for (seq, output) in seqs.iter().zip(outputs) {
            self.after_step(seq.request, output)?;
        }
        Ok(())
    }

    /// Gives pages that a sequence grew into the scales of its request.
    fn scale_new_pages(&mut self, seqs: &[DecodeSeq]) -> Result<(), DeviceError> {
        if !self.forward.cache_spec().format.scaled {
            return Ok(());
        }
        for seq in seqs {
            let resident = self.state.residents.get_mut(&seq.request);
            let (Some(resident), Some(table)) = (resident, self.scheduler.table(seq.request))
            else {
                continue;
            };
            for &page in &table.pages()[resident.scaled_pages.min(table.pages().len())..] {
                self.forward.set_page_scales(page, &resident.scales)?;
            }
            resident.scaled_pages = table.pages().len();
        }
        Ok(())
    }

    /// Does the damage asked for to `victim`; its page table, if that was to be bent.
    fn do_damage(&mut self, victim: RequestId) -> Result<Option<Vec<PageId>>, DeviceError> {
        let mut bent = None;
        for fault in std::mem::take(&mut self.state.faults) {
            let table = self.scheduler.table(victim).expect("a running request has pages");
            match fault {
                Fault::PageTableEntry => {
                    let mut pages = table.pages().to_vec();
                    let num_pages = self.forward.cache_spec().num_pages;
                    pages[0].0 = (pages[0].0 + 1) % u32::try_from(num_pages).unwrap_or(u32::MAX);
                    bent = Some(pages);
                }
                Fault::PageTag => {
                    if let (&page, Some(tag)) = (&table.pages()[0], table.tags().first()) {
                        self.forward.set_page_tag(page, PageTag(!tag.0))?;
                    }
                }
                // Done where pages leave, in the prefill pool.
                Fault::PageInFlight => {}
            }
        }
        Ok(bent)
    }

    fn after_step(&mut self, id: RequestId, output: SeqOutput) -> Result<(), PoolError> {
        add(&self.shared.metrics.kv_saturated_elements_total, output.saturated);
        let Some(resident) = self.state.residents.get_mut(&id) else { return Ok(()) };
        let record = &mut resident.record;
        if let Some(index) = output.bad_page {
            // The sample is withheld: it was computed from a page that may be another request's.
            record.fail(RequestError::KvIntegrity { kind: IntegrityKind::PageTag });
            let table = self.scheduler.table(id).expect("a running request has pages");
            let pages = vec![table.pages()[index]];
            self.state.events.push(DecodeEvent::Fault { request: id, pages });
            self.state.residents.remove(&id);
            return Ok(());
        }
        let Some(sampled) = output.sampled else { return Ok(()) };
        match record.token(sampled) {
            Ok(token) => {
                if record.push(token) {
                    self.state.events.push(DecodeEvent::Finish(id));
                    self.state.residents.remove(&id);
                }
            }
            Err(error) => {
                record.fail(error);
                let table = self.scheduler.table(id).expect("a running request has pages");
                table.pages().iter().try_for_each(|&page| self.forward.clear_page(page))?;
                self.state.events.push(DecodeEvent::Abort(id));
                self.state.residents.remove(&id);
            }
        }
        Ok(())
    }

    fn send(&self, message: Message) -> Result<(), PoolError> {
        self.wire.send(message)?;
        self.tell_prefill(PrefillInbox::Wake)
    }

    fn tell_prefill(&self, message: PrefillInbox) -> Result<(), PoolError> {
        self.prefill.send(message).map_err(|_| PoolError::PeerGone(PeerGone))
    }

    fn show(&mut self) {
        let counts = self.scheduler.pool_mut().counts();
        let (running, waiting) = (self.scheduler.num_running(), self.scheduler.num_waiting());
        gauge(&self.shared.metrics.decode, counts, running, waiting);
    }
}
