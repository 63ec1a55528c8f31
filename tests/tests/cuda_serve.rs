//! The bundled model served by the CUDA device under the stand-in driver.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use serde_json::{Value, json};
use std::net::SocketAddr;
use tessera::cli::{Cli, Command, DeviceKind, ServeArgs, start_engine};
use tessera::clock::Clock;
use tessera::http::{Server, ServerParts, ShutdownHandle};
use tessera::text::TextModel;
use tessera_runtime::engine::{EngineStopped, EngineThreads};
use tessera_tests::engine::tiny_kimi;
use tessera_tests::kernels::write_bundle;
use tessera_tests::stand_in::Program;
use tessera_tests::wire::{ask, chat, france, text};
use tokio::task::JoinHandle;

const PROGRAM: Program = Program { tmp: env!("CARGO_TARGET_TMPDIR") };

struct Served {
    addr: SocketAddr,
    shutdown: ShutdownHandle,
    run: JoinHandle<()>,
    threads: EngineThreads,
}

/// What `tessera serve --device cuda --kernels DIR --port 0 ARGS...` is told.
fn args(formats: &[&str], args: &[&str]) -> Box<ServeArgs> {
    let kernels = PROGRAM.folder(&format!("kernels-{}", std::process::id()));
    write_bundle(&kernels, formats);
    let kernels = kernels.to_str().unwrap();
    let all = ["tessera", "serve", "--port", "0", "--device", "cuda", "--kernels", kernels];
    // A small cache: the stand-in driver's memory is the host's.
    let all = [&all[..], &["--kv-memory", "4MiB", "--max-batch", "8"], args].concat();
    match clap::Parser::try_parse_from(all).map(|cli: Cli| cli.command).unwrap() {
        Command::Serve(args) => args,
        other => panic!("{other:?}"),
    }
}

async fn serve(args: &ServeArgs) -> Served {
    let (engine, threads) = start_engine(args, &Clock::system()).unwrap();
    let text = TextModel::load(&tiny_kimi()).unwrap();
    let parts = ServerParts { engine, text, clock: Clock::system() };
    let server = Server::bind(args.server_config().unwrap(), parts).await.unwrap();
    let (addr, shutdown) = (server.local_addr().unwrap(), server.shutdown_handle());
    Served { addr, shutdown, run: tokio::spawn(server.run()), threads }
}

impl Served {
    /// Ends as after SIGTERM; how the engine ended.
    async fn finish(self) -> Result<(), EngineStopped> {
        self.shutdown.shut_down();
        self.run.await.unwrap();
        let threads = self.threads;
        tokio::task::spawn_blocking(|| threads.join()).await.unwrap()
    }
}

/// Runs async work in a process with the stand-in driver.
fn on_stand_in<F: Future<Output = ()>>(
    name: &str,
    settings: &[(&str, &str)],
    body: impl FnOnce() -> F,
) -> Option<String> {
    PROGRAM.stand_in(name, settings, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(body());
    })
}

/// FP8 prefill over BF16, INT4 decode over FP8, as the first command serves.
#[test]
fn the_bundled_model_answers_paris() {
    on_stand_in("the_bundled_model_answers_paris", &[], || async {
        let formats = ["f32", "bf16", "e4m3", "int4-g32", "fp8-128x128"];
        let served = serve(&args(&formats, &[])).await;
        let whole = text(&chat(served.addr, &france(json!({"temperature": 0}))).await);
        assert_eq!(whole, "Paris");
        let ready = ask(served.addr, "GET", "/health/ready", b"").await;
        assert_eq!(ready.status, 200);
        served.finish().await.unwrap();
    });
}

const BF16: [&str; 8] = [
    "--prefill-weights",
    "bf16",
    "--prefill-kv",
    "bf16",
    "--decode-weights",
    "bf16",
    "--decode-kv",
    "bf16",
];

/// Questions asked together, and the answers.
async fn answers(addr: SocketAddr) -> Vec<(String, Value)> {
    let questions = ["What is the capital of France?", "Say hello.", "What is 2 + 2?"];
    let asked = questions.map(|question| {
        let body = json!({
            "model": "tiny-kimi", "messages": [{"role": "user", "content": question}],
            "temperature": 0, "max_tokens": 6, "return_token_ids": true,
        });
        tokio::spawn(async move { chat(addr, &body).await })
    });
    let mut answers = Vec::new();
    for answer in asked {
        let answer = answer.await.unwrap();
        answers.push((text(&answer), answer.json()["choices"][0]["token_ids"].clone()));
    }
    answers
}

/// Several requests at once on two devices, one a pool: the tokens of the CPU.
#[test]
fn two_devices_answer_as_the_cpu_does() {
    // Work on the devices is done as late as the driver may do it.
    let settings = [("DEVICES", "2"), ("LATENCY", "40"), ("SCHEDULE", "latest")];
    on_stand_in("two_devices_answer_as_the_cpu_does", &settings, || async {
        let formats = ["f32", "bf16"];
        let flags = [&BF16[..], &["--decode-device", "1"]].concat();
        let args = args(&formats, &flags);
        let served = serve(&args).await;
        let got = answers(served.addr).await;
        served.finish().await.unwrap();
        let mut args = args;
        args.engine.device = DeviceKind::Cpu;
        let served = serve(&args).await;
        assert_eq!(got, answers(served.addr).await);
        served.finish().await.unwrap();
    });
}

/// What `/metrics` says of a counter without labels of its own.
async fn metric(addr: SocketAddr, name: &str) -> u64 {
    let text = ask(addr, "GET", "/metrics", b"").await.body;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("tessera:{name}{{")));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

/// The decode pool waits once a step, for a step behind which the next one is queued already: the
/// device never runs dry while there is something to do.
#[test]
fn a_step_is_asked_for_before_the_last_is_read() {
    const TOKENS: usize = 24;
    let folder = PROGRAM.folder("waits");
    let file = folder.join("waits.jsonl");
    // The process that runs the test's body has the file, the other one reads it.
    if std::env::var_os("TESSERA_EMULATOR_WAITS").is_none() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
    }
    // Nothing is done on the device before somebody waits for it.
    let settings = [("WAITS", file.to_str().unwrap()), ("LATENCY", "1000000")];
    let name = "a_step_is_asked_for_before_the_last_is_read";
    let told = on_stand_in(name, &settings, || async {
        let flags = [&BF16[..], &["--page-size", "8"]].concat();
        let served = serve(&args(&["f32", "bf16"], &flags)).await;
        let body = france(json!({"temperature": 0, "ignore_eos": true, "max_tokens": TOKENS}));
        assert_eq!(chat(served.addr, &body).await.status, 200);
        // The first token is the prefill pool's, and nothing runs before the second.
        assert_eq!(metric(served.addr, "decode_steps_ahead_total").await, TOKENS as u64 - 2);
        served.finish().await.unwrap();
    });
    if told.is_none() {
        return;
    }
    let waits = std::fs::read_to_string(&file).unwrap();
    let waits = waits.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let waits: Vec<Value> = waits.collect();
    // Work behind each wait of a pool, up to the end of the engine, which waits for the streams.
    let behind = |pool: &str| -> Vec<u64> {
        let own = waits.iter().filter(|wait| wait["thread"] == pool);
        let own = own.take_while(|wait| wait["wait"] == "Event");
        own.map(|wait| wait["behind"].as_u64().unwrap()).collect()
    };
    // The prompt, and all of its pages.
    assert_eq!(behind("prefill"), [0, 0], "{waits:?}");
    let (behind, steps) = (behind("decode"), TOKENS - 1);
    let pages = behind.len() - steps;
    assert!((3..8).contains(&pages), "{pages} pages that arrived: {waits:?}");
    let behind = &behind[pages..];
    // Inputs, the recorded step and its results.
    assert!(behind[..steps - 1].iter().all(|&behind| behind > 5), "{behind:?}");
    assert_eq!(behind[steps - 1], 0, "nothing follows the last step");
}

/// A batch in which the host samples is finished before the next one is asked for.
#[test]
fn what_the_host_samples_is_waited_for() {
    on_stand_in("what_the_host_samples_is_waited_for", &[], || async {
        let served = serve(&args(&["f32", "bf16"], &BF16)).await;
        let body = |more: Value| {
            let mut body = json!({"ignore_eos": true, "max_tokens": 5, "return_token_ids": true});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            france(body)
        };
        let drawn = body(json!({"temperature": 1, "seed": 3}));
        let first = chat(served.addr, &drawn).await.json();
        assert_eq!(metric(served.addr, "decode_steps_ahead_total").await, 0);
        let alone = chat(served.addr, &body(json!({"temperature": 0}))).await.json();
        // Together, in whatever order they meet: the same tokens.
        let addr = served.addr;
        let other = tokio::spawn(async move { chat(addr, &drawn).await.json() });
        let together = chat(served.addr, &body(json!({"temperature": 0}))).await.json();
        let ids = |answer: &Value| answer["choices"][0]["token_ids"].clone();
        assert_eq!(ids(&other.await.unwrap()), ids(&first));
        assert_eq!(ids(&together), ids(&alone));
        served.finish().await.unwrap();
    });
}

/// A device that is lost while an answer is streamed ends the engine: nothing hangs.
#[test]
fn a_lost_device_ends_the_engine() {
    let faults = [("FAULTS", "launch:500:lost")];
    on_stand_in("a_lost_device_ends_the_engine", &faults, || async {
        let served = serve(&args(&["f32", "bf16"], &BF16)).await;
        let body = france(json!({"temperature": 0, "ignore_eos": true, "max_tokens": 500}));
        let answer = chat(served.addr, &body).await;
        assert_eq!(answer.status, 503, "{}", answer.json());
        assert_eq!(answer.json()["error"]["code"], "engine_died");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("pool: device: cuda: cu"), "{message}");
        let later = chat(served.addr, &france(json!({}))).await;
        assert_eq!((later.status, &later.json()["error"]["code"]), (503, &json!("engine_died")));
        assert_eq!(ask(served.addr, "GET", "/health/ready", b"").await.status, 503);
        assert_eq!(ask(served.addr, "GET", "/metrics", b"").await.status, 200);
        let stopped = served.finish().await.unwrap_err();
        assert!(message.contains(&stopped.reason), "{message} and {stopped}");
    });
}

/// Memory that runs out when a batch grows, while the step before it runs.
#[test]
fn memory_that_runs_out_with_a_step_in_flight_ends_the_engine() {
    // What a batch of two grows first; 256 to 259 are allocations for it.
    let faults = [("FAULTS", "alloc:257")];
    let name = "memory_that_runs_out_with_a_step_in_flight_ends_the_engine";
    on_stand_in(name, &faults, || async {
        let served = serve(&args(&["f32", "bf16"], &BF16)).await;
        let (addr, body) =
            (served.addr, france(json!({"temperature": 0, "ignore_eos": true, "max_tokens": 40})));
        let other = body.clone();
        let first = tokio::spawn(async move { chat(addr, &other).await });
        while metric(addr, "decode_steps_ahead_total").await < 3 {
            let ready = ask(addr, "GET", "/health/ready", b"").await;
            assert_eq!(ready.status, 200, "the engine died before a step was in flight");
        }
        let second = chat(addr, &body).await;
        for answer in [first.await.unwrap(), second] {
            let error = answer.json()["error"].clone();
            assert_eq!((answer.status, &error["code"]), (503, &json!("engine_died")), "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("decode pool: device: cuda: "), "{message}");
            assert!(message.contains("bytes of device memory for"), "{message}");
        }
        assert_eq!(ask(addr, "GET", "/health/ready", b"").await.status, 503);
        served.finish().await.unwrap_err();
    });
}

/// A page whose tag is wrong ends its request and no other.
#[test]
fn a_wrong_tag_ends_its_request_alone() {
    on_stand_in("a_wrong_tag_ends_its_request_alone", &[], || async {
        let flags = [&BF16[..], &["--fault-injection"]].concat();
        let served = serve(&args(&["f32", "bf16"], &flags)).await;
        let fault = ask(served.addr, "POST", "/debug/fault", br#"{"kind": "page_tag"}"#).await;
        assert_eq!(fault.status, 202);
        let body = france(json!({"temperature": 0, "ignore_eos": true, "max_tokens": 4}));
        let answer = chat(served.addr, &body).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (500, &json!("kv_integrity")));
        assert_eq!(text(&chat(served.addr, &france(json!({"temperature": 0}))).await), "Paris");
        served.finish().await.unwrap();
    });
}

/// Memory that runs out at the start is said with its numbers, and nothing is served.
#[test]
fn too_little_memory_stops_the_start() {
    on_stand_in("too_little_memory_stops_the_start", &[("MEMORY", "16MiB")], || async {
        let error = start_engine(&args(&["f32", "bf16"], &BF16), &Clock::system()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("pool on its device: cuda: "), "{error}");
        assert!(error.contains("bytes of device memory for"), "{error}");
    });
}

/// Kernels that lack a format stop the start, not the first request.
#[test]
fn missing_formats_stop_the_start() {
    on_stand_in("missing_formats_stop_the_start", &[], || async {
        let error = start_engine(&args(&["f32"], &BF16), &Clock::system()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("for bf16"), "{error}");
    });
}
