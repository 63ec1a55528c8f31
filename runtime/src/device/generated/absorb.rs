//! Queries into latent space and values out of it: one product a head, with the head's own weights.
//!
//! A head's part of `kv_b` is used along both axes. Along its columns (`w_v`) it is a weight like any
//! other, and a copy of its rows keeps its format. Along its rows (`w_k`) its codes lie the wrong
//! way round, so a copy is made once, transposed, in f32: exact, and read from end to end.

use super::super::cpu::{CpuDevice, pack};
use super::{Result, launched};
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::exec::PackedView;
use tessera_kernel_artifacts::lanes::memory::Arena;
use tessera_kernel_artifacts::lanes::packed::PackedWeights;
use tessera_kernels::formats::{PackedMatrix, Parts, format};
use tessera_kernels::launch::{RowView, WeightId};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::mla_prefill::MlaDims;

/// The heads' weights of each `kv_b` that was absorbed so far.
#[derive(Debug, Default)]
pub(in crate::device) struct Absorbed(HashMap<u32, HeadWeights>);

#[derive(Debug)]
struct HeadWeights {
    /// `w_k` transposed, `[kv_lora_rank, qk_nope_head_dim]`.
    keys: Vec<PackedWeights>,
    /// `w_v`, `[v_head_dim, kv_lora_rank]`.
    values: Vec<PackedWeights>,
}

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
    ) -> Result<&HeadWeights> {
        Ok(match self.0.entry(id.0) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(HeadWeights::new(kv_b, dims)?),
        })
    }
}

impl HeadWeights {
    fn new(kv_b: &PackedWeights, dims: &MlaDims) -> Result<Self> {
        let arena = Arena::new();
        let (nope, v, rank) = (dims.qk_nope_head_dim, dims.v_head_dim, dims.kv_lora_rank);
        let mut heads = Self { keys: Vec::new(), values: Vec::new() };
        for head in 0..dims.num_heads {
            let first = head * dims.kv_b_head_rows();
            let mut w_k = vec![0.0; nope * rank];
            kv_b.decode_block(first..first + nope, 0..rank, &mut w_k, rank);
            let transposed = (0..nope * rank).map(|i| w_k[i % nope * rank + i / nope]);
            heads.keys.push(pack(&plain([rank, nope], transposed), &arena)?);
            let rows = first + nope..first + nope + v;
            let copy = kv_b.copy_rows(rows.clone(), &arena)?;
            heads.values.push(match copy {
                Some(copy) => copy,
                None => {
                    let mut w_v = vec![0.0; v * rank];
                    kv_b.decode_block(rows, 0..rank, &mut w_v, rank);
                    pack(&plain([v, rank], w_v.into_iter()), &arena)?
                }
            });
        }
        Ok(heads)
    }
}

/// A matrix of f32.
fn plain([rows, cols]: [usize; 2], values: impl Iterator<Item = f32>) -> PackedMatrix {
    let codes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let format = format("f32").expect("a format of ours");
    PackedMatrix::new(format, rows, cols, Parts::unscaled(Bytes::from(codes)))
        .expect("finite values of that shape")
}

pub(super) fn absorb_query(device: &mut CpuDevice, op: &AbsorbQuery) -> Result {
    let (dims, rank) = (&op.dims, op.dims.kv_lora_rank);
    per_head(device, (op.kv_b, dims), &op.ql_nope, |heads, head| Product {
        x: op.q.columns(head * dims.qk_head_dim(), dims.qk_nope_head_dim),
        w: &heads.keys[head],
        y: op.ql_nope.columns(head * rank, rank),
    })
}

pub(super) fn absorb_value(device: &mut CpuDevice, op: &AbsorbValue) -> Result {
    let (rank, size) = (op.dims.kv_lora_rank, op.dims.v_head_dim);
    per_head(device, (op.kv_b, &op.dims), &op.out, |heads, head| Product {
        x: op.latent.columns(head * rank, rank),
        w: &heads.values[head],
        y: op.out.columns(head * size, size),
    })
}

/// `y = x * w^T` of one head.
struct Product<'a> {
    x: RowView,
    w: &'a PackedWeights,
    y: RowView,
}

/// Multiplies for each head; all products go to the buffer of `out`.
fn per_head(
    device: &mut CpuDevice,
    (kv_b, dims): (WeightId, &MlaDims),
    out: &RowView,
    product: impl Fn(&HeadWeights, usize) -> Product<'_>,
) -> Result {
    let mut absorbed = std::mem::take(&mut device.absorbed);
    let result = device.lend([out.buffer], |device, [out]| {
        let heads = absorbed.heads(kv_b, device.packed(kv_b), dims)?;
        (0..dims.num_heads).try_for_each(|head| {
            let Product { x, w, y } = product(heads, head);
            let (x, w) = (device.view(&x), PackedView::<2>::new(w));
            launched(cpu::WGemm { x, w, y: out.view(&y) }.launch(device.cpu()))
        })
    });
    device.absorbed = absorbed;
    result
}
