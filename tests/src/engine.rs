//! Small real engines: the golden checkpoints behind two pools, with a clock that stands still.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tessera_kernels::formats::PackedMatrix;
use tessera_kernels::launch::{BufferId, BufferType, CacheId, Launch, WeightId};
use tessera_kernels::ops::mla_prefill::MlaDims;
use tessera_kernels::ops::sample::SampleParams;
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice, Device, DeviceError, Source, Target};
use tessera_runtime::engine::{
    EngineConfig, EngineHandle, EngineModel, EngineThreads, Events, KvScales, PoolConfig,
    PoolMetrics, StartError, kv_bytes_per_token, named_kv_format, start, start_on,
};
use tessera_runtime::model::ModelSpec;
use tessera_runtime::request::{
    FinishReason, GenerateEvent, GenerateRequest, GeneratedToken, RequestError,
};
use tessera_runtime::schedule::Micros;

/// A golden checkpoint.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// The bundled model.
pub fn tiny_kimi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi")
}

/// Loads a checkpoint with a weight policy for each pool.
///
/// # Panics
/// If it does not load.
pub fn model(dir: &Path, policies: [&str; 2]) -> EngineModel {
    let checkpoint = Checkpoint::open(dir).expect("the checkpoint is there");
    let [prefill, decode] = policies.map(|policy| {
        let policy = WeightPolicy::preset(policy).expect("a policy of that name");
        checkpoint.load(&policy, &mut |_| {}).expect("the checkpoint loads")
    });
    EngineModel { spec: prefill.spec, prefill: prefill.weights, decode: decode.weights }
}

/// Sizes of an engine under test.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Cache format of each pool.
    pub kv: [&'static str; 2],
    /// Tokens a page, in both pools.
    pub page_size: usize,
    /// Pages of each pool.
    pub pages: [usize; 2],
    /// Sequences in a decode step.
    pub max_seqs: usize,
    /// Prompt tokens in a prefill step.
    pub step_tokens: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { kv: ["f32", "f32"], page_size: 8, pages: [64, 64], max_seqs: 8, step_tokens: 64 }
    }
}

/// The configuration of those sizes, with integrity on and no KV scale.
///
/// # Panics
/// If there is no cache format of that name.
pub fn config(spec: &ModelSpec, sizes: &Sizes) -> EngineConfig {
    let pool = |side: usize, step_tokens| {
        let kv = named_kv_format(sizes.kv[side]).expect("a cache format of that name");
        PoolConfig {
            weights: "checkpoint".to_owned(),
            kv,
            page_size: sizes.page_size,
            kv_memory: sizes.pages[side] * sizes.page_size * kv_bytes_per_token(spec, kv),
            max_seqs: sizes.max_seqs,
            step_tokens,
        }
    };
    EngineConfig {
        model_name: "golden".to_owned(),
        max_model_len: 512,
        prefill: pool(0, sizes.step_tokens),
        decode: pool(1, sizes.max_seqs),
        integrity: true,
        kv_scales: KvScales::Unset,
        fingerprint: "the same on both sides".to_owned(),
        max_waiting: 64,
        clock: Arc::new(Micros::default),
    }
}

/// A running engine.
#[derive(Debug)]
pub struct Engine {
    /// The way in.
    pub handle: EngineHandle,
    /// Its threads.
    pub threads: EngineThreads,
}

impl Engine {
    /// Starts one.
    ///
    /// # Errors
    /// As [`start`].
    pub fn start(config: EngineConfig, model: EngineModel) -> Result<Self, StartError> {
        let (handle, threads) = start(config, model)?;
        Ok(Self { handle, threads })
    }

    /// Starts one whose prefill and decode devices call these hooks.
    ///
    /// # Panics
    /// If it does not start.
    pub fn hooked(config: EngineConfig, model: EngineModel, hooks: [Hook; 2]) -> Self {
        let inner = CpuDevice::new;
        let devices = hooks.map(|hook| HookedDevice { inner: inner(), hook, runs_ahead: false });
        let (handle, threads) = start_on(devices, config, model).expect("the engine starts");
        Self { handle, threads }
    }

    /// As [`Engine::hooked`], on devices that are asked for a step before the last one is finished.
    ///
    /// # Panics
    /// If it does not start.
    pub fn ahead(config: EngineConfig, model: EngineModel, hooks: [Hook; 2]) -> Self {
        let inner = CpuDevice::new;
        let devices = hooks.map(|hook| HookedDevice { inner: inner(), hook, runs_ahead: true });
        let (handle, threads) = start_on(devices, config, model).expect("the engine starts");
        Self { handle, threads }
    }

    /// Starts a request.
    ///
    /// # Panics
    /// If the engine has ended.
    pub fn submit(&self, request: GenerateRequest) -> Events {
        self.handle.submit(request).expect("the engine listens").1
    }

    /// Starts all, then reads each to its end.
    pub fn ask_all(&self, requests: Vec<GenerateRequest>) -> Vec<Said> {
        let events: Vec<Events> = requests.into_iter().map(|r| self.submit(r)).collect();
        events.into_iter().map(Said::read).collect()
    }

    /// One request, read to its end.
    pub fn ask(&self, request: GenerateRequest) -> Said {
        Said::read(self.submit(request))
    }

    /// Drains the engine and checks that every page of both pools is free, cached or one of the
    /// `quarantined` of the decode pool. The pools audit their own books when they end.
    ///
    /// # Panics
    /// If a thread failed or a page is held.
    pub fn finish(self, quarantined: u64) -> EngineHandle {
        self.handle.drain().expect("the engine listens");
        self.finish_drained(quarantined)
    }

    /// As [`Engine::finish`], for an engine that was told to drain.
    ///
    /// # Panics
    /// If a thread failed or a page is held.
    pub fn finish_drained(self, quarantined: u64) -> EngineHandle {
        self.threads.join().expect("both pools end well");
        let metrics = self.handle.metrics();
        assert_eq!(
            idle_pages(&metrics.prefill),
            metrics.prefill.pages_total.load(Ordering::Relaxed)
        );
        assert_eq!(idle_pages(&metrics.decode), metrics.decode.pages_total.load(Ordering::Relaxed));
        assert_eq!(metrics.prefill.pages_quarantined.load(Ordering::Relaxed), 0);
        assert_eq!(metrics.decode.pages_quarantined.load(Ordering::Relaxed), quarantined);
        for pool in [&metrics.prefill, &metrics.decode] {
            assert_eq!(pool.running_reqs.load(Ordering::Relaxed), 0);
            assert_eq!(pool.queue_reqs.load(Ordering::Relaxed), 0);
        }
        self.handle
    }
}

fn idle_pages(pool: &PoolMetrics) -> u64 {
    let states = [&pool.pages_free, &pool.pages_cached, &pool.pages_quarantined];
    states.iter().map(|gauge| gauge.load(Ordering::Relaxed)).sum()
}

/// A counter's value.
pub fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Waits, without sleeping, until `seen` holds.
///
/// # Panics
/// If it does not within a great many looks.
pub fn wait_until(what: &str, seen: impl Fn() -> bool) {
    for _ in 0..20_000_000 {
        if seen() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never seen: {what}");
}

/// All that a request said.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Its tokens.
    pub tokens: Vec<GeneratedToken>,
    /// Its end: reason and cached tokens, or the error.
    pub end: Result<(FinishReason, usize), RequestError>,
}

impl Said {
    /// Reads a request to its end.
    ///
    /// # Panics
    /// If it has no end, or says more after it.
    pub fn read(mut events: Events) -> Self {
        let mut tokens = Vec::new();
        loop {
            let end = match events.blocking_recv().expect("a request has an end") {
                GenerateEvent::Token(token) => {
                    tokens.push(token);
                    continue;
                }
                GenerateEvent::Finished { reason, cached_tokens } => Ok((reason, cached_tokens)),
                GenerateEvent::Failed(error) => Err(error),
            };
            assert_eq!(events.blocking_recv(), None, "something was said after the end");
            return Self { tokens, end };
        }
    }

    /// The ids of its tokens.
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    /// The ids, if it ended by length.
    ///
    /// # Panics
    /// If it did not.
    pub fn whole(&self) -> Vec<u32> {
        assert!(matches!(self.end, Ok((FinishReason::Length, _))), "{:?}", self.end);
        self.ids()
    }
}

/// A greedy request with logprobs that ends after `max_tokens`.
pub fn greedy(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let sampling =
        SampleParams { temperature: 0.0, top_logprobs: Some(2), ..SampleParams::default() };
    GenerateRequest {
        prompt: prompt.into(),
        sampling: Arc::new(sampling),
        max_tokens,
        stop_token_ids: Arc::from([]),
        ignore_eos: true,
        cache_salt: None,
    }
}

/// As [`greedy`], and nothing is asked but the tokens: what a device can sample by itself.
pub fn likeliest(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let sampling = SampleParams { temperature: 0.0, ..SampleParams::default() };
    GenerateRequest { sampling: Arc::new(sampling), ..greedy(prompt, max_tokens) }
}

/// A prompt of `len` tokens below 256 that differs for each `seed`.
pub fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + seed * 101 + i * i * seed) % 256).collect()
}

/// A door that launches pass while it is open.
#[derive(Debug)]
pub struct Gate {
    is_open: Mutex<bool>,
    moved: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    /// An open one.
    pub fn new() -> Arc<Self> {
        let is_open = Mutex::new(true);
        Arc::new(Self { is_open, moved: Condvar::new(), waiting: AtomicU64::new(0) })
    }

    /// Opens or closes it.
    ///
    /// # Panics
    /// If a thread panicked at it.
    pub fn set_open(&self, is_open: bool) {
        *self.is_open.lock().expect("nobody panics with the lock") = is_open;
        self.moved.notify_all();
    }

    /// Waits until something waits at it.
    pub fn wait_for_someone(&self) {
        wait_until("a launch at the gate", || count(&self.waiting) > 0);
    }

    /// A hook that stops every forward pass at the gate.
    pub fn hook(self: &Arc<Self>) -> Hook {
        let gate = Arc::clone(self);
        Arc::new(move |launch| {
            if matches!(launch, Launch::Embedding(_)) {
                gate.pass();
            }
            Ok(())
        })
    }

    fn pass(&self) {
        let mut is_open = self.is_open.lock().expect("nobody panics with the lock");
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while !*is_open {
            is_open = self.moved.wait(is_open).expect("nobody panics with the lock");
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Called before each launch of a [`HookedDevice`]; may wait, fail or panic.
pub type Hook = Arc<dyn Fn(&Launch) -> Result<(), DeviceError> + Send + Sync>;

/// A hook that does nothing.
pub fn no_hook() -> Hook {
    Arc::new(|_| Ok(()))
}

/// A CPU device with a hook before every launch.
pub struct HookedDevice {
    inner: CpuDevice,
    hook: Hook,
    runs_ahead: bool,
}

impl std::fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookedDevice").field("inner", &self.inner).finish_non_exhaustive()
    }
}

type Done<T> = Result<T, DeviceError>;

impl Device for HookedDevice {
    fn perform(&mut self, launch: &Launch) -> Done<()> {
        (self.hook)(launch)?;
        self.inner.perform(launch)
    }

    fn runs_ahead(&self) -> bool {
        self.runs_ahead
    }
    fn alloc(&mut self, kind: BufferType, len: usize) -> Done<BufferId> {
        self.inner.alloc(kind, len)
    }
    fn write(&mut self, id: BufferId, values: Source<'_>) -> Done<()> {
        self.inner.write(id, values)
    }
    fn read(&self, id: BufferId, values: Target<'_>) -> Done<()> {
        self.inner.read(id, values)
    }
    fn load_weight(&mut self, weight: PackedMatrix) -> Done<WeightId> {
        self.inner.load_weight(weight)
    }
    fn prepare_absorption(&mut self, kv_b: WeightId, dims: &MlaDims) -> Done<()> {
        self.inner.prepare_absorption(kv_b, dims)
    }
    fn alloc_cache(&mut self, spec: CacheSpec) -> Done<CacheId> {
        self.inner.alloc_cache(spec)
    }
    fn cache_spec(&self, cache: CacheId) -> Done<CacheSpec> {
        self.inner.cache_spec(cache)
    }
    fn set_page_tag(&mut self, cache: CacheId, page: u32, tag: u64) -> Done<()> {
        self.inner.set_page_tag(cache, page, tag)
    }
    fn page_tag(&self, cache: CacheId, page: u32) -> Done<u64> {
        self.inner.page_tag(cache, page)
    }
    fn set_page_scales(&mut self, cache: CacheId, page: u32, scales: &[f32]) -> Done<()> {
        self.inner.set_page_scales(cache, page, scales)
    }
    fn page_scales(&self, cache: CacheId, page: u32) -> Done<Vec<f32>> {
        self.inner.page_scales(cache, page)
    }
    fn read_page(&self, cache: CacheId, page: u32) -> Done<Vec<u8>> {
        self.inner.read_page(cache, page)
    }
    fn write_page(&mut self, cache: CacheId, page: u32, bytes: &[u8]) -> Done<()> {
        self.inner.write_page(cache, page, bytes)
    }
    fn clear_page(&mut self, cache: CacheId, page: u32) -> Done<()> {
        self.inner.clear_page(cache, page)
    }
}
