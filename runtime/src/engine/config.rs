//! What an engine is started with, and why a start is refused.

use super::info::{EngineInfo, IntegrityInfo, KvScaleInfo, PoolInfo};
use crate::device::{CacheSpec, DeviceError};
use crate::model::{ModelSpec, StepLimits};
use crate::schedule::Micros;
use std::sync::Arc;
use tessera_kernels::formats::{KV_FORMATS, KvFormat, kv_format};

/// Tells the time: microseconds since some start.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// Everything about an engine but its weights.
#[derive(Clone)]
pub struct EngineConfig {
    /// Name the model is served under.
    pub model_name: String,
    /// Tokens of prompt and output together, at most.
    pub max_model_len: usize,
    /// The pool that reads prompts.
    pub prefill: PoolConfig,
    /// The pool that writes answers.
    pub decode: PoolConfig,
    /// Whether pages carry tags and arrivals are checked.
    pub integrity: bool,
    /// Scales of caches whose format needs them.
    pub kv_scales: KvScales,
    /// Hash of what both pools must have in common.
    pub fingerprint: String,
    /// Requests that may wait for the prefill pool before more are refused.
    pub max_waiting: usize,
    /// The time.
    pub clock: Clock,
}

/// One pool's formats and sizes.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Name of the weight policy, for information.
    pub weights: String,
    /// KV-cache format.
    pub kv: &'static KvFormat,
    /// Tokens a page.
    pub page_size: usize,
    /// Bytes of the cache; whole pages of it are used.
    pub kv_memory: usize,
    /// Sequences in one step.
    pub max_seqs: usize,
    /// New tokens in one step.
    pub step_tokens: usize,
}

/// Where the scales of a scaled KV format come from.
#[derive(Debug, Clone, PartialEq)]
pub enum KvScales {
    /// Nowhere: only formats that need none can be used.
    Unset,
    /// One a layer, from the named source (`checkpoint`, `file PATH`, `fixed`).
    PerLayer {
        /// Named source.
        source: String,
        /// One a layer.
        scales: Vec<f32>,
    },
    /// Measured over each request's prompt at the hand-off; travels with its pages.
    Auto,
}

/// Why an engine does not start.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum StartError {
    #[error(
        "the {pool} pool's cache format {format} needs scales, and there are none: give --kv-scale \
         auto, a number or a file, or a checkpoint with a k_scale for every layer"
    )]
    NoKvScale { pool: &'static str, format: &'static str },
    #[error(
        "the prefill pool's cache format {format} is written before a prompt has been measured, so \
         --kv-scale auto cannot give its scales; give a number or a file"
    )]
    AutoScaleInPrefill { format: &'static str },
    #[error("{got} KV scales for {num_layers} layers (source: {source_name})")]
    NumKvScales { got: usize, num_layers: usize, source_name: String },
    #[error("KV scale of layer {layer} is {got}, expected a finite value above 0 ({source_name})")]
    KvScale { layer: usize, got: f32, source_name: String },
    #[error(
        "the {pool} pool's {kv_memory} bytes of cache hold no page: one of {page_size} tokens takes \
         {page_bytes} bytes"
    )]
    KvMemory { pool: &'static str, kv_memory: usize, page_size: usize, page_bytes: usize },
    #[error("{pool}: `{setting}` is {got}, expected {want}")]
    Setting { pool: &'static str, setting: &'static str, got: usize, want: String },
    #[error("no KV-cache format is called `{name}`; there are {supported:?}")]
    KvFormat { name: String, supported: Vec<&'static str> },
    #[error("cannot put the {pool} pool on its device")]
    Device { pool: &'static str, source: DeviceError },
    #[error("the pools do not fit together: {reason}")]
    Handshake { reason: String },
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// The KV-cache format of that name.
///
/// # Errors
/// [`StartError::KvFormat`], which lists the names there are.
pub fn named_kv_format(name: &str) -> Result<&'static KvFormat, StartError> {
    kv_format(name).ok_or_else(|| StartError::KvFormat {
        name: name.to_owned(),
        supported: KV_FORMATS.iter().map(|format| format.name).collect(),
    })
}

impl PoolConfig {
    /// The cache this pool allocates for `spec`.
    ///
    /// # Errors
    /// [`StartError::KvMemory`] if the memory holds no page, [`StartError::Setting`] on a zero.
    pub fn cache_spec(
        &self,
        pool: &'static str,
        spec: &ModelSpec,
    ) -> Result<CacheSpec, StartError> {
        let settings = [
            ("page_size", self.page_size),
            ("max_seqs", self.max_seqs),
            ("step_tokens", self.step_tokens),
        ];
        if let Some(&(setting, got)) = settings.iter().find(|(_, value)| *value == 0) {
            return Err(StartError::Setting { pool, setting, got, want: "at least 1".to_owned() });
        }
        let page_bytes = self.page_size * kv_bytes_per_token(spec, self.kv);
        let num_pages = (self.kv_memory / page_bytes).min(u32::MAX as usize);
        if num_pages == 0 {
            let (kv_memory, page_size) = (self.kv_memory, self.page_size);
            return Err(StartError::KvMemory { pool, kv_memory, page_size, page_bytes });
        }
        Ok(CacheSpec {
            format: self.kv,
            num_layers: spec.num_layers,
            num_pages,
            page_size: self.page_size,
            entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
        })
    }

    pub(super) fn step_limits(&self, cache: &CacheSpec, max_model_len: usize) -> StepLimits {
        StepLimits {
            tokens: self.step_tokens.max(self.max_seqs),
            seqs: self.max_seqs,
            pages_per_seq: max_model_len.div_ceil(self.page_size).min(cache.num_pages),
            logit_rows: self.max_seqs,
        }
    }

    fn info(&self, role: &'static str, cache: &CacheSpec, weight_bytes: usize) -> PoolInfo {
        let bytes_per_token = cache.num_layers * cache.entry * self.kv.element.bits() / 8;
        PoolInfo {
            role,
            weights: self.weights.clone(),
            kv_format: self.kv.name.to_owned(),
            page_size: self.page_size,
            num_pages: cache.num_pages,
            kv_tokens: cache.num_pages * self.page_size,
            kv_bytes: cache.num_pages * self.page_size * bytes_per_token,
            kv_bytes_per_token: bytes_per_token,
            weight_bytes,
        }
    }
}

/// Bytes of one token's cache entry over all layers.
pub fn kv_bytes_per_token(spec: &ModelSpec, kv: &KvFormat) -> usize {
    let entry = spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim;
    spec.num_layers * entry * kv.element.bits() / 8
}

impl KvScales {
    /// Refuses what a pool's format cannot be served with.
    pub(super) fn check(&self, config: &EngineConfig, num_layers: usize) -> Result<(), StartError> {
        for (pool, kv) in [("prefill", config.prefill.kv), ("decode", config.decode.kv)] {
            if kv.scaled && *self == Self::Unset {
                return Err(StartError::NoKvScale { pool, format: kv.name });
            }
        }
        if config.prefill.kv.scaled && *self == Self::Auto {
            return Err(StartError::AutoScaleInPrefill { format: config.prefill.kv.name });
        }
        let Self::PerLayer { source, scales } = self else { return Ok(()) };
        if scales.len() != num_layers {
            let (got, source_name) = (scales.len(), source.clone());
            return Err(StartError::NumKvScales { got, num_layers, source_name });
        }
        match scales.iter().position(|scale| !(scale.is_finite() && *scale > 0.0)) {
            Some(layer) => {
                let (got, source_name) = (scales[layer], source.clone());
                Err(StartError::KvScale { layer, got, source_name })
            }
            None => Ok(()),
        }
    }

    /// The scales that pages of format `kv` are written with before a request is measured.
    pub(super) fn of(&self, kv: &KvFormat, num_layers: usize) -> Vec<f32> {
        match self {
            Self::PerLayer { scales, .. } if kv.scaled => scales.clone(),
            _ => vec![1.0; num_layers],
        }
    }

    fn info(&self, kv: &KvFormat) -> KvScaleInfo {
        let (source, per_layer) = match self {
            _ if !kv.scaled => ("none", Vec::new()),
            Self::PerLayer { source, scales } => (source.as_str(), scales.clone()),
            Self::Auto => ("auto", Vec::new()),
            Self::Unset => ("none", Vec::new()),
        };
        KvScaleInfo { source: source.to_owned(), per_layer }
    }
}

impl EngineConfig {
    /// What the engine will say of itself.
    pub(super) fn info(
        &self,
        spec: &ModelSpec,
        caches: [&CacheSpec; 2],
        weight_bytes: [usize; 2],
    ) -> EngineInfo {
        let covers = [
            "decode reads",
            "chunked-prefill reads",
            "prefix-cache hits",
            "arrivals from the prefill pool",
        ];
        EngineInfo {
            model: self.model_name.clone(),
            max_model_len: self.max_model_len,
            vocab_size: spec.vocab_size,
            eos_token_ids: spec.eos_token_ids.clone(),
            model_fingerprint: self.fingerprint.clone(),
            pools: vec![
                self.prefill.info("prefill", caches[0], weight_bytes[0]),
                self.decode.info("decode", caches[1], weight_bytes[1]),
            ],
            kv_scale: self.kv_scales.info(self.decode.kv),
            integrity: IntegrityInfo {
                enabled: self.integrity,
                covers: if self.integrity { covers.to_vec() } else { Vec::new() },
            },
        }
    }
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("prefill", &self.prefill)
            .field("decode", &self.decode)
            .field("integrity", &self.integrity)
            .field("kv_scales", &self.kv_scales)
            .finish_non_exhaustive()
    }
}
