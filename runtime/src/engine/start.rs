//! Puts an engine together: two pools, a handshake, two threads.

use super::config::{EngineConfig, KvScales, PoolConfig, StartError};
use super::decode::{DecodeState, DecodeWorker};
use super::handle::EngineHandle;
use super::info::EngineMetrics;
use super::pool::warm_up;
use super::prefill::{PrefillInbox, PrefillWorker};
use super::record::Shared;
use crate::cache::{NoopTracker, PageTracker, PoolSize, TagTracker};
use crate::device::{CacheSpec, CpuDevice, DeviceError};
use crate::model::{Attention, Forward, ModelSpec, ModelWeights};
use crate::schedule::{DecodeConfig, DecodeScheduler, PrefillConfig, PrefillScheduler};
use crate::transfer::{Descriptor, Receiver, ReceiverAction, Sender, SenderAction, wire_pair};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
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
pub struct EngineThreads(Vec<JoinHandle<()>>);

impl EngineThreads {
    /// Waits until both pools have ended (see [`EngineHandle::drain`]).
    ///
    /// # Errors
    /// The name of a thread that panicked.
    pub fn join(self) -> Result<(), String> {
        let name = |thread: &JoinHandle<()>| thread.thread().name().unwrap_or("?").to_owned();
        let mut result = Ok(());
        for thread in self.0 {
            let name = name(&thread);
            if thread.join().is_err() {
                result = Err(name);
            }
        }
        result
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
    if config.integrity {
        start_tracked::<TagTracker>(config, model)
    } else {
        start_tracked::<NoopTracker>(config, model)
    }
}

fn start_tracked<T: PageTracker + Send + 'static>(
    config: EngineConfig,
    model: EngineModel,
) -> Result<(EngineHandle, EngineThreads), StartError>
where
    T::Ledger: Send,
{
    let EngineModel { spec, prefill, decode } = model;
    config.kv_scales.check(&config, spec.num_layers)?;
    let caches =
        [config.prefill.cache_spec("prefill", &spec)?, config.decode.cache_spec("decode", &spec)?];
    let weight_bytes = [prefill.num_bytes(), decode.num_bytes()];
    let info = config.info(&spec, [&caches[0], &caches[1]], weight_bytes);
    let (sender, receiver) = handshake(&config, &spec)?;

    let put = |pool: &'static str, weights, attention| {
        let (settings, cache) = match pool {
            "prefill" => (&config.prefill, &caches[0]),
            _ => (&config.decode, &caches[1]),
        };
        let limits = (attention, settings.step_limits(cache, config.max_model_len));
        let forward = Forward::new(CpuDevice::new(), &spec, weights, cache.clone(), limits);
        let warm = |mut forward: Forward<CpuDevice>| -> Result<_, DeviceError> {
            let scales = config.kv_scales.of(settings.kv, spec.num_layers);
            let scaled = settings.kv.scaled && config.kv_scales != KvScales::Auto;
            warm_up(&mut forward, scaled.then_some(&scales))?;
            Ok(forward)
        };
        forward.and_then(warm).map_err(|source| StartError::Device { pool, source })
    };
    let prefill_forward = put("prefill", prefill, Attention::Expanded)?;
    let decode_forward = put("decode", decode, Attention::Absorbed)?;

    let metrics = Arc::new(EngineMetrics::default());
    for (pool, cache) in [(&metrics.prefill, &caches[0]), (&metrics.decode, &caches[1])] {
        pool.pages_total.store(cache.num_pages as u64, Ordering::Relaxed);
        pool.pages_free.store(cache.num_pages as u64, Ordering::Relaxed);
    }
    let shared = Arc::new(Shared {
        metrics: metrics.clone(),
        eos_token_ids: spec.eos_token_ids.clone(),
        live: AtomicUsize::new(0),
        draining: AtomicBool::new(false),
    });
    let (to_prefill, prefill_inbox) = channel();
    let (to_decode, decode_inbox) = channel();
    let (prefill_wire, decode_wire) = wire_pair();
    let pool_size = |cache: &CacheSpec| PoolSize {
        num_pages: u32::try_from(cache.num_pages).expect("checked by `cache_spec`"),
        page_size: cache.page_size,
    };
    let sizes = caches.each_ref().map(pool_size);
    let prefill_worker = PrefillWorker::<_, T> {
        forward: prefill_forward,
        scheduler: PrefillScheduler::new(prefill_config(&config, sizes)),
        sender,
        wire: prefill_wire,
        inbox: prefill_inbox,
        decode: to_decode,
        shared: shared.clone(),
        clock: config.clock.clone(),
        target: config.decode.kv,
        kv_scales: config.kv_scales.clone(),
        integrity: config.integrity,
        model_revision: Arc::from(config.fingerprint.as_str()),
        records: BTreeMap::new(),
        events: Vec::new(),
        damage_next_page: false,
    };
    let decode_worker = DecodeWorker::<_, T> {
        forward: decode_forward,
        scheduler: DecodeScheduler::new(decode_config(&config.decode, sizes[1])),
        receiver,
        wire: decode_wire,
        inbox: decode_inbox,
        prefill: to_prefill.clone(),
        shared,
        clock: config.clock.clone(),
        integrity: config.integrity,
        state: DecodeState::default(),
    };
    let threads = vec![
        spawn("prefill", move || prefill_worker.run())?,
        spawn("decode", move || decode_worker.run())?,
    ];
    metrics.ready.store(true, Ordering::Release);
    let send = move |command| to_prefill.send(PrefillInbox::Command(command)).is_ok();
    Ok((EngineHandle::new(send, info, metrics), EngineThreads(threads)))
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

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(StartError::Thread)
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
