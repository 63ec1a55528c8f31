//! A scripted engine: answers each request with a list of steps, over the real engine handle.
//!
//! Nothing sleeps: a step that holds a request waits until its client is gone or a test opens
//! the gate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tessera_runtime::engine::{
    Command, EngineHandle, EngineInfo, EngineMetrics, EventSink, Fault, IntegrityInfo, KvScaleInfo,
};
use tessera_runtime::request::{
    FinishReason, GenerateEvent, GenerateRequest, GeneratedToken, RequestError, RequestId,
    TokenLogprobs,
};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};

/// What a scripted request does next.
#[derive(Debug, Clone)]
pub enum Step {
    /// Emits a token; with log probabilities (-0.5, and the ids with -0.5, -1.5, ..) if asked.
    Token(u32),
    /// Waits for one permit of the gate, or for the client to go away.
    Gate,
    /// Waits for the client to go away.
    Hold,
    /// Ends badly.
    Fail(RequestError),
}

/// Decides the steps of a request; after the last it ends with `Stop`, or with `Length` once
/// `max_tokens` are out.
pub type Script = dyn Fn(&GenerateRequest) -> Vec<Step> + Send + Sync;

/// A scripted engine that runs, seen from the test.
#[derive(Debug)]
pub struct ScriptEngine {
    /// The handle to serve.
    pub handle: EngineHandle,
    /// Every request that was submitted, in order.
    pub requests: mpsc::UnboundedReceiver<(RequestId, GenerateRequest)>,
    /// Every fault that was injected.
    pub faults: mpsc::UnboundedReceiver<Fault>,
    /// Requests running now.
    pub running: watch::Receiver<usize>,
    /// Lets requests past [`Step::Gate`].
    pub gate: Arc<Semaphore>,
    /// Set once the engine was told to drain.
    pub drained: watch::Receiver<bool>,
}

/// Describes an engine of `vocab_size` ids and a context of `max_model_len` tokens.
pub fn info(vocab_size: usize, max_model_len: usize, eos: Vec<u32>) -> EngineInfo {
    EngineInfo {
        model: "scripted".to_owned(),
        max_model_len,
        vocab_size,
        eos_token_ids: eos,
        model_fingerprint: "00".to_owned(),
        pools: Vec::new(),
        kv_scale: KvScaleInfo { source: "none".to_owned(), per_layer: Vec::new() },
        integrity: IntegrityInfo { enabled: false, covers: Vec::new() },
    }
}

/// Starts a scripted engine; must be called inside a tokio runtime, which plays the requests.
pub fn start(info: EngineInfo, script: Arc<Script>) -> ScriptEngine {
    let (commands, inbox) = channel();
    let metrics = Arc::new(EngineMetrics::default());
    metrics.ready.store(true, std::sync::atomic::Ordering::Relaxed);
    let (requests_in, requests) = mpsc::unbounded_channel();
    let (faults_in, faults) = mpsc::unbounded_channel();
    let (running_in, running) = watch::channel(0);
    let (drained_in, drained) = watch::channel(false);
    let gate = Arc::new(Semaphore::new(0));
    let player = Player { script, running: running_in, gate: Arc::clone(&gate) };
    let outs = Outs { requests: requests_in, faults: faults_in, drained: drained_in };
    let runtime = Handle::current();
    std::thread::spawn(move || listen(&inbox, &runtime, &player, &outs));
    let handle = EngineHandle::new(move |command| commands.send(command).is_ok(), info, metrics);
    ScriptEngine { handle, requests, faults, running, gate, drained }
}

#[derive(Clone)]
struct Player {
    script: Arc<Script>,
    running: watch::Sender<usize>,
    gate: Arc<Semaphore>,
}

struct Outs {
    requests: mpsc::UnboundedSender<(RequestId, GenerateRequest)>,
    faults: mpsc::UnboundedSender<Fault>,
    drained: watch::Sender<bool>,
}

/// A test that looks at none of the outputs has dropped them, hence the ignored sends.
fn listen(inbox: &Receiver<Command>, runtime: &Handle, player: &Player, outs: &Outs) {
    while let Ok(command) = inbox.recv() {
        match command {
            Command::Submit { id, request, events } => {
                let _ = outs.requests.send((id, request.clone()));
                player.running.send_modify(|running| *running += 1);
                runtime.spawn(player.clone().play(request, events));
            }
            Command::Inject(fault) => drop(outs.faults.send(fault)),
            Command::Drain => drop(outs.drained.send_replace(true)),
            Command::Abort(_) => {}
        }
    }
}

impl Player {
    async fn play(self, request: GenerateRequest, events: EventSink) {
        let end = self.run(&request, &events).await;
        // Counted before the client can hear of the end, so that a test sees no stale number.
        self.running.send_modify(|running| *running -= 1);
        if let Some(end) = end {
            let _ = events.send(end);
        }
    }

    /// The last event, unless the client went away.
    async fn run(&self, request: &GenerateRequest, events: &EventSink) -> Option<GenerateEvent> {
        let finished = |reason| GenerateEvent::Finished { reason, cached_tokens: 0 };
        let mut emitted = 0;
        for step in (self.script)(request) {
            match step {
                Step::Token(id) => {
                    let logprobs = request.sampling.top_logprobs.map(logprobs);
                    let token = GeneratedToken { id, logprobs };
                    events.send(GenerateEvent::Token(token)).ok()?;
                    emitted += 1;
                    if emitted == request.max_tokens {
                        return Some(finished(FinishReason::Length));
                    }
                }
                Step::Gate => tokio::select! {
                    permit = self.gate.acquire() => permit.ok()?.forget(),
                    () = events.closed() => return None,
                },
                Step::Hold => {
                    events.closed().await;
                    return None;
                }
                Step::Fail(error) => return Some(GenerateEvent::Failed(error)),
            }
        }
        Some(finished(FinishReason::Stop))
    }
}

fn logprobs(top: u32) -> TokenLogprobs {
    let mut likeliest = Vec::new();
    let mut logprob = -0.5;
    for id in 0..top {
        likeliest.push((id + u32::from(b'a'), logprob));
        logprob -= 1.0;
    }
    TokenLogprobs { logprob: -0.5, top: likeliest }
}
