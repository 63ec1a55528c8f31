//! Launches that work on rows.

use super::super::CudaDevice;
use super::Result;
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::FeedTokens;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::Linear;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::swiglu::SwiGlu;
use tessera_ptx::launch::Arg;

pub(super) fn feed_tokens(device: &mut CudaDevice, op: &FeedTokens) -> Result {
    device.writes([op.ids]);
    let args = [
        device.array(op.sampled, [op.num_rows]),
        device.array(op.source, [op.num_tokens]),
        device.array(op.ids, [op.num_tokens]),
    ];
    Ok(device.kernels.launch("feed_tokens", &args)?)
}

pub(super) fn embedding(device: &mut CudaDevice, op: &Embedding) -> Result {
    let ids = device.array(op.ids, [op.out.rows]);
    let args = [ids, device.packed(op.table), device.rows(&op.out)];
    Ok(device.kernels.launch("embedding", &args)?)
}

pub(super) fn rms_norm(device: &mut CudaDevice, op: &RmsNorm) -> Result {
    let weight = device.array(op.weight, [op.x.cols]);
    let (x, eps, out) = (device.rows(&op.x), Arg::F32(op.eps), device.rows(&op.out));
    match &op.residual {
        None => Ok(device.kernels.launch("rms_norm", &[x, weight, eps, out])?),
        Some(residual) => {
            let residual = device.rows(residual);
            Ok(device.kernels.launch("add_rms_norm", &[x, residual, weight, eps, out])?)
        }
    }
}

pub(super) fn linear(device: &mut CudaDevice, op: &Linear) -> Result {
    let args = [device.rows(&op.x), device.packed(op.weight), device.rows(&op.out)];
    Ok(device.kernels.launch("w_gemm", &args)?)
}

pub(super) fn swiglu(device: &mut CudaDevice, op: &SwiGlu) -> Result {
    let args = [device.rows(&op.gate), device.rows(&op.up), device.rows(&op.out)];
    Ok(device.kernels.launch("swiglu", &args)?)
}

pub(super) fn gather_rows(device: &mut CudaDevice, op: &GatherRows) -> Result {
    let rows = device.array(op.rows, [op.out.rows]);
    let args = [device.rows(&op.x), rows, device.rows(&op.out)];
    Ok(device.kernels.launch("gather_rows", &args)?)
}
