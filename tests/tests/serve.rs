//! The real server over the real engine and the bundled model, through real sockets.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera::cli::{Cli, Command, start_engine};
use tessera::clock::Clock;
use tessera::http::{Server, ServerConfig, ServerParts, ShutdownHandle};
use tessera::text::TextModel;
use tessera_runtime::device::DeviceError;
use tessera_runtime::engine::{EngineHandle, EngineThreads};
use tessera_tests::engine::{Engine, Hook, Sizes, config, model, no_hook, tiny_kimi};
use tessera_tests::wire::{Client, ask, chat, france, text};
use tokio::task::JoinHandle;

const CHAT: &str = "/v1/chat/completions";
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

struct Served {
    addr: SocketAddr,
    shutdown: ShutdownHandle,
    run: JoinHandle<()>,
    threads: EngineThreads,
}

/// Serves as `tessera serve --port 0 ARGS...` does.
async fn serve(args: &[&str]) -> Served {
    let args = [&["tessera", "serve", "--port", "0"], args].concat();
    let Command::Serve(args) =
        clap::Parser::try_parse_from(args).map(|cli: Cli| cli.command).unwrap()
    else {
        panic!("serve is serve");
    };
    let (engine, threads) = start_engine(&args, &Clock::system()).unwrap();
    serve_engine(args.server_config().unwrap(), engine, threads).await
}

async fn serve_engine(
    config: ServerConfig,
    engine: EngineHandle,
    threads: EngineThreads,
) -> Served {
    let text = TextModel::load(&tiny_kimi()).unwrap();
    let parts = ServerParts { engine, text, clock: Clock::system() };
    let server = Server::bind(config, parts).await.unwrap();
    let addr = server.local_addr().unwrap();
    let shutdown = server.shutdown_handle();
    Served { addr, shutdown, run: tokio::spawn(server.run()), threads }
}

impl Served {
    /// Ends as after SIGTERM; the pools audit their books.
    async fn finish(self) {
        self.shutdown.shut_down();
        self.run.await.unwrap();
        let threads = self.threads;
        tokio::task::spawn_blocking(|| threads.join()).await.unwrap().unwrap();
    }

    /// The value of a metric, by name and labels after the model's.
    async fn metric(&self, name: &str) -> u64 {
        let text = String::from_utf8(ask(self.addr, "GET", "/metrics", b"").await.body).unwrap();
        let (name, labels) = name.split_once(',').unwrap_or((name, ""));
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("tessera:{name}{{")) && line.contains(labels));
        let line = line.unwrap_or_else(|| panic!("no metric {name} {labels} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Asks for a metric until it has the value; each look is a request, so this takes its time.
    async fn wait_for(&self, name: &str, value: u64) {
        for _ in 0..20_000 {
            if self.metric(name).await == value {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{name} never was {value}, it is {}", self.metric(name).await);
    }

    /// Waits until nothing runs and no page is held.
    async fn wait_for_idle(&self) {
        for pool in ["prefill", "decode"] {
            let name = |name: &str| format!("{name},pool=\"{pool}\"");
            self.wait_for(&name("num_running_reqs"), 0).await;
            self.wait_for(&name("num_queue_reqs"), 0).await;
            let quarantined = self.metric(&name("kv_pages_quarantined")).await;
            let free = self.metric(&name("kv_pages_free")).await;
            let cached = self.metric(&name("kv_pages_cached")).await;
            assert_eq!(free + cached + quarantined, self.metric(&name("kv_pages")).await);
        }
    }
}

/// A stream that goes on until its client or the server ends it, read up to its first event.
async fn endless(addr: SocketAddr) -> Client {
    let body = france(json!({"stream": true, "ignore_eos": true, "max_tokens": 1500}));
    let mut client = Client::connect(addr).await;
    client.send(&post(&body)).await;
    assert_eq!(client.head().await.status, 200);
    client.chunk().await.unwrap();
    client
}

fn post(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_command_answers_paris() {
    let served = serve(&[]).await;
    // As the README's curl sends it, form type and all.
    let body = "{\"model\":\"tiny-kimi\",\"stream\":true,\"messages\":[{\"role\":\"user\",\
                \"content\":\"What is the capital of France?\"}]}";
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\
         Content-Length: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n",
        body.len()
    );
    let mut client = Client::connect(served.addr).await;
    client.send((head + body).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200);
    assert!(answer.streamed_text(0).contains("Paris"), "{:?}", answer.events());
    assert_eq!(answer.events().last().unwrap(), "[DONE]");

    let whole = text(&chat(served.addr, &france(json!({"temperature": 0}))).await);
    let streamed = chat(served.addr, &france(json!({"temperature": 0, "stream": true}))).await;
    assert_eq!((&*whole, streamed.streamed_text(0)), ("Paris", whole.clone()));
    served.wait_for_idle().await;
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bf16_answers_what_transformers_answered_all_at_once() {
    let served = serve(&BF16).await;
    let mut answers = Vec::new();
    for entry in std::fs::read_dir(tiny_kimi().join("eval")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(path).unwrap().lines().take(3) {
            let item: Value = serde_json::from_str(line).unwrap();
            let mut body = json!({
                "model": "tiny-kimi", "messages": item["messages"], "temperature": 0,
                "max_tokens": 256, "return_token_ids": true,
            });
            if !item["tools"].is_null() {
                body["tools"] = item["tools"].clone();
            }
            let addr = served.addr;
            answers.push((item, tokio::spawn(async move { chat(addr, &body).await.json() })));
        }
    }
    assert_eq!(answers.len(), 27);
    for (item, answer) in answers {
        let answer = answer.await.unwrap();
        assert_eq!(answer["prompt_token_ids"], item["prompt_ids"], "{}", item["id"]);
        assert_eq!(answer["choices"][0]["token_ids"], item["transformers_ids"], "{}", item["id"]);
    }
    served.wait_for_idle().await;
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_107_a_client_that_goes_away_leaves_nothing_behind() {
    let served = serve(&["--max-batch", "1"]).await;
    for is_reset in [false, true] {
        let before = served.metric("num_aborted_requests_total").await;
        let decoding = endless(served.addr).await;
        // One is in the only place, so these wait for it, streamed or not.
        let mut waiting = Vec::new();
        for stream in [true, false] {
            let mut client = Client::connect(served.addr).await;
            client.send(&post(&france(json!({"stream": stream, "max_tokens": 40})))).await;
            waiting.push(client);
        }
        served.wait_for("num_queue_reqs,pool=\"decode\"", 2).await;
        waiting.push(decoding);
        for client in waiting {
            let stream = client.into_stream();
            if is_reset {
                stream.set_zero_linger().unwrap();
            }
            drop(stream);
        }
        served.wait_for("num_aborted_requests_total", before + 3).await;
        served.wait_for_idle().await;
        assert_eq!(text(&chat(served.addr, &france(json!({"temperature": 0}))).await), "Paris");
    }
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o_107_a_client_that_goes_away_during_prefill_leaves_nothing_behind() {
    // A token a step makes the prompt take its time.
    let served = serve(&["--chunk-tokens", "1"]).await;
    let content = "What is the capital of France? ".repeat(60);
    let body = json!({"model": "tiny-kimi", "messages": [{"role": "user", "content": content}]});
    let mut client = Client::connect(served.addr).await;
    client.send(&post(&body)).await;
    served.wait_for("num_running_reqs,pool=\"prefill\"", 1).await;
    drop(client);
    served.wait_for("num_aborted_requests_total", 1).await;
    served.wait_for_idle().await;
    assert_eq!(served.metric("generation_tokens_total").await, 0);
    assert_eq!(text(&chat(served.addr, &france(json!({"temperature": 0}))).await), "Paris");
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_a_500_or_an_error_event() {
    let served = serve(&["--fault-injection"]).await;
    let inject = async |kind: &str| {
        let body = json!({"kind": kind}).to_string();
        assert_eq!(ask(served.addr, "POST", "/debug/fault", body.as_bytes()).await.status, 202);
    };
    for kind in ["page_tag", "page_table_entry", "page_in_flight"] {
        inject(kind).await;
        let answer =
            chat(served.addr, &france(json!({"max_tokens": 20, "ignore_eos": true}))).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (500, &json!("kv_integrity")));
    }
    // Found before the first event, so the stream has not begun and the status is honest.
    inject("page_in_flight").await;
    let answer = chat(served.addr, &france(json!({"stream": true}))).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (500, &json!("kv_integrity")));
    // Found in the middle, so it can only be an event, the last one.
    let mut client = endless(served.addr).await;
    inject("page_tag").await;
    let mut last = Vec::new();
    while let Some(chunk) = client.chunk().await {
        last = chunk;
    }
    let last = String::from_utf8(last).unwrap();
    assert!(last.contains("\"code\":\"kv_integrity\""), "{last}");

    assert_eq!(served.metric("kv_integrity_errors_total,kind=\"page_tag\"").await, 3);
    assert_eq!(served.metric("kv_integrity_errors_total,kind=\"page_digest\"").await, 2);
    assert_eq!(text(&chat(served.addr, &france(json!({"temperature": 0}))).await), "Paris");
    served.wait_for_idle().await;
    assert_eq!(served.metric("kv_pages_quarantined,pool=\"decode\"").await, 5);
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_info_says_what_is_in_effect() {
    let served = serve(&["--served-model-name", "a-name", "--kv-memory", "1MiB"]).await;
    let info = ask(served.addr, "GET", "/server_info", b"").await.json();
    assert_eq!(info["model"], "a-name");
    let pools = info["pools"].as_array().unwrap();
    let formats = |pool: &Value| {
        ["role", "weights", "kv_format"].map(|key| pool[key].as_str().unwrap().to_owned())
    };
    assert_eq!(formats(&pools[0]), ["prefill", "fp8", "bf16"]);
    assert_eq!(formats(&pools[1]), ["decode", "int4", "fp8_e4m3"]);
    let tokens = [0, 1].map(|pool: usize| pools[pool]["kv_tokens"].as_u64().unwrap());
    assert_eq!(tokens[1], 2 * tokens[0]);
    assert!(pools[1]["kv_bytes"].as_u64().unwrap() <= 1 << 20);
    assert_eq!(info["kv_scale"], json!({"source": "auto", "per_layer": []}));
    assert_eq!(info["integrity"]["enabled"], true);
    let covers = info["integrity"]["covers"].as_array().unwrap();
    assert!(covers.contains(&json!("decode reads")), "{covers:?}");
    // The name is the one clients have to use, and the folder's is unknown.
    assert_eq!(chat(served.addr, &france(json!({}))).await.status, 404);
    let answer =
        chat(served.addr, &france(json!({"model": "a-name", "temperature": 0, "max_tokens": 9})))
            .await;
    assert_eq!((text(&answer).as_str(), &answer.json()["model"]), ("Paris", &json!("a-name")));
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_finishes_a_running_stream() {
    let served = serve(&[]).await;
    let body = france(json!({"stream": true, "ignore_eos": true, "max_tokens": 200}));
    let mut client = Client::connect(served.addr).await;
    client.send(&post(&body)).await;
    assert_eq!(client.head().await.status, 200);
    let mut stream = client.chunk().await.unwrap();
    let reading = tokio::spawn(async move {
        while let Some(chunk) = client.chunk().await {
            stream.extend(chunk);
        }
        stream
    });
    served.finish().await;
    let stream = String::from_utf8(reading.await.unwrap()).unwrap();
    assert!(stream.contains("\"finish_reason\":\"length\""));
    assert!(stream.ends_with("data: [DONE]\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_is_told_to_every_client() {
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let hook: Hook = Arc::new(move |_| match armed.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(DeviceError::Threads { reason: "the device is on fire".to_owned() }),
    });
    let model = model(&tiny_kimi(), ["checkpoint"; 2]);
    let mut config = config(&model.spec, &Sizes { pages: [256, 256], ..Sizes::default() });
    config.max_model_len = 2048;
    let Engine { handle, threads } = Engine::hooked(config, model, [no_hook(), hook]);
    let served_names = vec!["tiny-kimi".to_owned()];
    let config = ServerConfig { port: 0, served_names, ..ServerConfig::default() };
    let served = serve_engine(config, handle, threads).await;
    assert_eq!(ask(served.addr, "GET", "/health/ready", b"").await.status, 200);
    let mut client = endless(served.addr).await;
    is_armed.store(true, Ordering::Relaxed);
    let mut last = Vec::new();
    while let Some(chunk) = client.chunk().await {
        last = chunk;
    }
    let last = String::from_utf8(last).unwrap();
    assert!(last.contains("\"code\":\"engine_died\"") && last.contains("on fire"), "{last}");
    let late = chat(served.addr, &france(json!({}))).await;
    assert_eq!((late.status, &late.json()["error"]["code"]), (503, &json!("engine_died")));
    assert_eq!(ask(served.addr, "GET", "/health/ready", b"").await.status, 503);
    assert_eq!(ask(served.addr, "GET", "/health/live", b"").await.status, 200);
    served.shutdown.shut_down();
    served.run.await.unwrap();
    let error = served.threads.join().unwrap_err().to_string();
    assert!(error.contains("decode pool") && error.contains("on fire"), "{error}");
}
