//! Field cases of the hand-off, on its state machines; digests themselves are tested elsewhere.

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
