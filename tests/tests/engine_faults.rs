//! Damage done on purpose: one request ends, every other stream is what it would have been.

use tessera_runtime::cache::{PageId, PageTag, TagTracker};
use tessera_runtime::device::{CacheSpec, CpuDevice, Device};
use tessera_runtime::engine::{EngineConfig, EngineModel, Fault, named_kv_format};
use tessera_runtime::model::{Attention, Forward, NewTokens, SeqInput, StepLimits};
use tessera_runtime::request::{FinishReason, GenerateRequest, IntegrityKind, RequestError};
use tessera_tests::engine::{
    Engine, Said, Sizes, config, count, golden, greedy, model, prompt, wait_until,
};

const NUM_REQUESTS: u32 = 6;
const MAX_TOKENS: usize = 40;

fn requests(prompt_tokens: u32) -> Vec<GenerateRequest> {
    (0..NUM_REQUESTS).map(|r| greedy(&prompt(r + 1, prompt_tokens), MAX_TOKENS)).collect()
}

fn started(change: impl FnOnce(&mut EngineConfig)) -> Engine {
    let model = model(&golden("deepseek_v3"), ["checkpoint"; 2]);
    let sizes = Sizes { kv: ["bf16", "bf16"], pages: [128, 128], ..Sizes::default() };
    let mut config = config(&model.spec, &sizes);
    change(&mut config);
    Engine::start(config, model).expect("settings that work")
}

/// Asks for all with `fault` injected first, so that it hits whoever reaches the place first.
fn with_fault(fault: Fault, prompt_tokens: u32) -> (Engine, Vec<Said>) {
    let engine = started(|_| {});
    engine.handle.inject(fault).expect("a running engine");
    let said = engine.ask_all(requests(prompt_tokens));
    (engine, said)
}

fn check(fault: Fault, kind: IntegrityKind, prompt_tokens: u32) {
    let sound = started(|_| {});
    let expected = sound.ask_all(requests(prompt_tokens));
    sound.finish(0);
    assert!(expected.iter().all(|said| said.whole().len() == MAX_TOKENS));

    let (engine, said) = with_fault(fault, prompt_tokens);
    let hit: Vec<usize> = (0..said.len()).filter(|&r| said[r].end.is_err()).collect();
    assert_eq!(hit.len(), 1, "{fault:?} ended {hit:?}");
    for (r, (said, expected)) in said.iter().zip(&expected).enumerate() {
        if r == hit[0] {
            assert_eq!(said.end, Err(RequestError::KvIntegrity { kind }));
            // What left before the fault is right; nothing that was computed from it left.
            assert_eq!(said.tokens, expected.tokens[..said.tokens.len()]);
            assert!(said.tokens.len() < MAX_TOKENS);
        } else {
            assert_eq!(said, expected, "request {r} noticed a fault of request {}", hit[0]);
        }
    }
    // The survival probe: what was asked for at the fault is answered in full afterwards.
    let again = engine.ask(requests(prompt_tokens).swap_remove(hit[0]));
    assert_eq!(again, expected[hit[0]]);
    let handle = engine.finish(1);
    let metrics = handle.metrics();
    let by_kind =
        [&metrics.kv_integrity_page_tag_total, &metrics.kv_integrity_page_digest_total].map(count);
    let want = if kind == IntegrityKind::PageTag { [1, 0] } else { [0, 1] };
    assert_eq!(by_kind, want);
    assert_eq!(count(&metrics.requests_failed_total), 1);
    assert_eq!(count(&metrics.requests_finished_total), u64::from(NUM_REQUESTS));
}

#[test]
fn a_changed_page_tag_ends_one_request() {
    check(Fault::PageTag, IntegrityKind::PageTag, 21);
}

#[test]
fn a_bent_page_table_ends_one_request() {
    check(Fault::PageTableEntry, IntegrityKind::PageTag, 21);
}

/// The bent entry is the one that the step would write to: the write must not reach the page of
/// whoever owns it, as its owner is to notice nothing.
#[test]
fn a_request_with_a_bent_page_table_writes_to_nobody() {
    let EngineModel { spec, prefill, .. } = model(&golden("deepseek_v3"), ["checkpoint"; 2]);
    let cache = CacheSpec {
        format: named_kv_format("bf16").unwrap(),
        num_layers: spec.num_layers,
        num_pages: 2,
        page_size: 8,
        entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
    };
    let limits = StepLimits { tokens: 16, seqs: 2, pages_per_seq: 2, logit_rows: 2 };
    let limits = (Attention::Absorbed, limits);
    let mut forward = Forward::new(CpuDevice::new(), &spec, prefill, cache, limits).unwrap();
    for page in [0, 1] {
        forward.set_page_tag(PageId(page), PageTag(u64::from(page) + 10)).unwrap();
    }
    let (owner, other) = (vec![PageTag(11)], vec![PageTag(10)]);
    let step = |pages, ledger, tokens| SeqInput::<'_, TagTracker> {
        tokens: NewTokens::Given(tokens),
        start: 0,
        pages,
        ledger,
        sample: None,
    };
    forward.step(&[step(&[PageId(1)], &owner, &[5, 6, 7])]).unwrap();
    let id = forward.cache();
    let before = forward.device().read_page(id, 1).unwrap();
    assert!(before.iter().any(|&byte| byte != 0));
    // In one step with a sound request, whose slots must stay what they are.
    let flagged = step(&[PageId(1)], &other, &[8, 9]);
    let outputs = forward.step(&[flagged, step(&[PageId(0)], &other, &[1, 2])]).unwrap();
    assert_eq!(outputs.iter().map(|o| o.bad_page).collect::<Vec<_>>(), [Some(0), None]);
    assert!(forward.device().read_page(id, 1).unwrap() == before, "another's page was written");
    assert!(forward.device().read_page(id, 0).unwrap().iter().any(|&byte| byte != 0));
}

#[test]
fn o_506_a_flipped_bit_in_flight_ends_one_request_before_its_first_token() {
    check(Fault::PageInFlight, IntegrityKind::PageDigest, 21);
    let (engine, said) = with_fault(Fault::PageInFlight, 21);
    let hit = said.iter().find(|said| said.end.is_err()).unwrap();
    assert!(hit.tokens.is_empty());
    engine.finish(1);
}

#[test]
fn a_fault_in_the_middle_of_a_stream_ends_it_there() {
    let engine = started(|_| {});
    let mut events = engine.submit(greedy(&prompt(1, 21), 400));
    events.blocking_recv().unwrap();
    engine.handle.inject(Fault::PageTag).unwrap();
    let said = Said::read(events);
    assert_eq!(said.end, Err(RequestError::KvIntegrity { kind: IntegrityKind::PageTag }));
    engine.finish(1);
}

/// What integrity is for: without it the same damage is served as if it were an answer.
#[test]
fn without_integrity_no_fault_is_reported() {
    for fault in [Fault::PageTag, Fault::PageTableEntry, Fault::PageInFlight] {
        let engine = started(|config| config.integrity = false);
        assert!(!engine.handle.info().integrity.enabled);
        engine.handle.inject(fault).unwrap();
        for said in engine.ask_all(requests(21)) {
            assert!(matches!(said.end, Ok((FinishReason::Length, 0))), "{fault:?}: {said:?}");
        }
        engine.finish(0);
    }
}

#[test]
fn a_quarantined_page_shrinks_the_pool() {
    let engine = started(|config| config.decode.kv_memory /= 16);
    let pages = engine.handle.info().pools[1].num_pages;
    assert_eq!(pages, 8);
    engine.handle.inject(Fault::PageTag).unwrap();
    assert!(engine.ask(greedy(&prompt(1, 21), 20)).end.is_err());
    let metrics = engine.handle.metrics();
    wait_until("the page in quarantine", || count(&metrics.decode.pages_quarantined) == 1);
    // All eight pages: it fits the pool as it was, and not as it is.
    let said = engine.ask(greedy(&prompt(2, 21), 43));
    let Err(RequestError::NeverFits { needed_pages, pool_pages, .. }) = said.end else {
        panic!("{said:?}");
    };
    assert_eq!((needed_pages, pool_pages), (8, 7));
    assert_eq!(engine.ask(greedy(&prompt(3, 21), 20)).whole().len(), 20);
    engine.finish(1);
}
