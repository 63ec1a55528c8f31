//! What happens to the system from outside: clients, faults, deaths of processes.

use super::model::{Client, End};
use super::{DecodeSide, Fault, PrefillSide, ToPrefill, World};
use std::collections::BTreeSet;
use tessera_runtime::cache::{CacheSalt, PageTag};
use tessera_runtime::request::RequestId;

impl World {
    /// One tick's accidents.
    pub(super) fn happen(&mut self) {
        if self.rng.one_in(4) {
            self.submit();
        }
        if self.rng.one_in(16) {
            let id = self.someone();
            // In any state, also when it has long ended, and sometimes twice.
            for _ in 0..1 + self.rng.below(2) {
                self.prefill.inbox.push_back(ToPrefill::Abort(id));
            }
        }
        if self.rng.one_in(24) {
            let id = self.someone();
            if let Some(client) = self.clients.get_mut(&id) {
                client.has_left = true;
            }
        }
        // Every fourth schedule has no faults: there no page may ever be found bad.
        if !self.seed.is_multiple_of(4) && self.rng.one_in(64) {
            self.outcome.faults += 1;
            match self.rng.below(4) {
                0 => self.decode.faults.push(Fault::TableEntry),
                1 => self.decode.faults.push(Fault::Tag),
                2 => self.prefill.damage_next_page = true,
                _ => self.damage_prefill_tag(),
            }
        }
        if self.restart_at.is_none() && self.rng.one_in(256) {
            // Until the successor is there, all that is sent is lost.
            (self.to_decode.is_dead, self.to_prefill.is_dead) = (true, true);
            let at = self.now + 1 + self.rng.below(5) as u64;
            self.restart_at = Some((at, self.rng.one_in(2)));
        }
    }

    fn someone(&mut self) -> RequestId {
        RequestId(1 + self.rng.below(self.clients.len().max(1)) as u64)
    }

    fn submit(&mut self) {
        let id = RequestId(1 + self.clients.len() as u64);
        let salt = match self.rng.below(4) {
            0 => CacheSalt::Private(id),
            1 => CacheSalt::Tenant("b".into()),
            _ => CacheSalt::Tenant("a".into()),
        };
        // A few beginnings that many share; now and then a prompt that can never fit.
        let stem = u32::try_from(self.rng.below(2)).expect("small");
        let shared = self.rng.below(16);
        let own = 1 + self.rng.below(6) + if self.rng.one_in(16) { 80 } else { 0 };
        let tail = (0..own).map(|_| u32::try_from(2 + self.rng.below(2)).expect("small"));
        let tokens: Vec<u32> = std::iter::repeat_n(stem, shared).chain(tail).collect();
        let (prompt_len, max_tokens) = (tokens.len(), 1 + self.rng.below(20));
        let poison_at = self.rng.one_in(16).then(|| prompt_len + self.rng.below(6));
        let (first, has_left, end) = (None, false, None);
        let client =
            Client { id, salt, prompt_len, max_tokens, tokens, poison_at, first, has_left, end };
        self.clients.insert(id, client);
        self.outcome.requests += 1;
        self.prefill.inbox.push_back(ToPrefill::Submit(id));
    }

    fn damage_prefill_tag(&mut self) {
        let page = self.rng.below(self.prefill_config.pool.num_pages as usize);
        let PageTag(tag) = self.prefill.memory.tags[page];
        self.prefill.memory.tags[page] = PageTag(!tag);
    }

    /// The successor of a dead process begins.
    pub(super) fn restart_if_due(&mut self) {
        let Some((_, is_prefill)) = self.restart_at.filter(|(at, _)| *at <= self.now) else {
            return;
        };
        self.restart_at = None;
        self.outcome.restarts += 1;
        let mut lost: BTreeSet<RequestId> =
            self.to_prefill.preempted().chain(std::mem::take(&mut self.sent_to_nobody)).collect();
        self.to_decode.cut(&mut self.rng);
        self.to_prefill.cut(&mut self.rng);
        self.generation += 1;
        // Some of what was on its way into memory lands before the connection is torn down.
        for write in std::mem::take(&mut self.writes) {
            if is_prefill && self.rng.one_in(2) {
                self.decode.memory.receive(write.page, &write.bytes);
            }
        }
        if is_prefill {
            let new = PrefillSide::new(self.prefill_config, self.generation);
            let old = std::mem::replace(&mut self.prefill, new);
            lost.extend(old.records);
            lost.extend(old.inbox.into_iter().filter_map(|message| match message {
                ToPrefill::Submit(id) => Some(id),
                ToPrefill::Abort(_) => None,
            }));
            // Their offers may never come now.
            let decode = &mut self.decode;
            decode.residents.retain(|id| decode.scheduler.table(*id).is_some());
        } else {
            let old = std::mem::replace(&mut self.decode, DecodeSide::new(self.decode_config));
            lost.extend(old.residents);
            for action in self.prefill.sender.disconnected(self.generation) {
                self.act_prefill(action);
            }
            self.prefill.is_ready = false;
        }
        for id in lost {
            self.end(id, End::ProcessDied);
        }
        self.decode.inbox.clear();
        self.greet();
    }
}
