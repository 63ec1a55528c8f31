//! Who runs next: pure state machines, told the time and what happened.
//!
//! No device, clock or thread, and no token values but the prompts that the prefix cache needs.
//! [`RequestId`](crate::request::RequestId)s are made in order of arrival, so the smallest is the
//! oldest everywhere here, also after a preempted request comes back.

mod decode;
mod prefill;

pub use decode::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, DecodeSeq, Grant, Offer,
};
pub use prefill::{
    Admitted, Arrival, Chunk, PrefillBatch, PrefillConfig, PrefillEvent, PrefillScheduler,
};

/// Microseconds since some start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Micros(pub u64);
