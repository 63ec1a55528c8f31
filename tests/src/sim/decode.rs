//! The decode pool's loop, as the engine has it.

use super::model::{End, Memory, digest, sample};
use super::{DecodeSide, Fault, Parcel, ToDecode, World};
use std::collections::{BTreeSet, VecDeque};
use tessera_runtime::cache::{LeaseId, PageId, PageTag};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, DecodeSeq, Micros,
};
use tessera_runtime::transfer::{AbortReason, Message, PageMessage, Receiver, ReceiverAction};

impl DecodeSide {
    pub(super) fn new(config: DecodeConfig) -> Self {
        Self {
            scheduler: DecodeScheduler::new(config),
            batch: DecodeBatch::default(),
            memory: Memory::new(config.pool),
            receiver: Receiver::new(super::descriptor()),
            inbox: VecDeque::new(),
            residents: BTreeSet::new(),
            events: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl World {
    pub(super) fn step_decode(&mut self) {
        while let Some(message) = self.decode.inbox.pop_front() {
            match message {
                ToDecode::Offered(id) => {
                    self.decode.residents.insert(id);
                }
                ToDecode::Abort(id) => self.abort_decode(id),
            }
        }
        for parcel in self.to_decode.deliver(self.now, &self.writes, &mut self.rng) {
            if let Parcel::Message(message) = parcel {
                let actions = self.decode.receiver.on_message(message);
                self.act_decode(actions);
            }
        }
        for id in self.abandoned(&self.decode.residents) {
            self.abort_decode(id);
        }
        self.fence_early();
        let side = &mut self.decode;
        let events = std::mem::take(&mut side.events);
        side.scheduler.step(Micros(self.now), events, &mut side.batch);
        self.after_schedule();
        let side = &mut self.decode;
        side.scheduler.pool_mut().drain_changes(&mut self.changes);
        for (page, tag) in self.changes.drain(..) {
            side.memory.tags[page.0 as usize] = tag;
        }
        for seq in self.decode.batch.seqs.clone() {
            self.run_seq(seq);
        }
    }

    /// What the leases are there to prevent: pages of an ended transfer are taken for free while
    /// its writes are under way.
    fn fence_early(&mut self) {
        if self.guards.leases {
            return;
        }
        let ended = |event: &DecodeEvent| match event {
            DecodeEvent::Abort(id) | DecodeEvent::Fault { request: id, .. } => Some(*id),
            _ => None,
        };
        let ended: Vec<RequestId> = self.decode.events.iter().filter_map(ended).collect();
        let leases: Vec<LeaseId> = self.writes.iter().map(|write| write.lease).collect();
        for lease in leases {
            let Some(pages) = self.targets.get(&lease) else { continue };
            let table = |id| self.decode.scheduler.table(id);
            let is_of = |id: &RequestId| table(*id).is_some_and(|t| t.pages().starts_with(pages));
            if ended.iter().any(is_of) {
                self.decode.events.push(DecodeEvent::Fenced(lease));
            }
        }
    }

    /// Writes that reach memory now. Nobody asks there whose the page is by now, unless the
    /// hardware can revoke.
    pub(super) fn land_writes(&mut self) {
        let now = self.now;
        let (due, rest): (Vec<_>, Vec<_>) = self.writes.drain(..).partition(|w| w.at <= now);
        self.writes = rest;
        for write in due {
            let pool = self.decode.scheduler.pool_mut();
            let may_write = pool.may_write(write.lease, write.page);
            self.outcome.late_writes += usize::from(!may_write);
            if may_write || !self.hardware.revocable || !self.guards.leases {
                self.decode.memory.receive(write.page, &write.bytes);
            }
            self.send_to_decode(write.notice);
        }
    }

    fn abort_decode(&mut self, id: RequestId) {
        if !self.decode.residents.remove(&id) {
            return;
        }
        self.end(id, End::Aborted);
        self.decode.events.push(DecodeEvent::Abort(id));
        if let Some(message) = self.decode.receiver.abort(id, AbortReason::Client) {
            self.send_to_prefill(message);
        }
    }

    pub(super) fn act_decode(&mut self, actions: Vec<ReceiverAction>) {
        for action in actions {
            match action {
                ReceiverAction::Send(message) => self.send_to_prefill(message),
                ReceiverAction::Offered(offer) => {
                    self.decode.events.push(DecodeEvent::Offer(offer));
                }
                ReceiverAction::Write { request, lease, page } => {
                    self.write(request, lease, &page);
                }
                ReceiverAction::Run { request, .. } => {
                    self.decode.events.push(DecodeEvent::Committed(request));
                    let client = self.clients.get_mut(&request);
                    let first = client.and_then(|client| client.first.take());
                    if let Some(token) = first.filter(|_| self.decode.residents.contains(&request))
                    {
                        assert!(!self.push(request, token), "{}: it had ended", self.place());
                    }
                }
                ReceiverAction::Failed(request, _) => {
                    self.decode.residents.remove(&request);
                    self.decode.events.push(DecodeEvent::Abort(request));
                }
                ReceiverAction::Fenced(lease) => {
                    self.decode.events.push(DecodeEvent::Fenced(lease));
                }
            }
        }
    }

    fn write(&mut self, request: RequestId, lease: LeaseId, page: &PageMessage) {
        let side = &mut self.decode;
        if !side.residents.contains(&request) {
            return;
        }
        let Some(table) = side.scheduler.table(request) else { return };
        let place = table.pages()[page.index];
        if !side.scheduler.pool_mut().may_write(lease, place) {
            return;
        }
        if !self.hardware.one_sided {
            side.memory.receive(place, &page.bytes);
        }
        let page_size = self.decode_config.pool.page_size;
        let tokens = self.clients[&request].tokens.len();
        let valid = (tokens - page.index * page_size).min(page_size);
        let ok = [digest(lease, page.index, &side.memory.bytes(place, valid))] == *page.digests;
        if !ok {
            side.events.push(DecodeEvent::Fault { request, pages: vec![place] });
        }
        let actions = side.receiver.page_verified(lease, page.index, ok);
        self.act_decode(actions);
    }

    fn after_schedule(&mut self) {
        for grant in std::mem::take(&mut self.decode.batch.grants) {
            let table = self.decode.scheduler.table(grant.request).expect("it was granted");
            let pages = table.pages()[..grant.num_pages].to_vec();
            self.targets.insert(grant.lease, pages);
            self.came_by.insert(grant.request, grant.lease);
            if let Some(message) = self.decode.receiver.granted(grant.lease, grant.num_pages) {
                self.send_to_prefill(message);
            }
        }
        for id in std::mem::take(&mut self.decode.batch.preempted) {
            if self.decode.residents.remove(&id) {
                self.outcome.preempted += 1;
                self.send_back(id);
            }
        }
        for (id, _) in std::mem::take(&mut self.decode.batch.refused) {
            if self.decode.residents.remove(&id) {
                self.end(id, End::Refused);
            }
            if let Some(message) = self.decode.receiver.abort(id, AbortReason::Refused) {
                self.send_to_prefill(message);
            }
        }
    }

    /// Behind the commit of the transfer that brought it.
    fn send_back(&mut self, id: RequestId) {
        if self.to_prefill.is_dead {
            self.sent_to_nobody.push(id);
        }
        let lease = self.came_by[&id];
        self.to_prefill.send((self.now, &mut self.rng), lease, Parcel::Preempted(id));
    }

    fn run_seq(&mut self, seq: DecodeSeq) {
        let DecodeSeq { request: id, position } = seq;
        let bent = self.do_damage(id);
        let is_damaged = bent.is_some();
        let client = &self.clients[&id];
        let right = client.stamps();
        let poisoned = client.poison_at.is_some_and(|at| client.tokens.len() >= at);
        let side = &mut self.decode;
        let table = side.scheduler.table(id).expect("a running request has pages");
        let pages = bent.unwrap_or_else(|| table.pages().to_vec());
        let bad = side.memory.bad_page(&pages, table.tags());
        if let Some(index) = bad.filter(|_| self.guards.tags) {
            let pages = vec![table.pages()[index]];
            side.events.push(DecodeEvent::Fault { request: id, pages });
            side.residents.remove(&id);
            self.end(id, End::Integrity);
            return;
        }
        self.outcome.unseen_faults += usize::from(is_damaged);
        side.memory.write(&pages, position, right[position]);
        let read: Vec<_> =
            (0..=position).map(|position| side.memory.read(&pages, position)).collect();
        let foreign = read.iter().zip(&right).filter(|(read, right)| **read != Some(**right));
        self.outcome.foreign_reads += foreign.count();
        if poisoned {
            table.pages().iter().for_each(|&page| side.memory.clear(page));
            side.events.push(DecodeEvent::Abort(id));
            side.residents.remove(&id);
            self.end(id, End::NotFinite);
            return;
        }
        let token = sample(read.iter().map(|stamp| stamp.map_or(0, |stamp| stamp.chain)));
        if self.push(id, token) {
            self.decode.events.push(DecodeEvent::Finish(id));
            self.decode.residents.remove(&id);
        }
    }

    /// The page table to read by, if damage was done to it or to a tag of it.
    fn do_damage(&mut self, victim: RequestId) -> Option<Vec<PageId>> {
        let side = &mut self.decode;
        let fault = side.faults.pop()?;
        let table = side.scheduler.table(victim).expect("a running request has pages");
        let mut pages = table.pages().to_vec();
        match fault {
            Fault::TableEntry => {
                pages[0].0 = (pages[0].0 + 1) % self.decode_config.pool.num_pages;
            }
            Fault::Tag => side.memory.tags[pages[0].0 as usize] = PageTag(!table.tags()[0].0),
        }
        Some(pages)
    }

    pub(super) fn send_to_prefill(&mut self, message: Message) {
        let lease = message.lease;
        self.to_prefill.send((self.now, &mut self.rng), lease, Parcel::Message(message));
    }
}
