//! Queries into latent space and values out of it.
//!
//! A head's part of `kv_b` is used along both axes. Along its rows (`w_k`) a kernel of its own reads
//! it where it is. Along its columns (`w_v`) it is a weight like any other: one product a head, with
//! a copy of its rows in their format.

use super::super::cpu::{CpuDevice, pack};
use super::super::layout::{dense_heads, int, nope_heads};
use super::{Result, launched};
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::Isa;
use tessera_kernel_artifacts::lanes::exec::PackedView;
use tessera_kernel_artifacts::lanes::isa::Scalar;
use tessera_kernel_artifacts::lanes::memory::Arena;
use tessera_kernel_artifacts::lanes::packed::PackedWeights;
use tessera_kernels::formats::{PackedMatrix, Parts, format};
use tessera_kernels::launch::WeightId;
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::mla_prefill::MlaDims;

/// `w_v` of each head, `[v_head_dim, kv_lora_rank]`, for each `kv_b` that was absorbed so far.
#[derive(Debug, Default)]
pub(in crate::device) struct Absorbed(HashMap<u32, Vec<PackedWeights>>);

impl Absorbed {
    /// Makes the heads' weights of a `kv_b` that is not there yet.
    pub(in crate::device) fn prepare(
        &mut self,
        id: WeightId,
        kv_b: &PackedWeights,
        dims: &MlaDims,
    ) -> Result {
        self.heads(id, kv_b, dims).map(|_| ())
    }

    /// The heads of `kv_b`; made now, if nobody had them prepared.
    fn heads(
        &mut self,
        id: WeightId,
        kv_b: &PackedWeights,
        dims: &MlaDims,
    ) -> Result<&[PackedWeights]> {
        Ok(match self.0.entry(id.0) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(head_values(kv_b, dims)?),
        })
    }
}

fn head_values(kv_b: &PackedWeights, dims: &MlaDims) -> Result<Vec<PackedWeights>> {
    let arena = Arena::new();
    let (nope, v, rank) = (dims.qk_nope_head_dim, dims.v_head_dim, dims.kv_lora_rank);
    let head = |head: usize| {
        let first = head * dims.kv_b_head_rows() + nope;
        let rows = first..first + v;
        if let Some(copy) = kv_b.copy_rows(rows.clone(), &arena)? {
            return Ok(copy);
        }
        let mut w_v = vec![0.0; v * rank];
        let scalar = Scalar::detect().expect("every CPU has the scalar instructions");
        kv_b.decode_block(scalar, [rows, 0..rank], &mut w_v, rank);
        pack(&plain([v, rank], w_v.into_iter()), &arena)
    };
    (0..dims.num_heads).map(head).collect()
}

/// A matrix of f32.
fn plain([rows, cols]: [usize; 2], values: impl Iterator<Item = f32>) -> PackedMatrix {
    let codes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let format = format("f32").expect("a format of ours");
    PackedMatrix::new(format, rows, cols, Parts::unscaled(Bytes::from(codes)))
        .expect("finite values of that shape")
}

pub(super) fn absorb_query(device: &mut CpuDevice, op: &AbsorbQuery) -> Result {
    let dims = &op.dims;
    device.lend([op.ql_nope.buffer], |device, [ql_nope]| {
        let absorb = cpu::AbsorbQuery {
            q_nope: device.heads(&op.q, nope_heads(dims)),
            kv_b: device.packed_weight(op.kv_b),
            v_head_dim: int(dims.v_head_dim),
            ql_nope: ql_nope.heads(&op.ql_nope, dense_heads(dims, dims.kv_lora_rank)),
        };
        launched(absorb.launch(device.cpu()))
    })
}

pub(super) fn absorb_value(device: &mut CpuDevice, op: &AbsorbValue) -> Result {
    let (rank, size) = (op.dims.kv_lora_rank, op.dims.v_head_dim);
    let mut absorbed = std::mem::take(&mut device.absorbed);
    let result = device.lend([op.out.buffer], |device, [out]| {
        let heads = absorbed.heads(op.kv_b, device.packed(op.kv_b), &op.dims)?;
        heads.iter().enumerate().try_for_each(|(head, w)| {
            let x = device.view(&op.latent.columns(head * rank, rank));
            let y = out.view(&op.out.columns(head * size, size));
            launched(cpu::WGemm { x, w: PackedView::<2>::new(w), y }.launch(device.cpu()))
        })
    });
    device.absorbed = absorbed;
    result
}
