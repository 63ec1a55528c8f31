//! Launches of mixture-of-experts layers.

use super::super::cpu::CpuDevice;
use super::super::layout::{int, invert};
use super::{Result, launched};
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::exec::PackedView;
use tessera_kernel_artifacts::lanes::{View, ViewMut};
use tessera_kernels::launch::PlanError;
use tessera_kernels::ops::combine::Combine;
use tessera_kernels::ops::linear::GroupedLinear;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::router::Router;

pub(super) fn router(device: &mut CpuDevice, op: &Router) -> Result {
    device.lend([op.topk_ids, op.topk_weights], |device, [ids, weights]| {
        let [tokens, experts] = [op.logits.rows, op.logits.cols];
        let chosen = [tokens, op.top_k];
        let launch = cpu::Router {
            logits: device.view(&op.logits),
            bias: View::new(device.f32(op.bias), [experts]),
            num_groups: int(op.num_groups),
            topk_groups: int(op.topk_groups),
            norm_topk_prob: i64::from(op.norm_topk_prob),
            routed_scaling_factor: op.routed_scaling_factor,
            topk_ids: ViewMut::new(ids.i32(), chosen),
            topk_weights: ViewMut::new(weights.f32(), chosen),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn permute(device: &mut CpuDevice, op: &Permute) -> Result {
    let lent = [op.out.buffer, op.order, op.expert_offsets];
    device.lend_with_scratch(lent, |device, scratch, [out, order, offsets]| {
        let choices = op.out.rows;
        let launch = cpu::PermuteOrder {
            topk_ids: View::new(device.i32(op.topk_ids), [choices]),
            order: ViewMut::new(order.i32(), [choices]),
            row_of: scratch.row_of.view([choices]),
            expert_offsets: ViewMut::new(offsets.i32(), [op.num_experts + 1]),
        };
        launched(launch.launch(device.cpu()))?;
        let launch = cpu::PermuteRows {
            x: device.view(&op.x),
            order: View::new(order.i32(), [choices]),
            top_k: int(op.top_k),
            out: out.view(&op.out),
        };
        launched(launch.launch(device.cpu()))
    })
}

/// The weights of one launch were loaded one after the other, so they are one slice.
pub(super) fn grouped_linear(device: &mut CpuDevice, op: &GroupedLinear) -> Result {
    device.lend([op.out.buffer], |device, [out]| {
        let first = op.weights[0].0 as usize;
        if let Some(at) = (0..op.weights.len()).find(|i| op.weights[*i].0 as usize != first + i) {
            let got = format!("weight {} after {}", op.weights[at].0, op.weights[at - 1].0);
            let want = "weights loaded one after the other";
            return Err(PlanError::Value { op: "grouped_linear", arg: "weights", got, want }.into());
        }
        let experts = &device.packed[first..first + op.weights.len()];
        let launch = cpu::WGemmGrouped {
            x: device.view(&op.x),
            w: PackedView::<3>::new(experts),
            expert_offsets: View::new(device.i32(op.expert_offsets), [experts.len() + 1]),
            y: out.view(&op.out),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn combine(device: &mut CpuDevice, op: &Combine) -> Result {
    device.lend_with_scratch([op.out.buffer], |device, scratch, [out]| {
        let choices = [op.out.rows, op.top_k];
        let row_of = scratch.row_of.take(op.out.rows * op.top_k);
        invert(&device.i32(op.order)[..row_of.len()], row_of)?;
        let (x, row_of) = (device.view(&op.x), View::new(row_of, choices));
        let topk_weights = View::new(device.f32(op.topk_weights), choices);
        let out = out.view(&op.out);
        match &op.shared {
            None => {
                let launch = cpu::Combine { x, row_of, topk_weights, out };
                launched(launch.launch(device.cpu()))
            }
            Some(shared) => {
                let shared = device.view(shared);
                let launch = cpu::CombineShared { x, row_of, topk_weights, shared, out };
                launched(launch.launch(device.cpu()))
            }
        }
    })
}
