//! The prefill side of the hand-off.

use super::message::{AbortReason, Message, Signal};
use super::{Descriptor, Difference};
use crate::cache::LeaseId;
use crate::request::RequestId;
use std::collections::BTreeMap;

/// A prompt to hand off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `Signal::Offer` and `Signal::Commit`")]
pub struct SendOffer {
    pub request: RequestId,
    pub prompt_tokens: usize,
    pub max_tokens: usize,
    pub first_token: u32,
}

/// What the engine does next.
#[derive(Debug, Clone, PartialEq)]
pub enum SenderAction {
    /// Put it on the wire.
    Send(Message),
    /// The handshake succeeded; convert to this peer's format.
    Ready(Box<Descriptor>),
    /// The handshake failed: no request may be accepted.
    NotReady(Vec<Difference>),
    /// Convert and send pages `0..num_pages` of the request, then call [`Sender::pages_sent`].
    SendPages {
        /// Whose.
        request: RequestId,
        /// Put on every page's message.
        lease: LeaseId,
        /// How many.
        num_pages: usize,
    },
    /// The peer has taken over: release and publish the pages.
    HandedOff(RequestId),
    /// The transfer is over without success: end the request.
    Failed(RequestId, AbortReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Offered,
    Sending,
    Committing,
}

/// All transfers of one process generation.
#[derive(Debug)]
pub struct Sender {
    generation: u64,
    last_transfer: u64,
    transfers: BTreeMap<u64, (SendOffer, State)>,
}

impl Sender {
    /// A sender of a process generation, which no earlier process at this address had.
    pub fn new(generation: u64) -> Self {
        Self { generation, last_transfer: 0, transfers: BTreeMap::new() }
    }

    /// The handshake's first message.
    pub fn hello(&self, descriptor: Descriptor) -> Message {
        self.message(0, Signal::Hello(Box::new(descriptor)))
    }

    /// Begins a transfer under an id of its own, whatever the client called its request.
    pub fn offer(&mut self, offer: SendOffer) -> Message {
        self.last_transfer += 1;
        self.transfers.insert(self.last_transfer, (offer, State::Offered));
        let SendOffer { request, prompt_tokens, max_tokens, .. } = offer;
        self.message(self.last_transfer, Signal::Offer { request, prompt_tokens, max_tokens })
    }

    /// The engine has put every page on the wire. `None` if the transfer ended meanwhile.
    pub fn pages_sent(&mut self, lease: LeaseId) -> Option<Message> {
        let (offer, state) = self.transfers.get_mut(&lease.transfer)?;
        if lease.generation != self.generation || *state != State::Sending {
            return None;
        }
        *state = State::Committing;
        let first_token = offer.first_token;
        Some(self.message(lease.transfer, Signal::Commit { first_token }))
    }

    /// Ends the request's transfer from this side. Nothing is sent after the fence.
    pub fn abort(&mut self, request: RequestId, reason: AbortReason) -> Vec<Message> {
        let found = self.transfers.iter().find(|(_, (offer, _))| offer.request == request);
        let Some((&transfer, _)) = found else { return Vec::new() };
        self.transfers.remove(&transfer);
        let abort = self.message(transfer, Signal::Abort(reason));
        vec![abort, self.message(transfer, Signal::Fenced)]
    }

    /// The peer's process has ended: all transfers end. `generation` is what this side calls itself
    /// from now on, so that nothing left on the wire is taken for a new transfer's; greet the next
    /// peer with [`Sender::hello`].
    pub fn disconnected(&mut self, generation: u64) -> Vec<SenderAction> {
        (self.generation, self.last_transfer) = (generation, 0);
        let ended = std::mem::take(&mut self.transfers).into_values();
        ended
            .map(|(offer, _)| SenderAction::Failed(offer.request, AbortReason::PeerRestarted))
            .collect()
    }

    /// What a message makes the engine do. Messages of other generations change nothing.
    pub fn on_message(&mut self, message: Message) -> Vec<SenderAction> {
        let lease = message.lease;
        if lease.generation != self.generation {
            return Vec::new();
        }
        match message.signal {
            Signal::HelloAck(theirs) => return vec![SenderAction::Ready(theirs)],
            Signal::Refused(differences) => return vec![SenderAction::NotReady(differences)],
            _ => {}
        }
        let Some((offer, state)) = self.transfers.get_mut(&lease.transfer) else {
            // Ended here already; the peer may still wait to hear that all is quiet.
            return match message.signal {
                Signal::Abort(_) => vec![self.fence(lease.transfer)],
                _ => Vec::new(),
            };
        };
        let request = offer.request;
        match (message.signal, *state) {
            (Signal::Lease { num_pages }, State::Offered) => {
                *state = State::Sending;
                vec![SenderAction::SendPages { request, lease, num_pages }]
            }
            (Signal::Committed, State::Committing) => {
                self.transfers.remove(&lease.transfer);
                vec![SenderAction::HandedOff(request)]
            }
            (Signal::Abort(reason), _) => {
                self.transfers.remove(&lease.transfer);
                vec![self.fence(lease.transfer), SenderAction::Failed(request, reason)]
            }
            _ => Vec::new(),
        }
    }

    fn fence(&self, transfer: u64) -> SenderAction {
        SenderAction::Send(self.message(transfer, Signal::Fenced))
    }

    fn message(&self, transfer: u64, signal: Signal) -> Message {
        Message { lease: LeaseId { transfer, generation: self.generation }, signal }
    }
}
