//! Field cases of the hand-off, on its state machines; what a digest binds is `field_g5_digest`.

use tessera_runtime::cache::{LeaseId, PoolSize, TagTracker};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, Micros, Offer,
};
use tessera_runtime::transfer::{
    AbortReason, Descriptor, Message, PageMessage, Receiver, ReceiverAction, SendOffer, Sender,
    SenderAction, Signal,
};

fn descriptor() -> Descriptor {
    Descriptor {
        page_size: 16,
        kv_entry: 24,
        num_layers: 2,
        rope: "theta 10000".into(),
        model_fingerprint: "f".into(),
        integrity: true,
        speculative_layers: 0,
        weights: "fp8".into(),
        kv_format: "bf16".into(),
        protocol_version: Descriptor::PROTOCOL_VERSION,
    }
}

fn offer(request: u64) -> SendOffer {
    SendOffer { request: RequestId(request), prompt_tokens: 20, max_tokens: 4, first_token: 7 }
}

fn page(lease: LeaseId, index: usize) -> Message {
    let (bytes, scales, digests) = ([0; 4].into(), [1.0; 2].into(), [9; 2].into());
    Message { lease, signal: Signal::Page(PageMessage { index, bytes, scales, digests }) }
}

fn connected(generation: u64) -> (Sender, Receiver) {
    let (sender, mut receiver) = (Sender::new(generation), Receiver::new(descriptor()));
    receiver.on_message(sender.hello(descriptor()));
    (sender, receiver)
}

/// A transfer up to its lease of two pages.
fn leased(sender: &mut Sender, receiver: &mut Receiver, request: u64) -> LeaseId {
    let message = sender.offer(offer(request));
    let lease = message.lease;
    assert!(matches!(receiver.on_message(message)[..], [ReceiverAction::Offered(_)]));
    let message = receiver.granted(lease, 2).expect("the offer stands");
    let actions = sender.on_message(message);
    assert!(matches!(actions[..], [SenderAction::SendPages { num_pages: 2, .. }]));
    lease
}

fn runs(actions: &[ReceiverAction]) -> bool {
    actions.iter().any(|action| matches!(action, ReceiverAction::Run { .. }))
}

#[test]
fn o_501_pages_freed_while_a_peer_can_still_write_them() {
    let pool = PoolSize { num_pages: 3, page_size: 16 };
    let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
    let mut scheduler: DecodeScheduler<TagTracker> = DecodeScheduler::new(config);
    let mut batch = DecodeBatch::default();
    let take = |request, transfer| {
        let lease = LeaseId { transfer, generation: 1 };
        let request = RequestId(request);
        DecodeEvent::Offer(Offer { request, prompt_tokens: 20, max_tokens: 4, lease })
    };
    scheduler.step(Micros(0), [take(1, 1)], &mut batch);
    let late = batch.grants[0].lease;
    let page = scheduler.table(RequestId(1)).unwrap().pages()[0];
    assert!(scheduler.pool_mut().may_write(late, page));
    scheduler.step(Micros(1), [DecodeEvent::Abort(RequestId(1)), take(2, 2)], &mut batch);
    assert!(batch.grants.is_empty(), "the second must wait: the first's writer may still write");
    assert!(!scheduler.pool_mut().may_write(late, page));
    assert_eq!(scheduler.audit().unwrap().leased, 2);
    // No time that passes frees them; the fence does.
    scheduler.step(Micros(u64::MAX), [], &mut batch);
    assert!(batch.grants.is_empty());
    scheduler.step(Micros(u64::MAX), [DecodeEvent::Fenced(late)], &mut batch);
    assert_eq!(batch.grants[0].request, RequestId(2));
    let all = scheduler.table(RequestId(2)).unwrap().pages().to_vec();
    assert!(all.iter().all(|page| !scheduler.pool_mut().may_write(late, *page)));
}

/// A decode pool of three pages with both ends of the hand-off; each prompt takes two pages.
struct Rig {
    sender: Sender,
    receiver: Receiver,
    scheduler: DecodeScheduler<TagTracker>,
    batch: DecodeBatch,
}

impl Rig {
    fn new() -> Self {
        let (sender, receiver) = connected(1);
        let pool = PoolSize { num_pages: 3, page_size: 16 };
        let config = DecodeConfig { pool, max_seqs: 4, reserve_tokens: 1 };
        let (scheduler, batch) = (DecodeScheduler::new(config), DecodeBatch::default());
        Self { sender, receiver, scheduler, batch }
    }

    /// Offers a prompt; its lease, and whether pages were granted and the sender was told.
    fn offer(&mut self, request: u64) -> (LeaseId, bool) {
        let message = self.sender.offer(offer(request));
        let lease = message.lease;
        self.hear(message);
        let granted = self.batch.grants.first().is_some_and(|grant| grant.lease == lease);
        if granted {
            let message = self.receiver.granted(lease, 2).expect("the offer stands");
            self.sender.on_message(message);
        }
        (lease, granted)
    }

    /// Lets the receiver hear a message, and the scheduler what follows; those to be sent.
    fn hear(&mut self, message: Message) -> Vec<Message> {
        let actions = self.receiver.on_message(message);
        self.act(actions)
    }

    fn verified(&mut self, lease: LeaseId, index: usize, ok: bool) -> Vec<Message> {
        let actions = self.receiver.page_verified(lease, index, ok);
        self.act(actions)
    }

    fn act(&mut self, actions: Vec<ReceiverAction>) -> Vec<Message> {
        let (mut events, mut messages) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                ReceiverAction::Send(message) => messages.push(message),
                ReceiverAction::Offered(offer) => events.push(DecodeEvent::Offer(offer)),
                ReceiverAction::Run { request, .. } => events.push(DecodeEvent::Committed(request)),
                ReceiverAction::Failed(request, _) => events.push(DecodeEvent::Abort(request)),
                ReceiverAction::Fenced(lease) => events.push(DecodeEvent::Fenced(lease)),
                ReceiverAction::Write { .. } => {}
            }
        }
        self.scheduler.step(Micros(0), events, &mut self.batch);
        messages
    }

    /// Pages that are leased, and sequences of the last step.
    fn leased_and_running(&self) -> (usize, usize) {
        (self.scheduler.audit().expect("the books agree").leased, self.batch.seqs.len())
    }
}

#[test]
fn o_501_a_lost_write_never_runs_and_never_frees() {
    let mut rig = Rig::new();
    let (lease, _) = rig.offer(1);
    rig.hear(page(lease, 0));
    rig.verified(lease, 0, true);
    // Page 1 is lost; the commit comes.
    let commit = rig.sender.pages_sent(lease).unwrap();
    rig.hear(commit);
    assert_eq!(rig.leased_and_running(), (2, 0));
    assert!(!rig.offer(2).1, "the pages of the first are not to be had");
    // Only when its client gives up and the writer is fenced do they come free.
    let abort = rig.receiver.abort(RequestId(1), AbortReason::Client).unwrap();
    rig.scheduler.step(Micros(9), [DecodeEvent::Abort(RequestId(1))], &mut rig.batch);
    assert_eq!((rig.leased_and_running(), rig.batch.grants.len()), ((2, 0), 0));
    for action in rig.sender.on_message(abort) {
        if let SenderAction::Send(message) = action {
            rig.hear(message);
        }
    }
    assert_eq!(rig.batch.grants[0].request, RequestId(2));
}

#[test]
fn o_501_an_errored_page_keeps_the_rest_leased() {
    let mut rig = Rig::new();
    let (lease, _) = rig.offer(1);
    rig.hear(page(lease, 0));
    let sent = rig.verified(lease, 0, false);
    let reason = AbortReason::Digest { index: 0 };
    assert_eq!(sent, [Message { lease, signal: Signal::Abort(reason) }]);
    // The other page is still under way, and counted; it changes nothing when it lands.
    assert_eq!(rig.leased_and_running(), (2, 0));
    assert!(rig.hear(page(lease, 1)).is_empty());
    assert!(!rig.offer(2).1);
    rig.hear(Message { lease, signal: Signal::Fenced });
    assert_eq!(rig.batch.grants[0].request, RequestId(2));
}

#[test]
fn o_501_a_commit_before_the_last_page_waits_for_it() {
    let mut rig = Rig::new();
    let (lease, _) = rig.offer(1);
    let commit = rig.sender.pages_sent(lease).unwrap();
    rig.hear(commit.clone());
    rig.hear(page(lease, 1));
    rig.verified(lease, 1, true);
    // A copy of what came, and of the commit, proves nothing about page 0.
    assert!(rig.hear(page(lease, 1)).is_empty() && rig.hear(commit).is_empty());
    rig.verified(lease, 0, true);
    assert_eq!(rig.leased_and_running(), (2, 0));
    rig.hear(page(lease, 0));
    assert_eq!(rig.leased_and_running(), (2, 0));
    let sent = rig.verified(lease, 0, true);
    assert_eq!(sent, [Message { lease, signal: Signal::Committed }]);
    assert_eq!(rig.leased_and_running(), (0, 1));
}

#[test]
fn o_501_a_dead_peer_writes_no_more() {
    let mut rig = Rig::new();
    let (lease, _) = rig.offer(1);
    rig.hear(page(lease, 0));
    let place = rig.scheduler.table(RequestId(1)).unwrap().pages()[0];
    assert!(rig.scheduler.pool_mut().may_write(lease, place));
    let actions = rig.receiver.disconnected();
    rig.act(actions);
    assert!(!rig.scheduler.pool_mut().may_write(lease, place));
    assert_eq!(rig.scheduler.audit().unwrap().free, 3);
}

#[test]
fn o_501_nothing_is_kept_when_nothing_aborts() {
    let mut rig = Rig::new();
    for request in 1..=20 {
        let (lease, granted) = rig.offer(request);
        assert!(granted);
        for index in 0..2 {
            rig.hear(page(lease, index));
            rig.verified(lease, index, true);
        }
        let commit = rig.sender.pages_sent(lease).unwrap();
        rig.hear(commit);
        assert_eq!(rig.leased_and_running(), (0, 1));
        let finish = [DecodeEvent::Finish(RequestId(request))];
        rig.scheduler.step(Micros(0), finish, &mut rig.batch);
        assert_eq!(rig.scheduler.audit().unwrap().free, 3);
    }
}

#[test]
fn o_502_the_decode_pool_frees_what_it_had_set_aside() {
    for pages in 0..=2 {
        let mut rig = Rig::new();
        let (lease, _) = rig.offer(1);
        for index in 0..pages {
            rig.hear(page(lease, index));
            rig.verified(lease, index, true);
        }
        let reason = AbortReason::Prefill { reason: "bad parameter".into() };
        for message in rig.sender.abort(RequestId(1), reason) {
            rig.hear(message);
        }
        assert!(rig.batch.seqs.is_empty(), "no token may come of {pages} pages");
        assert_eq!(rig.scheduler.audit().unwrap().free, 3);
    }
}

#[test]
fn o_502_prefill_refuses_after_decode_was_told() {
    let reason = AbortReason::Prefill { reason: "out of memory".into() };
    for pages in 0..=2 {
        let (mut sender, mut receiver) = connected(1);
        let lease = leased(&mut sender, &mut receiver, 1);
        for index in 0..pages {
            receiver.on_message(page(lease, index));
            assert!(!runs(&receiver.page_verified(lease, index, true)));
        }
        let messages = sender.abort(RequestId(1), reason.clone());
        let heard: Vec<_> = messages.into_iter().flat_map(|m| receiver.on_message(m)).collect();
        let failed = ReceiverAction::Failed(RequestId(1), reason.clone());
        assert_eq!(heard, [failed, ReceiverAction::Fenced(lease)]);
        assert!(sender.pages_sent(lease).is_none());
    }
}

#[test]
fn o_503_two_pools_configured_differently() {
    type Change = fn(&mut Descriptor);
    let changes: [(&str, Change); 8] = [
        ("page_size", |d| d.page_size = 32),
        ("kv_entry", |d| d.kv_entry = 48),
        ("num_layers", |d| d.num_layers = 3),
        ("rope", |d| d.rope = "theta 50000".into()),
        ("model_fingerprint", |d| d.model_fingerprint = "g".into()),
        ("integrity", |d| d.integrity = false),
        ("speculative_layers", |d| d.speculative_layers = 1),
        ("protocol_version", |d| d.protocol_version += 1),
    ];
    for (field, change) in changes {
        let mut theirs = descriptor();
        change(&mut theirs);
        let (mut sender, mut receiver) = (Sender::new(1), Receiver::new(descriptor()));
        let actions = receiver.on_message(sender.hello(theirs));
        let [ReceiverAction::Send(answer)] = &actions[..] else { panic!("{actions:?}") };
        let Signal::Refused(differences) = &answer.signal else { panic!("{answer:?}") };
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].field, field);
        assert_ne!(differences[0].ours, differences[0].theirs);
        assert!(receiver.on_message(sender.offer(offer(1))).is_empty());
    }
    let mut theirs = descriptor();
    (theirs.weights, theirs.kv_format) = ("int4".into(), "fp8_e4m3".into());
    assert!(descriptor().differences(&theirs).is_empty());
}

#[test]
fn o_504_same_transfer_id_twice() {
    let (mut sender, mut receiver) = connected(1);
    // The same request id again is another transfer, and a repeated offer is not a second one.
    let (first, second) = (sender.offer(offer(1)), sender.offer(offer(1)));
    assert_ne!(first.lease, second.lease);
    assert_eq!(receiver.on_message(first.clone()).len(), 1);
    assert_eq!(receiver.on_message(first.clone()).len(), 0);
    receiver.abort(RequestId(1), AbortReason::Client);
    assert_eq!(receiver.on_message(first).len(), 0);
}

#[test]
fn o_504_an_id_is_free_again_after_finish_and_after_abort() {
    let mut rig = Rig::new();
    let mut leases = Vec::new();
    for id in [0, 1, u64::MAX, 1 << 63] {
        for aborts in [true, false, true] {
            let (lease, granted) = rig.offer(id);
            assert!(granted && !leases.contains(&lease));
            leases.push(lease);
            if aborts {
                for message in rig.sender.abort(RequestId(id), AbortReason::Client) {
                    rig.hear(message);
                }
            } else {
                for index in 0..2 {
                    rig.hear(page(lease, index));
                    rig.verified(lease, index, true);
                }
                let commit = rig.sender.pages_sent(lease).unwrap();
                let sent = rig.hear(commit);
                assert!(matches!(
                    rig.sender.on_message(sent[0].clone())[..],
                    [SenderAction::HandedOff(request)] if request == RequestId(id)
                ));
                let finish = [DecodeEvent::Finish(RequestId(id))];
                rig.scheduler.step(Micros(0), finish, &mut rig.batch);
            }
            assert_eq!(rig.scheduler.audit().unwrap().free, 3);
        }
    }
}

#[test]
fn o_504_a_late_copy_of_an_offer_begins_nothing() {
    let mut rig = Rig::new();
    let message = rig.sender.offer(offer(1));
    let lease = message.lease;
    rig.hear(message.clone());
    let lent = rig.receiver.granted(lease, 2).unwrap();
    rig.sender.on_message(lent);
    for index in 0..2 {
        rig.hear(page(lease, index));
        rig.verified(lease, index, true);
    }
    let commit = rig.sender.pages_sent(lease).unwrap();
    rig.hear(commit);
    assert_eq!(rig.leased_and_running(), (0, 1));
    // It runs, and goes on running with the pages that it has.
    rig.hear(message.clone());
    assert_eq!((rig.leased_and_running(), rig.batch.grants.len()), ((0, 1), 0));
    rig.scheduler.step(Micros(0), [DecodeEvent::Finish(RequestId(1))], &mut rig.batch);
    rig.hear(message);
    assert_eq!((rig.scheduler.num_waiting(), rig.scheduler.num_running()), (0, 0));
}

#[test]
fn o_505_peer_restarted_at_the_same_address() {
    let (mut old, mut receiver) = connected(1);
    let lease = leased(&mut old, &mut receiver, 1);
    let mut new = Sender::new(2);
    let actions = receiver.on_message(new.hello(descriptor()));
    let failed = ReceiverAction::Failed(RequestId(1), AbortReason::PeerRestarted);
    assert_eq!(actions[..2], [failed, ReceiverAction::Fenced(lease)]);
    let new_lease = leased(&mut new, &mut receiver, 2);
    assert_eq!(lease.transfer, new_lease.transfer);
    assert!(receiver.on_message(page(lease, 0)).is_empty(), "an old write is refused");
    assert!(receiver.on_message(old.hello(descriptor())).is_empty());
    assert_eq!(receiver.on_message(page(new_lease, 0)).len(), 1);
}

#[test]
fn o_505_idle_restart_of_the_prefill_pool() {
    let (_, mut receiver) = connected(1);
    let mut new = Sender::new(2);
    let actions = receiver.on_message(new.hello(descriptor()));
    let [ReceiverAction::Send(ack)] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(new.on_message(ack.clone())[..], [SenderAction::Ready(_)]));
    leased(&mut new, &mut receiver, 1);
}

#[test]
fn o_505_restart_of_the_decode_pool() {
    let (mut sender, mut old) = connected(1);
    let lease = leased(&mut sender, &mut old, 1);
    sender.pages_sent(lease).unwrap();
    let failed = SenderAction::Failed(RequestId(1), AbortReason::PeerRestarted);
    assert_eq!(sender.disconnected(2), [failed]);
    // What the dead process had still sent is about nobody.
    let stale = Message { lease, signal: Signal::Committed };
    assert!(sender.on_message(stale).is_empty());
    let mut new = Receiver::new(descriptor());
    assert!(new.on_message(page(lease, 0)).is_empty());
    assert_eq!(new.on_message(sender.hello(descriptor())).len(), 1);
    let again = leased(&mut sender, &mut new, 2);
    assert_ne!(lease, again);
    assert!(new.on_message(page(lease, 0)).is_empty(), "an old write is refused");
    for index in 0..2 {
        new.on_message(page(again, index));
        new.page_verified(again, index, true);
    }
    assert!(runs(&new.on_message(sender.pages_sent(again).unwrap())));
}

#[test]
fn o_506_mismatch_ends_before_the_first_token() {
    let (mut sender, mut receiver) = connected(1);
    let lease = leased(&mut sender, &mut receiver, 1);
    receiver.on_message(page(lease, 0));
    receiver.on_message(page(lease, 1));
    let commit = sender.pages_sent(lease).unwrap();
    assert!(receiver.on_message(commit).is_empty(), "not before every page is verified");
    assert!(receiver.page_verified(lease, 0, true).is_empty());
    let actions = receiver.page_verified(lease, 1, false);
    let reason = AbortReason::Digest { index: 1 };
    assert_eq!(actions[1], ReceiverAction::Failed(RequestId(1), reason.clone()));
    assert!(!runs(&actions) && receiver.page_verified(lease, 1, true).is_empty());
    let ReceiverAction::Send(abort) = actions[0].clone() else { panic!("{actions:?}") };
    let heard = sender.on_message(abort);
    assert_eq!(heard[1], SenderAction::Failed(RequestId(1), reason), "so nothing is published");
    // And when all is well, the request runs exactly once.
    let lease = leased(&mut sender, &mut receiver, 2);
    receiver.on_message(page(lease, 1));
    receiver.on_message(page(lease, 0));
    receiver.page_verified(lease, 1, true);
    receiver.page_verified(lease, 0, true);
    assert!(runs(&receiver.on_message(sender.pages_sent(lease).unwrap())));
}
