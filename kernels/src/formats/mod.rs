//! Number formats as data: how an element is coded, which elements share a scale, how codes and
//! scales are packed. One file a format, one row in the list below; what differs is data.
//!
//! The rows become the modules, [`FORMATS`] and `weight_formats!`, which kernels take the types from.
//!
//! One policy everywhere (ADR 0003): encoding rounds half to even and saturates to the largest
//! finite value of the element; NaN stays NaN where the element has one and is refused where it
//! has none. Nothing here knows files, models or devices.

mod rows;

pub mod activation;
mod kv;
mod matrix;
pub mod number;
pub mod packing;
mod quantize;

#[allow(unused_imports, reason = "kernels take it up one by one")]
pub(crate) use kv::kv_formats;
pub use kv::{KV_FORMATS, KvFormat, kv_format};
pub use matrix::{MatrixError, PLAUSIBLE_MAX_ABS, PackedMatrix, Parts};
pub use tessera_tile_ir::format::{
    Element, Format, ScaleTile, ScaleType, TensorScaleKind, Tol, WHOLE,
};

rows::weight_rows! { ($)
    f32::F32,
    bf16::Bf16,
    f16::F16,
    fp8_tensor::Fp8Tensor,
    fp8_128x128::Fp8Tile128,
    fp8_1x128::Fp8Row128,
    fp8_channel::Fp8Channel,
    e5m2_tensor::E5m2Tensor,
    int4_g32::Int4G32,
    int4_g128::Int4G128,
    int4_g32_zp::Int4G32Zp,
    int4_g128_zp::Int4G128Zp,
    nvfp4::Nvfp4,
    mxfp4::Mxfp4,
    mxfp6_e3m2::Mxfp6E3M2,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_types_is_the_list_of_formats() {
        let mut listed: Vec<&Format> = Vec::new();
        weight_formats! { |W| {
            let (weight, activation) = (
                <W as tessera_kernel_dsl::Packed>::FORMAT,
                <<W as tessera_kernel_dsl::Packed>::Activation as tessera_kernel_dsl::Packed>::FORMAT,
            );
            assert_eq!(weight.activation(), activation, "{}", weight.name);
            listed.push(weight);
        } }
        assert_eq!(listed, FORMATS);
    }
}
