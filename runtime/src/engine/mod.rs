//! Two pools on threads of their own, from request to checked token.

mod handle;
mod info;

pub use handle::{Command, EngineHandle, EventSink, Fault};
pub use info::{EngineInfo, EngineMetrics, IntegrityInfo, KvScaleInfo, PoolInfo, PoolMetrics};
