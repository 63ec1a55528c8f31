//! Launches of attention in latent space.

use super::super::CudaDevice;
use super::super::memory::Hold;
use super::super::views::{HeadAxis, strided};
use super::Result;
use crate::device::layout::{
    SPLIT_TOKENS, dense_heads, int, longest, nope_heads, pairs, rope_heads,
};
use tessera_kernels::launch::{BufferType, RowView};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::rope::Rope;
use tessera_ptx::launch::Arg;

pub(super) fn rope(device: &mut CudaDevice, op: &Rope) -> Result {
    let (tokens, half) = (op.x.rows, op.rope_dim / 2);
    let (pair_stride, pair_gap) = pairs(&op.rotation, op.rope_dim);
    let address = device.address(op.x.buffer, op.x.offset);
    let dims = [tokens, op.num_heads, op.rope_dim];
    let args = [
        strided(address, "f32", (dims, [op.x.stride, op.head_stride, 1])),
        device.array(op.rotation.positions, [tokens]),
        device.array(op.rotation.inv_freq, [half]),
        Arg::F32(op.rotation.magnitude),
        Arg::Int(pair_stride),
        Arg::Int(pair_gap),
    ];
    Ok(device.kernels.launch("rope", &args)?)
}

pub(super) fn absorb_query(device: &mut CudaDevice, op: &AbsorbQuery) -> Result {
    let dims = &op.dims;
    let args = [
        device.heads(&op.q, nope_heads(dims), HeadAxis::First),
        device.packed(op.kv_b),
        Arg::Int(int(dims.v_head_dim)),
        device.heads(&op.ql_nope, dense_heads(dims, dims.kv_lora_rank), HeadAxis::First),
    ];
    Ok(device.kernels.launch("absorb_query", &args)?)
}

pub(super) fn absorb_value(device: &mut CudaDevice, op: &AbsorbValue) -> Result {
    let dims = &op.dims;
    let args = [
        device.heads(&op.latent, dense_heads(dims, dims.kv_lora_rank), HeadAxis::First),
        device.packed(op.kv_b),
        Arg::Int(int(dims.qk_nope_head_dim)),
        device.heads(&op.out, dense_heads(dims, dims.v_head_dim), HeadAxis::First),
    ];
    Ok(device.kernels.launch("absorb_value", &args)?)
}

/// Parts that the contexts of a batch come in, if the host knows their lengths: a power of two, so
/// that a recording serves until the longest has doubled. Parts past a sequence's end are empty and
/// change no bit.
pub(super) fn num_parts(device: &CudaDevice, op: &MlaDecode) -> Result<Option<usize>> {
    let lens = device.buffers[op.batch.seq_lens.0 as usize].known(op.batch.num_seqs);
    lens.map(|lens| parts_of(device, op, lens)).transpose()
}

fn parts_of(device: &CudaDevice, op: &MlaDecode, lens: &[i32]) -> Result<usize> {
    let page_size = device.caches[op.cache.0 as usize].spec.page_size;
    let longest = longest(lens, &op.batch, page_size)?;
    Ok(longest.div_ceil(SPLIT_TOKENS).max(1).next_power_of_two())
}

pub(super) fn mla_decode(device: &mut CudaDevice, op: &MlaDecode) -> Result {
    let (dims, batch) = (&op.dims, &op.batch);
    let parts = match num_parts(device, op)? {
        Some(parts) => parts,
        None => parts_of(device, op, &device.integers(batch.seq_lens, batch.num_seqs)?)?,
    };
    let (tokens, heads, rank) = (op.q.rows, dims.num_heads, dims.kv_lora_rank);
    let (out, lse) = match parts {
        1 => (one_part(device, &op.out, Some((heads, rank))), one_part(device, &op.lse, None)),
        _ => (
            device.hold(Hold::Parts, BufferType::F32, [parts, tokens, heads, rank])?,
            device.hold(Hold::PartLse, BufferType::F32, [parts, tokens, heads])?,
        ),
    };
    let page_size = device.caches[op.cache.0 as usize].spec.page_size;
    let table = [batch.num_seqs, batch.max_pages_per_seq];
    let args = [
        device.heads(&op.ql_nope, dense_heads(dims, rank), HeadAxis::Second),
        device.heads(&op.q, rope_heads(dims), HeadAxis::Second),
        device.layer(op.cache, op.layer, (0, rank)),
        device.layer(op.cache, op.layer, (rank, dims.qk_rope_head_dim)),
        device.layer_scales(op.cache, op.layer),
        Arg::Int(int(page_size)),
        device.array(batch.block_table, table),
        device.array(batch.seq_lens, [batch.num_seqs]),
        device.array(batch.cu_seqlens_q, [batch.num_seqs + 1]),
        Arg::Int(int(SPLIT_TOKENS)),
        Arg::F32(op.softmax_scale),
        out,
        lse,
    ];
    device.kernels.launch("mla_decode", &args)?;
    if parts == 1 {
        return Ok(());
    }
    let merged = device.heads(&op.out, dense_heads(dims, rank), HeadAxis::Second);
    let args = [out, lse, merged, device.rows(&op.lse)];
    Ok(device.kernels.launch("mla_merge", &args)?)
}

/// Rows as the only part there is: `[1, rows, heads, size]`, or `[1, rows, columns]`.
fn one_part(
    device: &CudaDevice,
    view: &RowView,
    heads: Option<(usize, usize)>,
) -> super::super::views::KernelArg {
    let address = device.address(view.buffer, view.offset);
    match heads {
        Some((heads, size)) => {
            let shape = ([1, view.rows, heads, size], [0, view.stride, size, 1]);
            strided(address, "f32", shape)
        }
        None => strided(address, "f32", ([1, view.rows, view.cols], [0, view.stride, 1])),
    }
}
