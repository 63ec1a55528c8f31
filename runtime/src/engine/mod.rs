//! Two pools on threads of their own, from request to checked token.
//!
//! ```text
//! EngineHandle --commands--> prefill thread --wire: offer, pages, commit--> decode thread
//!      ^                         |  ^                                        |   |
//!      |                         |  +---- preempted requests, wake-ups ------+   |
//!      +------ events of each request, from whichever pool has it ---------------+
//! ```
//! The engine knows token ids and nothing of text; it is told the time and owns no policy: the
//! schedulers decide, the transfer machines order, and these threads carry it out.

mod config;
mod decode;
mod handle;
mod info;
mod pool;
mod prefill;
mod record;
mod start;
mod steps;

pub use config::{
    Clock, EngineConfig, KvScales, PoolConfig, StartError, kv_bytes_per_token, named_kv_format,
};
pub use handle::{Command, EngineHandle, EventSink, Events, Fault};
pub use info::{EngineInfo, EngineMetrics, IntegrityInfo, KvScaleInfo, PoolInfo, PoolMetrics};
pub use start::{EngineModel, EngineStopped, EngineThreads, start, start_on};
