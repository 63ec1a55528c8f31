//! From settings to a running engine.

use super::progress::LoadBar;
use super::{DeviceKind, EngineArgs, OnOff, ServeArgs};
use crate::clock::Clock;
use anyhow::Context;
use std::path::Path;
use std::sync::Arc;
use tessera_runtime::checkpoint::{Checkpoint, Loaded, Progress, WeightPolicy, read_kv_scales};
use tessera_runtime::device::{CpuDevice, CudaDevice, KernelBundle, use_threads};
use tessera_runtime::engine::{
    EngineConfig, EngineHandle, EngineModel, EngineThreads, KvScales, PoolConfig, named_kv_format,
    start_on,
};
use tessera_runtime::model::ModelSpec;
use tessera_runtime::schedule::Micros;

/// Requests that may wait before more are refused with 503.
const MAX_WAITING: usize = 1024;

/// Loads the checkpoint and starts both pools.
///
/// # Errors
/// A setting or a file will not do; the message says which and why.
pub fn start_engine(
    args: &ServeArgs,
    clock: &Clock,
) -> anyhow::Result<(EngineHandle, EngineThreads)> {
    let dir = args.model_dir()?;
    let settings = &args.engine;
    if settings.threads > 0 {
        use_threads(settings.threads)?;
    }
    // Before weights are read, which takes long: whether there is anything to compute on.
    let cuda = cuda_devices(settings)?;
    let checkpoint = Checkpoint::open(&dir)?;
    let prefill = load(&checkpoint, &settings.prefill_weights, "prefill")?;
    let decode = load(&checkpoint, &settings.decode_weights, "decode")?;
    let spec = decode.spec.clone();
    let scales = kv_scales(args, &decode)?;
    let mut config = engine_config(settings, &spec, scales)?;
    config.model_name = args.served_names()?.remove(0);
    config.fingerprint.clone_from(&decode.fingerprint);
    let clock = clock.clone();
    config.clock =
        Arc::new(move || Micros(u64::try_from(clock.now().as_micros()).unwrap_or(u64::MAX)));
    let model = EngineModel { spec, prefill: prefill.weights, decode: decode.weights };
    match cuda {
        None => {
            let device = || CpuDevice::with_threads(settings.threads);
            Ok(start_on([device()?, device()?], config, model)?)
        }
        Some(devices) => start_on_cuda(devices, config, model),
    }
}

/// The device of each pool, if they are CUDA devices.
fn cuda_devices(settings: &EngineArgs) -> anyhow::Result<Option<[CudaDevice; 2]>> {
    let (DeviceKind::Cuda, Some(dir)) = (settings.device, &settings.kernels) else {
        return Ok(None);
    };
    let bundle = KernelBundle::open(dir).context("--kernels")?;
    let device = |pool: &str, number: u32| {
        let device = CudaDevice::new(number, &bundle);
        device.with_context(|| format!("--{pool}-device {number}"))
    };
    let prefill = device("prefill", settings.prefill_device)?;
    Ok(Some([prefill, device("decode", settings.decode_device)?]))
}

/// Starts both pools, with a bar each over the weights on their way to the device.
fn start_on_cuda(
    mut devices: [CudaDevice; 2],
    config: EngineConfig,
    model: EngineModel,
) -> anyhow::Result<(EngineHandle, EngineThreads)> {
    let weights = [("prefill", &model.prefill), ("decode", &model.decode)];
    let mut bars = Vec::new();
    for (device, (pool, weights)) in devices.iter_mut().zip(weights) {
        let bar = LoadBar::new(&format!("{pool} weights to the device"));
        let (total_bytes, shown) = (weights.num_bytes() as u64, bar.clone());
        device.on_upload(Box::new(move |done_bytes| {
            shown.show(&Progress { done_bytes, total_bytes, name: "" });
        }));
        bars.push(bar);
    }
    let started = start_on(devices, config, model)?;
    bars.into_iter().for_each(LoadBar::finish);
    Ok(started)
}

fn load(checkpoint: &Checkpoint, weights: &str, pool: &str) -> anyhow::Result<Loaded> {
    let policy = WeightPolicy::preset(weights)?;
    let bar = LoadBar::new(&format!("{pool} weights ({weights})"));
    let loaded = checkpoint.load(&policy, &mut |progress| bar.show(&progress))?;
    bar.finish();
    for warning in &loaded.report.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(loaded)
}

fn engine_config(
    settings: &EngineArgs,
    spec: &ModelSpec,
    kv_scales: KvScales,
) -> anyhow::Result<EngineConfig> {
    let pool = |weights: &str, kv: &str, step_tokens| {
        anyhow::Ok(PoolConfig {
            weights: weights.to_owned(),
            kv: named_kv_format(kv)?,
            page_size: settings.page_size,
            kv_memory: settings.kv_memory.0,
            max_seqs: settings.max_batch,
            step_tokens,
        })
    };
    let prefill = pool(&settings.prefill_weights, &settings.prefill_kv, settings.chunk_tokens)?;
    let decode = pool(&settings.decode_weights, &settings.decode_kv, settings.max_batch)?;
    Ok(EngineConfig {
        model_name: String::new(),
        max_model_len: context(spec, [("prefill", &prefill), ("decode", &decode)])?,
        prefill,
        decode,
        integrity: settings.kv_integrity == OnOff::On,
        kv_scales,
        fingerprint: String::new(),
        max_waiting: MAX_WAITING,
        clock: Arc::new(Micros::default),
    })
}

/// Tokens a request may have: the model's context, or less if a pool's cache holds less.
fn context(spec: &ModelSpec, pools: [(&'static str, &PoolConfig); 2]) -> anyhow::Result<usize> {
    let mut context = spec.max_position_embeddings;
    for (name, pool) in pools {
        let held = pool.cache_spec(name, spec)?.num_pages * pool.page_size;
        if held < context {
            eprintln!(
                "warning: the {name} pool's cache holds {held} tokens, so the context is limited to \
                 that instead of {context}; --kv-memory sets it"
            );
            context = held;
        }
    }
    Ok(context)
}

/// The operator's word first, then the checkpoint's; docs/adr/0007.
fn kv_scales(args: &ServeArgs, loaded: &Loaded) -> anyhow::Result<KvScales> {
    let num_layers = loaded.spec.num_layers;
    let per_layer = |source: &str, scales| KvScales::PerLayer { source: source.to_owned(), scales };
    match args.kv_scale() {
        Some("auto") => Ok(KvScales::Auto),
        Some(text) => match text.parse::<f32>() {
            Ok(scale) => Ok(per_layer("fixed", vec![scale; num_layers])),
            Err(_) => {
                let scales = read_kv_scales(Path::new(text), num_layers).with_context(|| {
                    format!("--kv-scale {text}: neither `auto` nor a number, so read as a file")
                })?;
                Ok(per_layer(&format!("file {text}"), scales))
            }
        },
        None => Ok(match &loaded.kv_scales {
            Some(scales) => per_layer("checkpoint", scales.clone()),
            None => KvScales::Unset,
        }),
    }
}
