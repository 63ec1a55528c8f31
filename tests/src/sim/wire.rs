//! A wire that delays, repeats and reorders, and writes that land in memory on their own.
//!
//! Messages of one transfer and direction keep their order, as on one connection; those of
//! different transfers do not. A lost message means a lost connection, so loss is only simulated
//! together with the death of one of the processes.

use super::model::Rng;
use std::collections::BTreeMap;
use tessera_runtime::cache::{LeaseId, PageId};
use tessera_runtime::request::RequestId;
use tessera_runtime::transfer::{Message, Signal};

/// What travels.
#[derive(Debug, Clone)]
pub(super) enum Parcel {
    Message(Message),
    /// A request goes back to be read again; behind the messages of the transfer it came by.
    Preempted(RequestId),
}

#[derive(Debug)]
struct InFlight {
    at: u64,
    lease: LeaseId,
    parcel: Parcel,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Wire {
    in_flight: Vec<InFlight>,
    last_at: BTreeMap<LeaseId, u64>,
    /// From the moment a process dies until its successor is there, nothing arrives.
    pub(super) is_dead: bool,
}

impl Wire {
    pub(super) fn send(&mut self, (now, rng): (u64, &mut Rng), lease: LeaseId, parcel: Parcel) {
        if self.is_dead {
            return;
        }
        let last = self.last_at.entry(lease).or_default();
        *last = (now + 1 + rng.below(4) as u64 * rng.below(3) as u64).max(*last);
        let repeated = matches!(parcel, Parcel::Message(_)) && rng.one_in(12);
        if repeated {
            // The copy may come long after, even when the transfer is over.
            let at = *last + rng.below(12) as u64;
            self.in_flight.push(InFlight { at, lease, parcel: parcel.clone() });
        }
        self.in_flight.push(InFlight { at: *last, lease, parcel });
    }

    /// What arrives now; a fence waits for the writes of its transfer.
    pub(super) fn deliver(&mut self, now: u64, writes: &[Write], rng: &mut Rng) -> Vec<Parcel> {
        let is_due = |parcel: &InFlight| {
            let is_fence = matches!(&parcel.parcel,
                Parcel::Message(message) if message.signal == Signal::Fenced);
            parcel.at <= now && !(is_fence && writes.iter().any(|w| w.lease == parcel.lease))
        };
        let (mut due, rest): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(is_due);
        self.in_flight = rest;
        // Any order of transfers, but each in its own.
        let salt = rng.below(1 << 20) as u64;
        due.sort_by_key(|parcel| (parcel.lease.transfer ^ salt, parcel.at));
        due.into_iter().map(|parcel| parcel.parcel).collect()
    }

    /// The connection is lost: at most a few messages still come through, late.
    pub(super) fn cut(&mut self, rng: &mut Rng) {
        self.in_flight
            .retain(|parcel| matches!(parcel.parcel, Parcel::Message(_)) && rng.one_in(4));
        self.last_at.clear();
        self.is_dead = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn preempted(&self) -> impl Iterator<Item = RequestId> {
        self.in_flight.iter().filter_map(|parcel| match parcel.parcel {
            Parcel::Preempted(id) => Some(id),
            Parcel::Message(_) => None,
        })
    }
}

/// A write straight into the decode pool's memory, checked by the sender when it was issued.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) at: u64,
    pub(super) lease: LeaseId,
    pub(super) page: PageId,
    pub(super) bytes: Vec<u8>,
    /// Sent when it has landed.
    pub(super) notice: Message,
}
