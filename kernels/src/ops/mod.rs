//! One file per op: what its launch says (shapes, units, errors), its check and its reference.
//!
//! References accumulate in f32 in one fixed order (see [`dot()`]), so a row's result has the same
//! bits alone and in any batch, on one thread and on many.

pub mod absorb;
pub mod attention;
pub mod cache;
mod check;
pub mod combine;
mod dot;
pub mod embedding;
pub mod feed;
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
mod rows;
pub mod sample;
pub mod swiglu;

pub use dot::dot;
pub use rows::{Rows, RowsMut};
