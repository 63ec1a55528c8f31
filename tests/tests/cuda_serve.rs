//! The bundled model served by the CUDA device under the stand-in driver.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use serde_json::{Value, json};
use std::net::SocketAddr;
use tessera::cli::{Cli, Command, ServeArgs, start_engine};
use tessera::clock::Clock;
use tessera::http::{Server, ServerParts, ShutdownHandle};
use tessera::text::TextModel;
use tessera_runtime::engine::{EngineStopped, EngineThreads};
use tessera_tests::engine::tiny_kimi;
use tessera_tests::kernels::write_bundle;
use tessera_tests::stand_in::Program;
use tessera_tests::wire::{Answer, ask, chat};
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

fn france(extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny-kimi", "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn text(answer: &Answer) -> String {
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
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
