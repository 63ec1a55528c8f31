//! Number formats as data: how an element is coded, which elements share a scale, how codes and
//! scales are packed. One file a format, one row of [`FORMATS`]; what differs is data.
//!
//! One policy everywhere (ADR 0003): encoding rounds half to even and saturates to the largest
//! finite value of the element; NaN stays NaN where the element has one and is refused where it
//! has none. Nothing here knows files, models or devices.

pub mod bf16;
pub mod e5m2_tensor;
pub mod f16;
pub mod f32;
pub mod fp8_128x128;
pub mod fp8_1x128;
pub mod fp8_channel;
pub mod fp8_tensor;
pub mod int4_g128;
pub mod int4_g128_zp;
pub mod int4_g32;
pub mod int4_g32_zp;
mod kv;
mod matrix;
pub mod mxfp4;
pub mod nvfp4;
pub mod packing;
mod quantize;

pub use kv::{KV_FORMATS, KvFormat, kv_format};
pub use matrix::{MatrixError, PLAUSIBLE_MAX_ABS, PackedMatrix, Parts};
pub use tessera_tile_ir::format::{
    Element, Format, ScaleTile, ScaleType, TensorScaleKind, Tol, WHOLE,
};

/// Every weight format.
pub static FORMATS: &[&Format] = &[
    &f32::FORMAT,
    &bf16::FORMAT,
    &f16::FORMAT,
    &fp8_tensor::FORMAT,
    &fp8_128x128::FORMAT,
    &fp8_1x128::FORMAT,
    &fp8_channel::FORMAT,
    &e5m2_tensor::FORMAT,
    &int4_g32::FORMAT,
    &int4_g128::FORMAT,
    &int4_g32_zp::FORMAT,
    &int4_g128_zp::FORMAT,
    &nvfp4::FORMAT,
    &mxfp4::FORMAT,
];

/// The weight format of that name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// Whether a `[rows, cols]` weight can be held.
///
/// # Errors
/// [`MatrixError::Empty`] without elements; [`MatrixError::Group`] if `cols` cuts a scale group.
pub fn check_shape(format: &Format, rows: usize, cols: usize) -> Result<(), MatrixError> {
    if rows == 0 || cols == 0 {
        return Err(MatrixError::Empty { format: format.name, rows, cols });
    }
    match format.scale_tile {
        Some(tile) if !tile.ragged && !cols.is_multiple_of(tile.cols) => {
            Err(MatrixError::Group { format: format.name, cols, group: tile.cols })
        }
        _ => Ok(()),
    }
}
