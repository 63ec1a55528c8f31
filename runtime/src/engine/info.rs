//! What an engine says of itself: settings in effect, capacities, counters.

use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Settings in effect, as `/server_info` shows them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineInfo {
    /// Name the model is served under.
    pub model: String,
    /// Tokens of prompt and output together, at most.
    pub max_model_len: usize,
    /// Ids outside `0..vocab_size` are refused.
    pub vocab_size: usize,
    /// End-of-sequence token ids.
    pub eos_token_ids: Vec<u32>,
    /// Hash of config, tokenizer, template and base weights (not of the weight format), in hex.
    pub model_fingerprint: String,
    /// Prefill, then decode.
    pub pools: Vec<PoolInfo>,
    /// Scales of the decode pool's cache.
    pub kv_scale: KvScaleInfo,
    /// What the integrity check covers.
    pub integrity: IntegrityInfo,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolInfo {
    /// `prefill` or `decode`.
    pub role: &'static str,
    /// Weight policy, such as `int4`.
    pub weights: String,
    /// KV-cache format, such as `fp8_e4m3`.
    pub kv_format: String,
    /// Tokens a page.
    pub page_size: usize,
    /// Pages of the pool.
    pub num_pages: usize,
    /// Tokens the cache holds.
    pub kv_tokens: usize,
    /// Bytes of the cache.
    pub kv_bytes: usize,
    /// Bytes of a token's cache entry, over all layers.
    pub kv_bytes_per_token: usize,
    /// Bytes of the weights.
    pub weight_bytes: usize,
}

/// Where KV scales come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KvScaleInfo {
    /// `none`, `checkpoint`, `file PATH`, `fixed` or `auto`.
    pub source: String,
    /// One a layer, unless `none` or `auto`.
    pub per_layer: Vec<f32>,
}

/// What the integrity check covers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntegrityInfo {
    /// Whether it is on.
    pub enabled: bool,
    /// The reads and arrivals it covers.
    pub covers: Vec<&'static str>,
}

/// Counters and gauges, updated by the engine and read by anyone.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as the metrics are")]
pub struct EngineMetrics {
    /// Set once both pools have run a forward pass.
    pub ready: AtomicBool,
    pub prefill: PoolMetrics,
    pub decode: PoolMetrics,
    pub prompt_tokens_total: AtomicU64,
    pub generation_tokens_total: AtomicU64,
    pub cached_tokens_total: AtomicU64,
    pub requests_finished_total: AtomicU64,
    pub requests_failed_total: AtomicU64,
    pub aborted_requests_total: AtomicU64,
    pub preempted_requests_total: AtomicU64,
    pub nan_logits_total: AtomicU64,
    pub kv_integrity_page_tag_total: AtomicU64,
    pub kv_integrity_page_digest_total: AtomicU64,
    pub kv_saturated_elements_total: AtomicU64,
    /// Decode steps that were asked for before the one before was finished.
    pub decode_steps_ahead_total: AtomicU64,
    pub transfers_total: AtomicU64,
    pub transfer_failed_total: AtomicU64,
    pub transfer_bytes_total: AtomicU64,
}

/// Gauges of one pool.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named as the metrics are")]
pub struct PoolMetrics {
    pub running_reqs: AtomicU64,
    pub queue_reqs: AtomicU64,
    pub pages_total: AtomicU64,
    pub pages_free: AtomicU64,
    pub pages_cached: AtomicU64,
    pub pages_leased: AtomicU64,
    pub pages_quarantined: AtomicU64,
    pub steps_total: AtomicU64,
}
