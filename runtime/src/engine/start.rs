//! Puts an engine together: two pools, a handshake, two threads.

use super::config::{EngineConfig, KvScales, PoolConfig, StartError};
use super::decode::{DecodeInbox, DecodeState, DecodeWorker};
use super::handle::{Command, EngineHandle};
use super::info::EngineMetrics;
use super::pool::{warm_up, warm_up_hand_off};
use super::prefill::{PrefillInbox, PrefillState, PrefillWorker};
use super::record::{Record, Shared};
use crate::cache::{NoopTracker, PageTracker, PoolSize, TagTracker};
use crate::device::{CacheSpec, CpuDevice, Device};
use crate::model::{Attention, Forward, ModelSpec, ModelWeights};
use crate::schedule::{DecodeConfig, DecodeScheduler, PrefillConfig, PrefillScheduler};
use crate::transfer::{Descriptor, Receiver, ReceiverAction, Sender, SenderAction, wire_pair};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, channel};
use std::thread::JoinHandle;

/// Younger requests that may pass a waiting one.
const MAX_BYPASS: u32 = 16;

/// A model as both pools hold it.
#[derive(Debug)]
pub struct EngineModel {
    /// What it is.
    pub spec: ModelSpec,
    /// Weights of the prefill pool.
    pub prefill: ModelWeights,
    /// Weights of the decode pool.
    pub decode: ModelWeights,
}

/// The threads of a running engine.
#[derive(Debug)]
pub struct EngineThreads {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// The engine ended before it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine stopped: {reason}")]
pub struct EngineStopped {
    /// The first pool to stop, and why.
    pub reason: String,
}

impl EngineThreads {
    /// Waits until both pools have ended (see [`EngineHandle::drain`]).
    ///
    /// # Errors
    /// [`EngineStopped`] if one failed or panicked.
    pub fn join(self) -> Result<(), EngineStopped> {
        for thread in self.threads {
            // A panic has left its reason too.
            let _ = thread.join();
        }
        match self.shared.died.get() {
            Some(reason) => Err(EngineStopped { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// Starts an engine on the CPU.
///
/// # Errors
/// [`StartError`] if a setting cannot work or a thread cannot be started.
pub fn start(
    config: EngineConfig,
    model: EngineModel,
) -> Result<(EngineHandle, EngineThreads), StartError> {
    start_on([CpuDevice::new(), CpuDevice::new()], config, model)
}

/// Starts an engine whose prefill and decode pools run on these devices.
///
/// # Errors
/// As [`start`].
pub fn start_on<D: Device + 'static>(
    devices: [D; 2],
    config: EngineConfig,
    model: EngineModel,
) -> Result<(EngineHandle, EngineThreads), StartError> {
    if config.integrity {
        start_tracked::<D, TagTracker>(devices, &config, model)
    } else {
        start_tracked::<D, NoopTracker>(devices, &config, model)
    }
}

fn start_tracked<D: Device + 'static, T: PageTracker + Send + 'static>(
    [prefill_device, decode_device]: [D; 2],
    config: &EngineConfig,
    model: EngineModel,
) -> Result<(EngineHandle, EngineThreads), StartError>
where
    T::Ledger: Send,
{
    let EngineModel { spec, prefill, decode } = model;
    config.kv_scales.check(config, spec.num_layers)?;
    let caches =
        [config.prefill.cache_spec("prefill", &spec)?, config.decode.cache_spec("decode", &spec)?];
    let weight_bytes = [prefill.num_bytes(), decode.num_bytes()];
    let info = config.info(&spec, [&caches[0], &caches[1]], weight_bytes);
    let (sender, receiver) = handshake(config, &spec)?;

    let [prefill_cache, decode_cache] = &caches;
    let place = Placement { config, spec: &spec, pool: "prefill", cache: prefill_cache };
    let prefill_forward = place.load(prefill_device, prefill, &config.prefill)?;
    let place = Placement { config, spec: &spec, pool: "decode", cache: decode_cache };
    let decode_forward = place.load(decode_device, decode, &config.decode)?;

    let metrics = Arc::new(EngineMetrics::default());
    let shared = Arc::new(Shared::new(metrics.clone(), spec.eos_token_ids));
    let (to_prefill, prefill_inbox) = channel();
    let (to_decode, decode_inbox) = channel();
    let (prefill_wire, decode_wire) = wire_pair();
    let sizes = caches.each_ref().map(pool_size);
    show_empty(&metrics, sizes);
    let prefill_worker = PrefillWorker::<_, T> {
        forward: prefill_forward,
        scheduler: PrefillScheduler::new(prefill_config(config, sizes)),
        sender,
        wire: prefill_wire,
        inbox: prefill_inbox,
        decode: to_decode.clone(),
        shared: shared.clone(),
        clock: config.clock.clone(),
        target: config.decode.kv,
        kv_scales: config.kv_scales.clone(),
        integrity: config.integrity,
        model_revision: Arc::from(config.fingerprint.as_str()),
        state: PrefillState::default(),
    };
    let decode_worker = DecodeWorker::<_, T> {
        forward: decode_forward,
        scheduler: DecodeScheduler::new(decode_config(&config.decode, sizes[1])),
        receiver,
        wire: decode_wire,
        inbox: decode_inbox,
        prefill: to_prefill.clone(),
        shared: shared.clone(),
        clock: config.clock.clone(),
        integrity: config.integrity,
        state: DecodeState::default(),
        inputs: Vec::new(),
    };
    metrics.ready.store(true, Ordering::Release);
    let to_peer = to_prefill.clone();
    let wake_prefill = move || drop(to_peer.send(PrefillInbox::Wake));
    let wake_decode = move || drop(to_decode.send(DecodeInbox::Wake));
    let threads = vec![
        spawn("prefill", (&shared, wake_decode), move || prefill_worker.run())?,
        spawn("decode", (&shared, wake_prefill), move || decode_worker.run())?,
    ];
    let commands = Commands { inbox: to_prefill, shared: shared.clone() };
    let handle = EngineHandle::new(move |command| commands.send(command), info, metrics);
    Ok((handle, EngineThreads { threads, shared }))
}

/// Where a pool's part of the model goes.
struct Placement<'a> {
    config: &'a EngineConfig,
    spec: &'a ModelSpec,
    pool: &'static str,
    cache: &'a CacheSpec,
}

impl Placement<'_> {
    /// Puts the weights and an empty cache on the device and runs it once.
    fn load<D: Device>(
        &self,
        device: D,
        weights: ModelWeights,
        settings: &PoolConfig,
    ) -> Result<Forward<D>, StartError> {
        let Self { config, spec, pool, cache } = *self;
        let is_prefill = pool == "prefill";
        let attention = if is_prefill { Attention::Expanded } else { Attention::Absorbed };
        let limits = (attention, settings.step_limits(cache, config.max_model_len));
        let scales = config.kv_scales.of(settings.kv, spec.num_layers);
        let is_scaled = settings.kv.scaled && config.kv_scales != KvScales::Auto;
        let load = || {
            let mut forward = Forward::new(device, spec, weights, *cache, limits)?;
            warm_up(&mut forward, is_scaled.then_some(&scales))?;
            warm_up_hand_off(&mut forward, is_prefill.then_some(config.decode.kv))?;
            Ok(forward)
        };
        load().map_err(|source| StartError::Device { pool, source })
    }
}

/// The way in. Dropping the last handle drops it, and that drains the engine.
struct Commands {
    inbox: mpsc::Sender<PrefillInbox>,
    shared: Arc<Shared>,
}

impl Commands {
    /// Whether the engine still listens.
    fn send(&self, command: Command) -> bool {
        let message = match command {
            Command::Submit { id, request, events } => {
                let record = Record::new(id, request, events, self.shared.clone());
                PrefillInbox::Submit(Box::new(record))
            }
            Command::Abort(id) => PrefillInbox::Abort(id),
            Command::Inject(fault) => PrefillInbox::Inject(fault),
            Command::Drain => PrefillInbox::Drain,
        };
        self.inbox.send(message).is_ok()
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.send(Command::Drain);
    }
}

/// What a pool's thread does last, panic or not, when all that it held has been dropped.
struct PoolEnd<'a, W: Fn()> {
    pool: &'static str,
    shared: &'a Shared,
    wake_peer: W,
}

impl<W: Fn()> Drop for PoolEnd<'_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.stop(format!("the {} pool panicked", self.pool));
        }
        self.shared.metrics.ready.store(false, Ordering::Release);
        (self.wake_peer)();
    }
}

fn spawn(
    pool: &'static str,
    (shared, wake_peer): (&Arc<Shared>, impl Fn() + Send + 'static),
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let shared = shared.clone();
    let body = move || {
        let _end = PoolEnd { pool, shared: &shared, wake_peer };
        run();
    };
    std::thread::Builder::new().name(pool.to_owned()).spawn(body).map_err(StartError::Thread)
}

fn pool_size(cache: &CacheSpec) -> PoolSize {
    PoolSize {
        num_pages: u32::try_from(cache.num_pages).expect("checked by `cache_spec`"),
        page_size: cache.page_size,
    }
}

fn show_empty(metrics: &EngineMetrics, [prefill, decode]: [PoolSize; 2]) {
    for (pool, size) in [(&metrics.prefill, prefill), (&metrics.decode, decode)] {
        pool.pages_total.store(u64::from(size.num_pages), Ordering::Relaxed);
        pool.pages_free.store(u64::from(size.num_pages), Ordering::Relaxed);
    }
}

fn prefill_config(config: &EngineConfig, [pool, decode_pool]: [PoolSize; 2]) -> PrefillConfig {
    PrefillConfig {
        pool,
        decode_pool,
        step_tokens: config.prefill.step_tokens,
        max_seqs: config.prefill.max_seqs,
        max_waiting: config.max_waiting,
        max_bypass: MAX_BYPASS,
    }
}

fn decode_config(decode: &PoolConfig, pool: PoolSize) -> DecodeConfig {
    DecodeConfig { pool, max_seqs: decode.max_seqs, reserve_tokens: pool.page_size }
}

/// Lets the two pools compare descriptors before either accepts a request.
fn handshake(config: &EngineConfig, spec: &ModelSpec) -> Result<(Sender, Receiver), StartError> {
    // Both pools begin and end with this process, so one generation is all there is.
    let mut sender = Sender::new(1);
    let mut receiver = Receiver::new(descriptor(config, &config.decode, spec));
    let hello = sender.hello(descriptor(config, &config.prefill, spec));
    for action in receiver.on_message(hello) {
        let ReceiverAction::Send(answer) = action else { continue };
        for action in sender.on_message(answer) {
            if let SenderAction::NotReady(differences) = action {
                let text: Vec<String> = differences.iter().map(ToString::to_string).collect();
                return Err(StartError::Handshake { reason: text.join("; ") });
            }
        }
    }
    Ok((sender, receiver))
}

fn descriptor(config: &EngineConfig, pool: &PoolConfig, spec: &ModelSpec) -> Descriptor {
    Descriptor {
        page_size: pool.page_size,
        kv_entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
        num_layers: spec.num_layers,
        rope: format!("{:?}", spec.rope),
        model_fingerprint: config.fingerprint.clone(),
        integrity: config.integrity,
        speculative_layers: 0,
        weights: pool.weights.clone(),
        kv_format: pool.kv.name.to_owned(),
        protocol_version: Descriptor::PROTOCOL_VERSION,
    }
}
