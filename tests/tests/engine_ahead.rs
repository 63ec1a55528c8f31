//! Steps that are asked for before the last one is finished: whatever ends meanwhile, every answer is
//! that of an engine which finishes each step first, and every page comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_kernels::launch::Launch;
use tessera_runtime::device::DeviceError;
use tessera_runtime::engine::{EngineModel, Events, Fault};
use tessera_runtime::request::{FinishReason, GenerateRequest, IntegrityKind, RequestError};
use tessera_tests::engine::{
    Engine, Hook, Said, Sizes, config, count, golden, greedy, likeliest, model, no_hook, prompt,
};

fn golden_model() -> EngineModel {
    model(&golden("deepseek_v3"), ["checkpoint"; 2])
}

/// An engine that finishes each step before the next.
fn in_turn(sizes: &Sizes) -> Engine {
    let model = golden_model();
    Engine::start(config(&model.spec, sizes), model).expect("settings that work")
}

fn ahead_with(sizes: &Sizes, model: EngineModel, hook: Hook) -> Engine {
    Engine::ahead(config(&model.spec, sizes), model, [no_hook(), hook])
}

fn ahead(sizes: &Sizes) -> Engine {
    ahead_with(sizes, golden_model(), no_hook())
}

/// Requests of several lengths, some of one token.
fn requests() -> Vec<GenerateRequest> {
    let lens = [1, 2, 30, 17, 3, 24];
    (1..).zip(lens).map(|(r, len)| likeliest(&prompt(r, 10 + r), len)).collect()
}

#[test]
fn answers_are_those_of_steps_in_turn() {
    let engine = in_turn(&Sizes::default());
    let mut all = requests();
    let said = engine.ask_all(all.clone());
    // Stop tokens: the step in flight when one is found is for nothing.
    for (request, said) in all.iter_mut().zip(&said).skip(2) {
        let ids = said.ids();
        request.stop_token_ids = Arc::from([ids[ids.len() / 2]]);
    }
    let mut expected = said;
    expected.extend(engine.ask_all(all.clone()));
    assert!(expected[8].end.as_ref().is_ok_and(|(reason, _)| *reason == FinishReason::Stop));
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().decode_steps_ahead_total), 0);

    let engine = ahead(&Sizes::default());
    let mut got = engine.ask_all(requests());
    got.extend(engine.ask_all(all));
    assert_eq!(got, expected);
    let handle = engine.finish(0);
    let metrics = handle.metrics();
    // All but those that came after a pause.
    assert!(count(&metrics.decode_steps_ahead_total) >= 40, "{metrics:?}");
    let tokens: usize = got.iter().map(|said| said.tokens.len()).sum();
    assert_eq!(count(&metrics.generation_tokens_total), tokens as u64);
}

#[test]
fn preemption_changes_no_token() {
    let requests = || (0..5).map(|r| likeliest(&prompt(r + 1, 10), 30)).collect::<Vec<_>>();
    let engine = in_turn(&Sizes::default());
    let expected = engine.ask_all(requests());
    engine.finish(0);
    let engine = ahead(&Sizes { pages: [64, 8], ..Sizes::default() });
    assert_eq!(engine.ask_all(requests()), expected);
    let handle = engine.finish(0);
    let metrics = handle.metrics();
    assert!(count(&metrics.preempted_requests_total) > 0, "nothing was preempted");
    assert!(count(&metrics.decode_steps_ahead_total) > 0);
    assert_eq!(count(&metrics.generation_tokens_total), 5 * 30);
}

/// What the host samples is finished before the next step is asked for, for all of its batch.
#[test]
fn what_the_host_samples_is_waited_for() {
    let mut drawn = greedy(&prompt(3, 12), 30);
    let mut params = (*drawn.sampling).clone();
    (params.temperature, params.frequency_penalty, params.seed) = (0.9, 0.5, 7);
    drawn.sampling = Arc::new(params);
    let mut all = requests();
    all.push(drawn.clone());
    let engine = in_turn(&Sizes::default());
    let expected = engine.ask_all(all.clone());
    engine.finish(0);
    let engine = ahead(&Sizes::default());
    assert_eq!(engine.ask(drawn), expected[6]);
    assert_eq!(count(&engine.handle.metrics().decode_steps_ahead_total), 0);
    assert_eq!(engine.ask_all(all), expected);
    engine.finish(0);
}

fn check_fault(fault: Fault) {
    let requests = || (1..=4).map(|r| likeliest(&prompt(r, 21), 30)).collect::<Vec<_>>();
    let engine = in_turn(&Sizes::default());
    let expected = engine.ask_all(requests());
    engine.finish(0);
    let engine = ahead(&Sizes::default());
    let mut events: Vec<Events> = requests().into_iter().map(|r| engine.submit(r)).collect();
    assert!(events[0].blocking_recv().is_some());
    engine.handle.inject(fault).expect("a running engine");
    let said: Vec<Said> = events.into_iter().map(Said::read).collect();
    let hit: Vec<usize> = (0..said.len()).filter(|&r| said[r].end.is_err()).collect();
    assert_eq!(hit.len(), 1, "{fault:?} ended {hit:?}");
    for (r, (said, expected)) in said.iter().zip(&expected).enumerate() {
        // The first token of the first was read above.
        let expected_tokens = &expected.tokens[usize::from(r == 0)..];
        if r == hit[0] {
            let kind = IntegrityKind::PageTag;
            assert_eq!(said.end, Err(RequestError::KvIntegrity { kind }));
            assert_eq!(said.tokens, expected_tokens[..said.tokens.len()]);
            assert!(said.tokens.len() < expected_tokens.len());
        } else {
            assert_eq!((&*said.tokens, &said.end), (expected_tokens, &expected.end), "{r}");
        }
    }
    assert_eq!(engine.ask(requests().swap_remove(hit[0])), expected[hit[0]]);
    engine.finish(1);
}

#[test]
fn a_wrong_tag_ends_its_request_alone_and_before_its_token() {
    check_fault(Fault::PageTag);
    check_fault(Fault::PageTableEntry);
}

/// The step in flight has read a token that is none.
#[test]
fn logits_that_are_not_finite_end_their_request_alone() {
    let requests = || (1..=3).map(|r| likeliest(&prompt(r, 21), 30)).collect::<Vec<_>>();
    let engine = in_turn(&Sizes::default());
    let expected = engine.ask_all(requests());
    engine.finish(0);
    let others = [expected[0].ids(), expected[2].ids()].concat();
    let answer = expected[1].ids();
    let at = (1..29).find(|&at| !others.contains(&answer[at])).expect("a token of its own");
    let at = answer.iter().position(|id| *id == answer[at]).unwrap();
    let mut model = golden_model();
    let table = &mut model.decode.embed_tokens;
    let row_bytes = table.codes.len() / table.rows;
    let mut codes = table.codes.to_vec();
    codes[answer[at] as usize * row_bytes..][..row_bytes].fill(0xFF);
    table.codes = codes.into();
    let engine = ahead_with(&Sizes::default(), model, no_hook());
    let said = engine.ask_all(requests());
    let position = 21 + at as u64 + 1;
    assert_eq!(said[1].end, Err(RequestError::NonFiniteLogits { position }));
    assert_eq!(said[1].tokens, expected[1].tokens[..=at]);
    assert_eq!([&said[0], &said[2]], [&expected[0], &expected[2]]);
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().nan_logits_total), 1);
}

/// Clients that leave at any moment, in a pool in which somebody always waits for the pages.
#[test]
fn what_nobody_waits_for_gives_its_pages_back() {
    let engine = in_turn(&Sizes::default());
    let expected = engine.ask(likeliest(&prompt(1, 10), 40));
    engine.finish(0);
    let engine = ahead(&Sizes { pages: [64, 8], max_seqs: 3, ..Sizes::default() });
    for round in 0..6 {
        let stays = engine.submit(likeliest(&prompt(1, 10), 40));
        let leaves = [2, 3, 4].map(|r| engine.submit(likeliest(&prompt(r, 10), 40)));
        for (seen, mut events) in leaves.into_iter().enumerate() {
            for _ in 0..(seen * 3 + round) % 7 {
                assert!(events.blocking_recv().is_some());
            }
        }
        assert_eq!(Said::read(stays).ids(), expected.ids());
    }
    engine.finish(0);
}

/// A device that fails when the step after the one in flight is asked for.
#[test]
fn a_device_that_fails_with_a_step_in_flight_ends_every_request() {
    for fails_at in 12..16 {
        let passes = AtomicU64::new(0);
        let hook: Hook = Arc::new(move |launch| match launch {
            Launch::Embedding(_) if passes.fetch_add(1, Ordering::Relaxed) == fails_at => {
                Err(DeviceError::Threads { reason: "the device is on fire".to_owned() })
            }
            _ => Ok(()),
        });
        let engine = ahead_with(&Sizes::default(), golden_model(), hook);
        let running = [1, 2, 3].map(|r| engine.submit(likeliest(&prompt(r, 9), 200)));
        for events in running {
            let end = Said::read(events).end;
            assert!(matches!(end, Err(RequestError::EngineDied { .. })), "{end:?}");
        }
        let error = engine.threads.join().expect_err("a pool that died").to_string();
        assert!(error.starts_with("the engine stopped: decode pool: device: "), "{error}");
    }
}
