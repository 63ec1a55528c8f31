//! The prefill pool's loop, as the engine has it.

use super::model::{End, Memory, digest, sample, to_bytes};
use super::{Parcel, PrefillSide, ToDecode, ToPrefill, World, Write};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tessera_runtime::cache::LeaseId;
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    Arrival, Chunk, Micros, PrefillBatch, PrefillConfig, PrefillEvent, PrefillScheduler,
};
use tessera_runtime::transfer::{
    AbortReason, Message, PageMessage, SendOffer, Sender, SenderAction, Signal,
};

impl PrefillSide {
    pub(super) fn new(config: PrefillConfig, generation: u64) -> Self {
        Self {
            scheduler: PrefillScheduler::new(config),
            batch: PrefillBatch::default(),
            memory: Memory::new(config.pool),
            sender: Sender::new(generation),
            inbox: VecDeque::new(),
            records: BTreeSet::new(),
            events: Vec::new(),
            damage_next_page: false,
            is_ready: false,
        }
    }
}

impl World {
    pub(super) fn greet(&mut self) {
        let hello = self.prefill.sender.hello(super::descriptor());
        self.send_to_decode(hello);
    }

    pub(super) fn step_prefill(&mut self) {
        let parcels = self.to_prefill.deliver(self.now, &self.writes, &mut self.rng);
        for parcel in parcels {
            match parcel {
                Parcel::Message(message) => {
                    for action in self.prefill.sender.on_message(message) {
                        self.act_prefill(action);
                    }
                }
                Parcel::Preempted(id) => self.arrive(id, true),
            }
        }
        // Nothing may be offered before the handshake, so nothing is begun.
        if !self.prefill.is_ready {
            return;
        }
        while let Some(message) = self.prefill.inbox.pop_front() {
            match message {
                ToPrefill::Submit(id) => self.arrive(id, false),
                ToPrefill::Abort(id) => {
                    // At once, as the request may be on its way between the pools.
                    if self.clients.contains_key(&id) {
                        self.end(id, End::Aborted);
                    }
                    self.abort_prefill(id);
                }
            }
        }
        for id in self.abandoned(&self.prefill.records) {
            self.abort_prefill(id);
        }
        let side = &mut self.prefill;
        let events = std::mem::take(&mut side.events);
        side.scheduler.step(Micros(self.now), events, &mut side.batch);
        let cached = side.batch.admitted.iter().map(|admitted| admitted.cached_tokens);
        self.outcome.cached_tokens += cached.sum::<usize>();
        for (id, _) in std::mem::take(&mut side.batch.refused) {
            if self.prefill.records.remove(&id) {
                self.end(id, End::Refused);
            }
        }
        let side = &mut self.prefill;
        side.scheduler.pool_mut().drain_changes(&mut self.changes);
        for (page, tag) in self.changes.drain(..) {
            side.memory.tags[page.0 as usize] = tag;
        }
        for chunk in std::mem::take(&mut self.prefill.batch.chunks) {
            self.run_chunk(chunk);
        }
    }

    pub(super) fn abandoned(&self, ids: &BTreeSet<RequestId>) -> Vec<RequestId> {
        ids.iter().copied().filter(|id| self.clients[id].has_left).collect()
    }

    fn arrive(&mut self, id: RequestId, is_preempted: bool) {
        let client = &self.clients[&id];
        if client.end.is_some() {
            return;
        }
        self.prefill.events.push(PrefillEvent::Arrive(Arrival {
            request: id,
            prompt: Arc::from(client.tokens.as_slice()),
            max_tokens: client.remaining(),
            namespace: client.namespace(),
            is_preempted,
        }));
        self.prefill.records.insert(id);
    }

    fn abort_prefill(&mut self, id: RequestId) {
        if self.prefill.records.remove(&id) {
            self.end(id, End::Aborted);
            self.prefill.events.push(PrefillEvent::Abort(id));
            for message in self.prefill.sender.abort(id, AbortReason::Client) {
                self.send_to_decode(message);
            }
        }
        self.decode.inbox.push_back(ToDecode::Abort(id));
    }

    fn run_chunk(&mut self, chunk: Chunk) {
        let Chunk { request: id, start, len, is_last } = chunk;
        let side = &mut self.prefill;
        let table = side.scheduler.table(id).expect("a chunk's request has pages");
        let bad = side.memory.bad_page(table.pages(), table.tags());
        if let Some(index) = bad.filter(|_| self.guards.tags) {
            let pages = vec![table.pages()[index]];
            side.events.push(PrefillEvent::Fault { request: id, pages });
            side.records.remove(&id);
            self.end(id, End::Integrity);
            return;
        }
        let client = &self.clients[&id];
        let right = client.stamps();
        for (position, &stamp) in right.iter().enumerate().skip(start).take(len) {
            side.memory.write(table.pages(), position, stamp);
        }
        // Pages of a shared prefix have another owner; tokens and tenant must be the same.
        let read = (0..start + len).map(|position| side.memory.read(table.pages(), position));
        let chains: Vec<_> = read.map(|stamp| stamp.map_or(0, |stamp| stamp.chain)).collect();
        let foreign = chains.iter().zip(&right).filter(|(chain, right)| **chain != right.chain);
        self.outcome.foreign_reads += foreign.count();
        if is_last {
            let poisoned = client.poison_at.is_some_and(|at| client.tokens.len() >= at);
            let token = (!poisoned).then(|| sample(chains.into_iter()));
            self.after_prompt(chunk, token);
        }
    }

    fn after_prompt(&mut self, chunk: Chunk, token: Option<u32>) {
        let id = chunk.request;
        let client = self.clients.get_mut(&id).expect("every request has a client");
        let side = &mut self.prefill;
        match token {
            None => {
                let table = side.scheduler.table(id).expect("a chunk's request has pages");
                let own = &table.pages()[chunk.start / self.prefill_config.pool.page_size..];
                own.iter().for_each(|&page| side.memory.clear(page));
                side.records.remove(&id);
                side.events.push(PrefillEvent::Abort(id));
                self.end(id, End::NotFinite);
            }
            Some(token) if client.is_last(token) => {
                side.records.remove(&id);
                side.events.push(PrefillEvent::HandedOff(id));
                self.push(id, token);
            }
            Some(first_token) => {
                client.first = Some(first_token);
                let (prompt_tokens, max_tokens) = (client.tokens.len(), client.remaining());
                let offer = SendOffer { request: id, prompt_tokens, max_tokens, first_token };
                let message = side.sender.offer(offer);
                self.decode.inbox.push_back(ToDecode::Offered(id));
                self.send_to_decode(message);
            }
        }
    }

    pub(super) fn act_prefill(&mut self, action: SenderAction) {
        match action {
            SenderAction::Send(message) => self.send_to_decode(message),
            SenderAction::SendPages { request, lease, num_pages } => {
                self.send_pages(request, lease, num_pages);
            }
            SenderAction::HandedOff(id) => {
                self.prefill.records.remove(&id);
                self.prefill.events.push(PrefillEvent::HandedOff(id));
            }
            SenderAction::Failed(id, reason) => {
                self.prefill.events.push(PrefillEvent::Abort(id));
                if self.prefill.records.remove(&id) {
                    let end = match reason {
                        AbortReason::Digest { .. } => End::Integrity,
                        AbortReason::Client => End::Aborted,
                        _ => End::Handoff,
                    };
                    self.end(id, end);
                }
            }
            SenderAction::Ready(_) => self.prefill.is_ready = true,
            SenderAction::NotReady(differences) => panic!("{differences:?}"),
        }
    }

    fn send_pages(&mut self, id: RequestId, lease: LeaseId, num_pages: usize) {
        let Some(table) = self.prefill.scheduler.table(id) else { return };
        if !self.prefill.records.contains(&id) {
            return;
        }
        let page_size = self.prefill_config.pool.page_size;
        let (pages, tokens) = (table.pages()[..num_pages].to_vec(), self.clients[&id].tokens.len());
        for index in 0..num_pages {
            let valid = (tokens - index * page_size).min(page_size);
            let places = index * page_size..index * page_size + valid;
            let mut stamps = Vec::new();
            for place in places {
                let stamp = self.prefill.memory.read(&pages, place).expect("it was computed");
                stamps.push(super::model::Stamp { owner: id.0, ..stamp });
            }
            let mut bytes = to_bytes(&stamps);
            let digests = Arc::from([digest(lease, index, &bytes)]);
            if std::mem::take(&mut self.prefill.damage_next_page) {
                bytes[0] ^= 1;
            }
            let scales = Arc::from([1.0]);
            let page = PageMessage { index, bytes: Arc::from(&bytes[..]), scales, digests };
            let notice = Message { lease, signal: Signal::Page(page) };
            if self.hardware.one_sided {
                let slow = if self.rng.one_in(4) { 40 } else { 6 };
                let at = self.now + 1 + self.rng.below(slow) as u64;
                let page = self.targets[&lease][index];
                self.writes.push(Write { at, lease, page, bytes, notice });
            } else {
                self.send_to_decode(notice);
            }
        }
        if let Some(message) = self.prefill.sender.pages_sent(lease) {
            self.send_to_decode(message);
        }
    }

    pub(super) fn send_to_decode(&mut self, message: Message) {
        let lease = message.lease;
        self.to_decode.send((self.now, &mut self.rng), lease, Parcel::Message(message));
    }
}
