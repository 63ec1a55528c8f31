//! Tensor maps.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::layout::TensorMap;
use super::pointers::{In, Out};
use crate::code::{Code, ensure};
use crate::tensor_map::Tiled;
use std::ffi::c_void;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuTensorMapEncodeTiled(
    map: Out<TensorMap>,
    data_type: u32,
    rank: u32,
    address: In<c_void>,
    dims: In<u64>,
    strides: In<u64>,
    box_dims: In<u32>,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    oob_fill: u32,
) -> Code {
    call("cuTensorMapEncodeTiled", |_| {
        let rank = rank as usize;
        ensure((1..=5).contains(&rank), Code::ERROR_INVALID_VALUE)?;
        ensure(map.address().is_multiple_of(64), Code::ERROR_INVALID_VALUE)?;
        let tiled = Tiled {
            data_type,
            address: address.address() as u64,
            dims: dims.array(rank)?,
            strides: strides.array(rank - 1)?,
            box_dims: box_dims.array(rank)?,
            element_strides: element_strides.array(rank)?,
            interleave,
            swizzle,
            l2_promotion,
            oob_fill,
        };
        map.set(TensorMap { words: tiled.encode()? })
    })
}
