//! Two pools on threads of their own, from request to checked token.

mod config;
mod handle;
mod info;

pub use config::{Clock, EngineConfig, KvScales, PoolConfig, StartError, kv_bytes_per_token};
pub use handle::{Command, EngineHandle, EventSink, Fault};
pub use info::{EngineInfo, EngineMetrics, IntegrityInfo, KvScaleInfo, PoolInfo, PoolMetrics};
