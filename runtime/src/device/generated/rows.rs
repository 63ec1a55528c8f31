//! Launches that work on rows.

use super::super::cpu::CpuDevice;
use super::{Result, launched};
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::{View, ViewMut};
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::FeedTokens;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::Linear;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::swiglu::SwiGlu;

pub(super) fn feed_tokens(device: &mut CpuDevice, op: &FeedTokens) -> Result {
    device.lend([op.ids], |device, [ids]| {
        let launch = cpu::FeedTokens {
            sampled: View::new(device.i32(op.sampled), [op.num_rows]),
            source: View::new(device.i32(op.source), [op.num_tokens]),
            ids: ViewMut::new(ids.i32(), [op.num_tokens]),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn embedding(device: &mut CpuDevice, op: &Embedding) -> Result {
    device.lend([op.out.buffer], |device, [out]| {
        let launch = cpu::Embedding {
            ids: View::new(device.i32(op.ids), [op.out.rows]),
            table: device.packed_weight(op.table),
            out: out.view(&op.out),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn rms_norm(device: &mut CpuDevice, op: &RmsNorm) -> Result {
    let (width, eps) = (op.x.cols, op.eps);
    match &op.residual {
        None => device.lend([op.out.buffer], |device, [out]| {
            let weight = View::new(device.f32(op.weight), [width]);
            let out = out.view(&op.out);
            let launch = cpu::RmsNorm { x: device.view(&op.x), weight, eps, out };
            launched(launch.launch(device.cpu()))
        }),
        Some(view) => device.lend([view.buffer, op.out.buffer], |device, [residual, out]| {
            let launch = cpu::AddRmsNorm {
                x: device.view(&op.x),
                residual: residual.view(view),
                weight: View::new(device.f32(op.weight), [width]),
                eps,
                out: out.view(&op.out),
            };
            launched(launch.launch(device.cpu()))
        }),
    }
}

pub(super) fn linear(device: &mut CpuDevice, op: &Linear) -> Result {
    device.lend([op.out.buffer], |device, [out]| {
        let (x, w) = (device.view(&op.x), device.packed_weight(op.weight));
        launched(cpu::WGemm { x, w, y: out.view(&op.out) }.launch(device.cpu()))
    })
}

pub(super) fn swiglu(device: &mut CpuDevice, op: &SwiGlu) -> Result {
    device.lend([op.out.buffer], |device, [out]| {
        let (gate, up) = (device.view(&op.gate), device.view(&op.up));
        launched(cpu::Swiglu { gate, up, out: out.view(&op.out) }.launch(device.cpu()))
    })
}

pub(super) fn gather_rows(device: &mut CpuDevice, op: &GatherRows) -> Result {
    device.lend([op.out.buffer], |device, [out]| {
        let rows = View::new(device.i32(op.rows), [op.out.rows]);
        let (x, out) = (device.view(&op.x), out.view(&op.out));
        launched(cpu::GatherRows { x, rows, out }.launch(device.cpu()))
    })
}
