//! One file per op: what its launch says (shapes, units, errors) and its reference.

pub mod absorb;
pub mod combine;
pub mod embedding;
pub mod gather;
pub mod kv_convert;
pub mod kv_write;
pub mod linear;
pub mod mla_decode;
pub mod mla_prefill;
pub mod page_digest;
pub mod page_tag_check;
pub mod permute;
pub mod rms_norm;
pub mod rope;
pub mod router;
pub mod sample;
pub mod swiglu;
