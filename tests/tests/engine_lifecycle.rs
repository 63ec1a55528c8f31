//! Every way a request can end, and that each gives everything back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_runtime::device::DeviceError;
use tessera_runtime::engine::{EngineConfig, EngineModel, Events};
use tessera_runtime::request::{FinishReason, GenerateRequest, RequestError, RequestId};
use tessera_tests::engine::{
    Engine, Gate, Hook, Said, Sizes, config, count, golden, greedy, model, no_hook, prompt,
    wait_until,
};

fn golden_model() -> EngineModel {
    model(&golden("deepseek_v3"), ["checkpoint"; 2])
}

fn started(sizes: &Sizes) -> Engine {
    let model = golden_model();
    Engine::start(config(&model.spec, sizes), model).expect("settings that work")
}

fn hooked(sizes: &Sizes, hooks: [Hook; 2]) -> Engine {
    let model = golden_model();
    let config: EngineConfig = config(&model.spec, sizes);
    Engine::hooked(config, model, hooks)
}

/// How a client gives up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum GiveUp {
    Abort,
    Drop,
}

impl GiveUp {
    const BOTH: [Self; 2] = [Self::Abort, Self::Drop];

    /// Gives `events` up, and waits until the engine has heard of it.
    fn on(self, engine: &Engine, (id, events): (RequestId, Events)) {
        let aborted = &engine.handle.metrics().aborted_requests_total;
        let before = count(aborted);
        match self {
            Self::Drop => drop(events),
            Self::Abort => {
                engine.handle.abort(id).expect("a running engine");
                // Twice is no error, and neither is an id that nobody has.
                engine.handle.abort(id).expect("a running engine");
                engine.handle.abort(RequestId(u64::MAX)).expect("a running engine");
                assert_eq!(Said::read(events).end, Err(RequestError::Aborted));
            }
        }
        wait_until("the abort", || count(aborted) == before + 1);
    }
}

/// The survival probe, and the balance of all pages.
fn ends_well(engine: Engine) {
    assert_eq!(engine.ask(greedy(&prompt(9, 5), 4)).whole().len(), 4);
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().requests_finished_total), 1);
    assert_eq!(count(&handle.metrics().requests_failed_total), 0);
}

#[test]
fn o_402_given_up_while_queued_waiting_for_the_decode_pool_and_decoding() {
    for give_up in GiveUp::BOTH {
        let gate = Gate::new();
        let sizes = Sizes { pages: [4, 8], ..Sizes::default() };
        let engine = hooked(&sizes, [no_hook(), gate.hook()]);
        let prefill = &engine.handle.metrics().prefill;
        gate.set_open(false);
        // Holds the decode pool's thread in its first step.
        let decoding = engine.handle.submit(greedy(&prompt(1, 9), 20)).unwrap();
        gate.wait_for_someone();
        wait_until("the hand-off's end", || count(&prefill.running_reqs) == 0);
        let offered = engine.handle.submit(greedy(&prompt(2, 21), 8)).unwrap();
        wait_until("the prompt read", || count(&prefill.steps_total) == 2);
        let queued = engine.handle.submit(greedy(&prompt(3, 12), 8)).unwrap();
        wait_until("the queue", || count(&prefill.queue_reqs) == 1);

        give_up.on(&engine, queued);
        wait_until("the empty queue", || count(&prefill.queue_reqs) == 0);
        give_up.on(&engine, offered);
        wait_until("the idle pool", || count(&prefill.running_reqs) == 0);
        give_up.on(&engine, decoding);
        gate.set_open(true);
        ends_well(engine);
    }
}

#[test]
fn o_402_given_up_between_prefill_chunks() {
    for give_up in GiveUp::BOTH {
        let gate = Gate::new();
        let engine = hooked(&Sizes::default(), [gate.hook(), no_hook()]);
        gate.set_open(false);
        let id = {
            let request = engine.handle.submit(greedy(&prompt(1, 200), 40)).unwrap();
            gate.wait_for_someone();
            let id = request.0;
            match give_up {
                // The thread is in a step, so nobody hears of it yet.
                GiveUp::Abort => engine.handle.abort(id).unwrap(),
                GiveUp::Drop => drop(request),
            }
            id
        };
        gate.set_open(true);
        let aborted = &engine.handle.metrics().aborted_requests_total;
        wait_until("the abort", || count(aborted) == 1);
        engine.handle.abort(id).unwrap();
        // The first of its four chunks, and then no other.
        assert_eq!(count(&engine.handle.metrics().prefill.steps_total), 1);
        ends_well(engine);
    }
}

/// Passes `count` forward passes and stops at the gate before the next.
fn after(passes: u64, gate: &Arc<Gate>) -> Hook {
    let hook = gate.hook();
    let seen = std::sync::atomic::AtomicU64::new(0);
    Arc::new(move |launch| {
        let is_pass = matches!(launch, tessera_kernels::launch::Launch::Embedding(_));
        if is_pass && seen.fetch_add(1, Ordering::Relaxed) >= passes {
            hook(launch)
        } else {
            Ok(())
        }
    })
}

#[test]
fn o_402_given_up_while_preempted() {
    for give_up in GiveUp::BOTH {
        let gate = Gate::new();
        // Room for one of the two in full: the younger has to make room for the older.
        let sizes = Sizes { pages: [16, 7], ..Sizes::default() };
        // The warm-up and both prompts; what comes after is a prompt read again.
        let decode = Gate::new();
        let engine = hooked(&sizes, [after(3, &gate), decode.hook()]);
        gate.set_open(false);
        decode.set_open(false);
        let metrics = engine.handle.metrics();
        let older = engine.submit(greedy(&prompt(1, 9), 40));
        // Held in its first step, so that the two meet in the pool.
        decode.wait_for_someone();
        let younger = engine.handle.submit(greedy(&prompt(2, 9), 40)).unwrap();
        wait_until("both prompts read", || count(&metrics.prefill.steps_total) == 2);
        decode.set_open(true);
        gate.wait_for_someone();
        assert_eq!(count(&metrics.preempted_requests_total), 1);
        match give_up {
            GiveUp::Abort => engine.handle.abort(younger.0).unwrap(),
            GiveUp::Drop => drop(younger),
        }
        gate.set_open(true);
        wait_until("the abort", || count(&metrics.aborted_requests_total) == 1);
        assert_eq!(Said::read(older).whole().len(), 40);
        let handle = engine.finish(0);
        assert_eq!(count(&handle.metrics().requests_finished_total), 1);
    }
}

#[test]
fn o_401_what_can_never_fit_is_refused_with_the_arithmetic() {
    let engine = started(&Sizes { pages: [16, 8], ..Sizes::default() });
    let never = engine.submit(greedy(&prompt(1, 60), 10));
    let next = engine.submit(greedy(&prompt(2, 10), 4));
    let error = Said::read(never).end.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request of 60 prompt tokens and up to 10 generated ones needs 9 pages of 8 tokens, but \
         the decode pool has 8"
    );
    assert_eq!(Said::read(next).whole().len(), 4);
    engine.finish(0);
}

fn sampled(seed: u64, choice: u32, prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let mut request = greedy(prompt, max_tokens);
    let mut params = (*request.sampling).clone();
    (params.temperature, params.seed, params.choice) = (1.0, seed, choice);
    request.sampling = Arc::new(params);
    request
}

#[test]
fn preemption_changes_no_token() {
    let requests = || (0..4).map(|r| greedy(&prompt(r + 1, 10), 30)).collect::<Vec<_>>();
    let roomy = started(&Sizes::default());
    let expected: Vec<_> = roomy.ask_all(requests()).iter().map(Said::whole).collect();
    let handle = roomy.finish(0);
    assert_eq!(count(&handle.metrics().preempted_requests_total), 0);

    let tight = started(&Sizes { pages: [64, 8], ..Sizes::default() });
    let said: Vec<_> = tight.ask_all(requests()).iter().map(Said::whole).collect();
    let handle = tight.finish(0);
    assert!(count(&handle.metrics().preempted_requests_total) > 0, "nothing was preempted");
    assert_eq!(said, expected);
    // Each token is counted once, however often its place in the cache was computed.
    assert_eq!(count(&handle.metrics().generation_tokens_total), 4 * 30);
    assert_eq!(count(&handle.metrics().prompt_tokens_total), 4 * 10);
}

#[test]
fn o_607_a_seed_means_the_same_alone_and_in_company() {
    const SEEDS: [u64; 3] = [7, u64::MAX, 1 << 63];
    let shared = prompt(1, 10);
    let alone: Vec<_> = SEEDS
        .iter()
        .map(|&seed| {
            let engine = started(&Sizes::default());
            let ids = engine.ask(sampled(seed, 0, &shared, 30)).whole();
            engine.finish(0);
            ids
        })
        .collect();
    // In company, at other places in the batch, twice at once, and with preemption.
    for pages in [[64, 64], [64, 8]] {
        let engine = started(&Sizes { pages, ..Sizes::default() });
        let mut requests = vec![sampled(1, 0, &prompt(5, 10), 30), greedy(&prompt(6, 10), 30)];
        requests.extend(SEEDS.iter().map(|&seed| sampled(seed, 0, &shared, 30)));
        requests.push(sampled(SEEDS[0], 0, &shared, 30));
        let said: Vec<_> = engine.ask_all(requests).iter().map(Said::whole).collect();
        assert_eq!(said[2..5], alone);
        assert_eq!(said[5], alone[0]);
        let handle = engine.finish(0);
        let preempted = count(&handle.metrics().preempted_requests_total);
        assert_eq!(preempted > 0, pages == [64, 8]);
    }
    let engine = started(&Sizes::default());
    let choices = || (0..3).map(|c| sampled(7, c, &shared, 30)).collect::<Vec<_>>();
    let first: Vec<_> = engine.ask_all(choices()).iter().map(Said::whole).collect();
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    assert_eq!(engine.ask_all(choices()).iter().map(Said::whole).collect::<Vec<_>>(), first);
    engine.finish(0);
}

#[test]
fn a_cached_prefix_is_shared_within_its_salt_alone() {
    let engine = started(&Sizes::default());
    let ask = |salt: Option<&str>| {
        let mut request = greedy(&prompt(1, 21), 8);
        request.cache_salt = salt.map(Arc::from);
        let said = engine.ask(request);
        // The end of the hand-off publishes the prompt, and is not told to the client.
        let running = &engine.handle.metrics().prefill.running_reqs;
        wait_until("the idle prefill pool", || count(running) == 0);
        (said.ids(), said.end.unwrap().1)
    };
    let (ids, cached) = ask(Some("a"));
    assert_eq!(cached, 0);
    // Two full pages of eight.
    for (salt, cached) in [(Some("a"), 16), (Some("b"), 0), (None, 0), (None, 0), (Some("a"), 16)] {
        assert_eq!(ask(salt), (ids.clone(), cached), "{salt:?}");
    }
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().cached_tokens_total), 32);
    assert!(count(&handle.metrics().prefill.pages_cached) > 0);
}

#[test]
fn draining_finishes_what_runs_and_refuses_what_comes() {
    let engine = started(&Sizes::default());
    let running = engine.submit(greedy(&prompt(1, 9), 60));
    engine.handle.drain().unwrap();
    let late = engine.submit(greedy(&prompt(2, 9), 4));
    assert_eq!(Said::read(late).end, Err(RequestError::ShuttingDown));
    assert_eq!(Said::read(running).whole().len(), 60);
    let handle = engine.finish_drained(0);
    let gone = handle.submit(greedy(&prompt(3, 9), 4)).unwrap_err();
    assert!(matches!(gone, RequestError::EngineDied { .. }));
    assert!(!handle.metrics().ready.load(Ordering::Relaxed));
}

#[test]
fn dropping_every_handle_ends_the_engine_after_what_runs() {
    let Engine { handle, threads } = started(&Sizes::default());
    let clone = handle.clone();
    let events = clone.submit(greedy(&prompt(1, 9), 60)).unwrap().1;
    drop((handle, clone));
    assert_eq!(Said::read(events).whole().len(), 60);
    threads.join().unwrap();
}

#[test]
fn dropping_handles_and_events_ends_the_engine_too() {
    let Engine { handle, threads } = started(&Sizes::default());
    let events = handle.submit(greedy(&prompt(1, 9), 400)).unwrap().1;
    drop(handle);
    drop(events);
    threads.join().unwrap();
}

/// Two running and one arriving request, and a device that fails or panics under one pool.
fn engine_dies(pool: usize, panics: bool) {
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let hook: Hook = Arc::new(move |_| match armed.load(Ordering::Relaxed) {
        false => Ok(()),
        true if panics => panic!("the device's driver has a bug"),
        true => Err(DeviceError::Threads { reason: "the device is on fire".to_owned() }),
    });
    let mut hooks = [no_hook(), no_hook()];
    hooks[pool] = hook;
    let engine = hooked(&Sizes::default(), hooks);
    let mut running = [1, 2].map(|r| engine.submit(greedy(&prompt(r, 9), 400)));
    for events in &mut running {
        assert!(events.blocking_recv().is_some());
    }
    is_armed.store(true, Ordering::Relaxed);
    let mut all: Vec<Events> = running.into();
    // It may be refused already, if the pool was quick to die.
    all.extend(engine.handle.submit(greedy(&prompt(3, 9), 400)).ok().map(|(_, events)| events));
    for (i, events) in all.into_iter().enumerate() {
        let end = Said::read(events).end;
        // What runs needs nothing more of the prefill pool: it may be done before that has died.
        let is_done = pool == 0 && i < 2 && matches!(end, Ok((FinishReason::Length, _)));
        assert!(is_done || matches!(end, Err(RequestError::EngineDied { .. })), "{end:?}");
    }
    let error = engine.threads.join().expect_err("a pool that died").to_string();
    if !panics {
        let name = ["prefill", "decode"][pool];
        let want = format!("the engine stopped: {name} pool: device: worker threads: the device");
        assert!(error.starts_with(&want), "{error}");
    }
    assert!(!engine.handle.metrics().ready.load(Ordering::Relaxed));
    assert!(engine.handle.submit(greedy(&prompt(4, 9), 4)).is_err());
}

#[test]
fn a_device_that_fails_ends_every_request() {
    engine_dies(0, false);
    engine_dies(1, false);
}

#[test]
fn a_pool_that_panics_ends_every_request() {
    engine_dies(0, true);
    engine_dies(1, true);
}

/// Makes the embedding of `token` all NaN.
fn poison(model: &mut EngineModel, pools: [bool; 2], token: u32) {
    for (weights, _) in
        [&mut model.prefill, &mut model.decode].into_iter().zip(pools).filter(|(_, hit)| *hit)
    {
        let table = &mut weights.embed_tokens;
        let row_bytes = table.codes.len() / table.rows;
        let mut codes = table.codes.to_vec();
        // Every bit set is a NaN in bf16 and in f32.
        codes[token as usize * row_bytes..][..row_bytes].fill(0xFF);
        table.codes = codes.into();
    }
}

#[test]
fn o_608_nan_logits_of_a_prompt_end_it_alone() {
    const POISON: u32 = 277;
    let requests = || (1..=3).map(|r| greedy(&prompt(r, 21), 30)).collect::<Vec<_>>();
    let sound = started(&Sizes::default());
    let expected = sound.ask_all(requests());
    sound.finish(0);
    assert!(expected.iter().all(|said| !said.ids().contains(&POISON)), "choose another token");

    let mut model = golden_model();
    poison(&mut model, [true, true], POISON);
    let sizes = Sizes { step_tokens: 16, ..Sizes::default() };
    let engine = Engine::start(config(&model.spec, &sizes), model).unwrap();
    let mut bad = prompt(4, 60);
    bad[3] = POISON;
    let mut bad = greedy(&bad, 8);
    bad.cache_salt = Some(Arc::from("shared"));
    let mut with_bad = requests();
    with_bad.insert(1, bad.clone());
    let mut said = engine.ask_all(with_bad);
    let failed = said.remove(1);
    assert_eq!(failed.end, Err(RequestError::NonFiniteLogits { position: 60 }));
    assert_eq!(failed.tokens, []);
    assert_eq!(said.iter().map(Said::ids).collect::<Vec<_>>(), ids(&expected));
    // Nothing of it was kept for others: it is read again, and fails again.
    assert!(engine.ask(bad).end.is_err());
    // Every page of the pool is used again, poisoned ones included.
    let again =
        engine.ask_all((1..=3).cycle().take(12).map(|r| greedy(&prompt(r, 21), 30)).collect());
    for (r, said) in again.iter().enumerate() {
        assert_eq!(said.ids(), expected[r % 3].ids());
    }
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().nan_logits_total), 2);
    assert_eq!(count(&handle.metrics().requests_failed_total), 2);
    assert_eq!(count(&handle.metrics().cached_tokens_total), 0);
}

fn ids(said: &[Said]) -> Vec<Vec<u32>> {
    said.iter().map(Said::ids).collect()
}

#[test]
fn o_608_nan_logits_while_decoding_end_the_request_alone() {
    let requests = || (1..=3).map(|r| greedy(&prompt(r, 21), 30)).collect::<Vec<_>>();
    let sound = started(&Sizes::default());
    let expected = sound.ask_all(requests());
    sound.finish(0);
    // A token that only the second answer has, and not at its very end.
    let others = [expected[0].ids(), expected[2].ids()].concat();
    let answer = expected[1].ids();
    let at = (1..29).find(|&at| !others.contains(&answer[at])).expect("a token of its own");
    let at = answer.iter().position(|id| *id == answer[at]).unwrap();

    let mut model = golden_model();
    poison(&mut model, [false, true], answer[at]);
    let engine = Engine::start(config(&model.spec, &Sizes::default()), model).unwrap();
    let said = engine.ask_all(requests());
    let position = 21 + at as u64 + 1;
    assert_eq!(said[1].end, Err(RequestError::NonFiniteLogits { position }));
    assert_eq!(said[1].tokens, expected[1].tokens[..=at]);
    for r in [0, 2] {
        assert_eq!(said[r], expected[r], "request {r} noticed");
    }
    let handle = engine.finish(0);
    assert_eq!(count(&handle.metrics().nan_logits_total), 1);
}
