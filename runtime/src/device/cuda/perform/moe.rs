//! Launches of mixture-of-experts layers.

use super::super::CudaDevice;
use super::super::ffi::bytes_of;
use super::super::memory::Hold;
use super::super::views::{KernelArg, dense};
use super::Result;
use crate::device::layout::{int, invert};
use tessera_kernels::launch::BufferType;
use tessera_kernels::ops::combine::Combine;
use tessera_kernels::ops::linear::GroupedLinear;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::router::Router;
use tessera_ptx::launch::Arg;

pub(super) fn router(device: &mut CudaDevice, op: &Router) -> Result {
    let [tokens, experts] = [op.logits.rows, op.logits.cols];
    let chosen = [tokens, op.top_k];
    device.writes([op.topk_ids]);
    let args = [
        device.rows(&op.logits),
        device.array(op.bias, [experts]),
        Arg::Int(int(op.num_groups)),
        Arg::Int(int(op.topk_groups)),
        Arg::Int(i64::from(op.norm_topk_prob)),
        Arg::F32(op.routed_scaling_factor),
        device.array(op.topk_ids, chosen),
        device.array(op.topk_weights, chosen),
    ];
    Ok(device.kernels.launch("router", &args)?)
}

/// The inverse of the order stays, for the `Combine` of the same order.
pub(super) fn permute(device: &mut CudaDevice, op: &Permute) -> Result {
    let choices = op.out.rows;
    device.writes([op.order, op.expert_offsets]);
    let row_of = device.hold(Hold::RowOf, BufferType::I32, [choices])?;
    let order = device.array(op.order, [choices]);
    let args = [
        device.array(op.topk_ids, [choices]),
        order,
        row_of,
        device.array(op.expert_offsets, [op.num_experts + 1]),
    ];
    device.kernels.launch("permute_order", &args)?;
    device.row_of = Some(op.order);
    let args = [device.rows(&op.x), order, Arg::Int(int(op.top_k)), device.rows(&op.out)];
    Ok(device.kernels.launch("permute_rows", &args)?)
}

pub(super) fn grouped_linear(device: &mut CudaDevice, op: &GroupedLinear) -> Result {
    let args = [
        device.rows(&op.x),
        device.packed_group(&op.weights)?,
        device.array(op.expert_offsets, [op.weights.len() + 1]),
        device.rows(&op.out),
    ];
    Ok(device.kernels.launch("w_gemm_grouped", &args)?)
}

pub(super) fn combine(device: &mut CudaDevice, op: &Combine) -> Result {
    let choices = [op.out.rows, op.top_k];
    let row_of = row_of(device, op)?;
    let x = device.rows(&op.x);
    let topk_weights = device.array(op.topk_weights, choices);
    let out = device.rows(&op.out);
    match &op.shared {
        None => Ok(device.kernels.launch("combine", &[x, row_of, topk_weights, out])?),
        Some(shared) => {
            let args = [x, row_of, topk_weights, device.rows(shared), out];
            Ok(device.kernels.launch("combine_shared", &args)?)
        }
    }
}

/// The row of each choice: as `permute` left it, or worked out here for an order from elsewhere.
fn row_of(device: &mut CudaDevice, op: &Combine) -> Result<KernelArg> {
    let (shape, choices) = ([op.out.rows, op.top_k], op.out.rows * op.top_k);
    if device.row_of != Some(op.order) {
        let order = device.integers(op.order, choices)?;
        let mut row_of = vec![0; choices];
        invert(&order, &mut row_of)?;
        let memory = device.scratch.take(Hold::RowOf, choices * 4)?;
        device.uploads.write((memory, 0), bytes_of(&row_of))?;
        device.row_of = None;
    }
    let memory = device.scratch.take(Hold::RowOf, choices * 4)?;
    Ok(dense(memory.address(), "i32", shape))
}
