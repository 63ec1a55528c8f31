//! The decode side of the hand-off.

use super::Descriptor;
use super::message::{AbortReason, Message, PageMessage, Signal};
use crate::cache::LeaseId;
use crate::request::RequestId;
use crate::schedule::Offer;
use std::collections::{BTreeMap, BTreeSet};

/// What the engine does next.
#[derive(Debug, Clone, PartialEq)]
pub enum ReceiverAction {
    /// Put it on the wire.
    Send(Message),
    /// Ask the scheduler; answer with [`Receiver::granted`] or [`Receiver::abort`].
    Offered(Offer),
    /// Write the page if the pool's lease allows it, check its digests, report with
    /// [`Receiver::page_verified`].
    Write {
        /// Whose.
        request: RequestId,
        /// Under which lease.
        lease: LeaseId,
        /// What.
        page: PageMessage,
    },
    /// All pages are there and sound: the request runs and its first token may be told.
    Run {
        /// Whose.
        request: RequestId,
        /// Sampled by the prefill pool.
        first_token: u32,
    },
    /// The transfer is over without success: end the request.
    Failed(RequestId, AbortReason),
    /// The writer is quiet: leased pages may be used again.
    Fenced(LeaseId),
}

#[derive(Debug)]
struct Transfer {
    request: RequestId,
    /// Per page, once leased: whether it arrived, and whether it was found sound.
    pages: Vec<(bool, bool)>,
    is_leased: bool,
    first_token: Option<u32>,
}

/// All transfers from one peer.
#[derive(Debug)]
pub struct Receiver {
    descriptor: Descriptor,
    /// Of the peer's process; `None` before a handshake succeeds.
    generation: Option<u64>,
    /// Newest generation that ever said hello, welcome or not.
    newest: Option<u64>,
    transfers: BTreeMap<LeaseId, Transfer>,
    /// Ended here, and the writer not known to be quiet.
    unfenced: BTreeSet<LeaseId>,
    /// Every transfer offered by this generation, so that none begins twice.
    offered: SeenIds,
}

/// Ids from 1 on, given out in order but heard of in any.
#[derive(Debug, Default)]
struct SeenIds {
    /// Every id up to here was seen.
    all_to: u64,
    beyond: BTreeSet<u64>,
}

impl SeenIds {
    /// False if it was there.
    fn insert(&mut self, id: u64) -> bool {
        if id <= self.all_to || !self.beyond.insert(id) {
            return false;
        }
        while self.beyond.remove(&(self.all_to + 1)) {
            self.all_to += 1;
        }
        true
    }
}

impl Receiver {
    /// A receiver that knows no peer yet.
    pub fn new(descriptor: Descriptor) -> Self {
        let (transfers, unfenced, offered) = <_>::default();
        Self { descriptor, generation: None, newest: None, transfers, unfenced, offered }
    }

    /// The scheduler has leased `num_pages` pages.
    pub fn granted(&mut self, lease: LeaseId, num_pages: usize) -> Option<Message> {
        let transfer = self.transfers.get_mut(&lease)?;
        transfer.is_leased = true;
        transfer.pages = vec![(false, false); num_pages];
        Some(Message { lease, signal: Signal::Lease { num_pages } })
    }

    /// A written page was checked.
    pub fn page_verified(&mut self, lease: LeaseId, index: usize, ok: bool) -> Vec<ReceiverAction> {
        let Some(transfer) = self.transfers.get_mut(&lease) else { return Vec::new() };
        if !ok {
            return self.fail(lease, AbortReason::Digest { index });
        }
        if let Some(page) = transfer.pages.get_mut(index) {
            page.1 = page.0;
        }
        self.try_commit(lease)
    }

    /// Ends the request's transfer from this side.
    pub fn abort(&mut self, request: RequestId, reason: AbortReason) -> Option<Message> {
        let found = self.transfers.iter().find(|(_, transfer)| transfer.request == request);
        let lease = *found?.0;
        self.transfers.remove(&lease);
        self.unfenced.insert(lease);
        Some(Message { lease, signal: Signal::Abort(reason) })
    }

    /// What a message makes the engine do. Messages of other generations change nothing, but that
    /// a handshake of a new one ends all that the old one had begun.
    pub fn on_message(&mut self, message: Message) -> Vec<ReceiverAction> {
        let lease = message.lease;
        if let Signal::Hello(theirs) = message.signal {
            return self.hello(lease, &theirs);
        }
        if self.generation != Some(lease.generation) {
            return Vec::new();
        }
        match message.signal {
            Signal::Offer { request, prompt_tokens, max_tokens } => {
                if !self.offered.insert(lease.transfer) {
                    return Vec::new();
                }
                let (pages, is_leased, first_token) = (Vec::new(), false, None);
                self.transfers.insert(lease, Transfer { request, pages, is_leased, first_token });
                let offer = Offer { request, prompt_tokens, max_tokens, lease };
                vec![ReceiverAction::Offered(offer)]
            }
            Signal::Page(page) => self.page(lease, page),
            Signal::Commit { first_token } => {
                let Some(transfer) = self.transfers.get_mut(&lease) else { return Vec::new() };
                transfer.first_token = Some(first_token);
                self.try_commit(lease)
            }
            Signal::Abort(reason) => {
                let Some(transfer) = self.transfers.remove(&lease) else { return Vec::new() };
                self.unfenced.insert(lease);
                vec![ReceiverAction::Failed(transfer.request, reason)]
            }
            Signal::Fenced if self.unfenced.remove(&lease) => vec![ReceiverAction::Fenced(lease)],
            _ => Vec::new(),
        }
    }

    fn hello(&mut self, lease: LeaseId, theirs: &Descriptor) -> Vec<ReceiverAction> {
        // A duplicate, or one that a dead process left on the wire.
        if self.newest.is_some_and(|known| lease.generation <= known) {
            return Vec::new();
        }
        let mut actions = self.disconnected();
        (self.newest, self.generation) = (Some(lease.generation), None);
        self.offered = SeenIds::default();
        let differences = self.descriptor.differences(theirs);
        let signal = if differences.is_empty() {
            self.generation = Some(lease.generation);
            Signal::HelloAck(Box::new(self.descriptor.clone()))
        } else {
            Signal::Refused(differences)
        };
        actions.push(ReceiverAction::Send(Message { lease, signal }));
        actions
    }

    /// The peer's process has ended, so it writes no more: all its transfers end.
    pub fn disconnected(&mut self) -> Vec<ReceiverAction> {
        let mut actions = Vec::new();
        for (lease, transfer) in std::mem::take(&mut self.transfers) {
            actions.push(ReceiverAction::Failed(transfer.request, AbortReason::PeerRestarted));
            actions.push(ReceiverAction::Fenced(lease));
        }
        let unfenced = std::mem::take(&mut self.unfenced);
        actions.extend(unfenced.into_iter().map(ReceiverAction::Fenced));
        actions
    }

    fn page(&mut self, lease: LeaseId, page: PageMessage) -> Vec<ReceiverAction> {
        let Some(transfer) = self.transfers.get_mut(&lease) else { return Vec::new() };
        let index = page.index;
        match transfer.pages.get_mut(index) {
            Some((arrived, _)) if !*arrived => {
                *arrived = true;
                vec![ReceiverAction::Write { request: transfer.request, lease, page }]
            }
            // The first arrival is the one that is checked; a copy is not written at all.
            Some(_) => Vec::new(),
            None => self.fail(lease, AbortReason::Page { index }),
        }
    }

    fn try_commit(&mut self, lease: LeaseId) -> Vec<ReceiverAction> {
        let Some(transfer) = self.transfers.get(&lease) else { return Vec::new() };
        let is_sound = transfer.is_leased && transfer.pages.iter().all(|page| page.1);
        let Some(first_token) = transfer.first_token.filter(|_| is_sound) else {
            return Vec::new();
        };
        let request = transfer.request;
        self.transfers.remove(&lease);
        vec![
            ReceiverAction::Send(Message { lease, signal: Signal::Committed }),
            ReceiverAction::Run { request, first_token },
        ]
    }

    fn fail(&mut self, lease: LeaseId, reason: AbortReason) -> Vec<ReceiverAction> {
        let Some(transfer) = self.transfers.remove(&lease) else { return Vec::new() };
        self.unfenced.insert(lease);
        vec![
            ReceiverAction::Send(Message { lease, signal: Signal::Abort(reason.clone()) }),
            ReceiverAction::Failed(transfer.request, reason),
        ]
    }
}
