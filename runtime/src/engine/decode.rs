//! The decode pool's thread: receives requests, and gives each one token a step (`steps.rs`).

use super::config::Clock;
use super::handle::Fault;
use super::pool::{digest_key, gauge, mirror_tags};
use super::prefill::{PoolError, PrefillInbox, error_chain};
use super::record::{Record, Shared, add};
use super::steps::Flight;
use crate::cache::{LeaseId, PageId, PageTag, PageTracker, tracking};
use crate::device::Device;
use crate::model::{ArrivingDigests, Forward, SeqInput};
use crate::request::{RequestError, RequestId};
use crate::schedule::{DecodeBatch, DecodeEvent, DecodeScheduler};
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
pub(super) struct Resident {
    pub(super) record: Record,
    /// Scales of its pages, as they came with them.
    pub(super) scales: Arc<[f32]>,
    /// Pages of its table that have their scales.
    pub(super) scaled_pages: usize,
}

/// What the thread begins with empty.
#[derive(Debug, Default)]
pub(super) struct DecodeState {
    pub(super) residents: BTreeMap<RequestId, Resident>,
    pub(super) events: Vec<DecodeEvent>,
    pub(super) faults: Vec<Fault>,
    /// The step that runs while the next one is prepared.
    pub(super) flight: Option<Flight>,
    /// Pages that arrived in this turn and whose digests are on their way.
    unchecked: Vec<Unchecked>,
}

/// A page that was written and not yet checked.
#[derive(Debug)]
struct Unchecked {
    request: RequestId,
    lease: LeaseId,
    place: PageId,
    index: usize,
    wanted: Arc<[u64]>,
    found: ArrivingDigests,
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
        self.land()?;
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
        self.take_inbox(batch.seqs.is_empty() && self.state.flight.is_none())?;
        self.drop_unwanted()?;
        if self.state.flight.is_some() && !self.scheduler.can_grow_all() {
            // Who is preempted is read again with all it has generated, so that must be known.
            self.land()?;
        }
        let events = std::mem::take(&mut self.state.events);
        self.scheduler.step((self.clock)(), events, batch);
        debug_assert_eq!(self.scheduler.audit().err(), None);
        self.after_schedule(batch)?;
        tracking! {
            mirror_tags(&mut self.forward, self.scheduler.pool_mut(), changes)?;
        }
        self.run_batch(batch)?;
        self.check_pages()?;
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
        match self.state.flight {
            // Their digests come after it, so they are looked at when it is over.
            Some(_) => Ok(()),
            None => self.check_pages(),
        }
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

    /// Writes an arriving page, if the lease still allows it, and asks what lies there then.
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
        if !self.integrity {
            let actions = self.receiver.page_verified(lease, page.index, true);
            return self.act(actions);
        }
        let key = digest_key(lease, page.index, page_size, tokens);
        let found = self.forward.start_digests(place, key)?;
        let (index, wanted) = (page.index, page.digests.clone());
        self.state.unchecked.push(Unchecked { request, lease, place, index, wanted, found });
        Ok(())
    }

    /// Compares the digests of pages that have arrived with those that were sent.
    fn check_pages(&mut self) -> Result<(), PoolError> {
        for page in std::mem::take(&mut self.state.unchecked) {
            let Unchecked { request, lease, place, index, wanted, found } = page;
            let is_sound = self.forward.finish_digests(found)? == *wanted;
            // The transfer may have ended meanwhile, and the page be somebody else's.
            if !self.scheduler.pool_mut().may_write(lease, place) {
                continue;
            }
            if !is_sound {
                self.state.events.push(DecodeEvent::Fault { request, pages: vec![place] });
            }
            let actions = self.receiver.page_verified(lease, index, is_sound);
            self.act(actions)?;
        }
        Ok(())
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
