//! Attention of a chunk of new tokens: keys and values of a run of cached tokens are expanded,
//! attended to, and merged with what the runs before gave.
//!
//! The kernels write log-sum-exps by head. They stay so through all runs, and are turned into rows of
//! the output at the end, by picking elements.

use super::super::CudaDevice;
use super::super::ffi::bytes_of;
use super::super::memory::Hold;
use super::super::views::{HeadAxis, KernelArg, dense, strided};
use super::Result;
use crate::device::layout::{
    RUN_TOKENS, Run, dense_heads, index, int, longest, nope_heads, rope_heads,
};
use std::ops::Range;
use tessera_kernels::launch::{BufferType, RowView};
use tessera_kernels::ops::mla_prefill::MlaPrefill;
use tessera_ptx::launch::Arg;

pub(super) fn mla_prefill(device: &mut CudaDevice, op: &MlaPrefill) -> Result {
    let page_size = device.caches[op.cache.0 as usize].spec.page_size;
    let lens = device.integers(op.batch.seq_lens, op.batch.num_seqs)?;
    let longest = longest(&lens, &op.batch, page_size)?.max(1);
    let count = longest.div_ceil(RUN_TOKENS);
    for at in 0..count {
        let run = Run::new(at * RUN_TOKENS, &lens);
        let mut step = Step { device: &mut *device, op, run: &run };
        let expanded = step.expand()?;
        step.attend(&expanded, (at, count))?;
    }
    by_row(device, op)
}

struct Step<'a> {
    device: &'a mut CudaDevice,
    op: &'a MlaPrefill,
    run: &'a Run,
}

/// What a run's tokens became.
struct Expanded {
    entries: u64,
    rows: u64,
    damage: KernelArg,
    starts: KernelArg,
    first_tokens: KernelArg,
}

impl Step<'_> {
    /// Decodes the entries of the run and multiplies their latents with `kv_b`.
    fn expand(&mut self) -> Result<Expanded> {
        let Self { device, op, run } = self;
        let (dims, batch, rows) = (&op.dims, &op.batch, run.rows);
        let (seqs, entry) = (batch.num_seqs, dims.entry());
        let starts = table(device, Hold::RunStarts, &run.starts)?;
        let first_tokens = table(device, Hold::RunFirst, &run.first_tokens)?;
        let damage = device.hold(Hold::Damage, BufferType::F32, [rows])?;
        let entries = device.scratch.take(Hold::Entries, rows * entry * 4)?.address();
        let page_size = device.caches[op.cache.0 as usize].spec.page_size;
        let args = [
            device.layer(op.cache, op.layer, (0, entry)),
            device.layer_scales(op.cache, op.layer),
            Arg::Int(int(page_size)),
            device.array(batch.block_table, [seqs, batch.max_pages_per_seq]),
            starts,
            first_tokens,
            dense(entries, "f32", [rows, entry]),
            damage,
        ];
        device.kernels.launch("kv_gather", &args)?;
        let [width, rank] = dims.kv_b_shape();
        let expanded = device.scratch.take(Hold::Expanded, rows * width * 4)?.address();
        let args = [
            strided(entries, "f32", ([rows, rank], [entry, 1])),
            device.packed(op.kv_b),
            dense(expanded, "f32", [rows, width]),
        ];
        device.kernels.launch("w_gemm", &args)?;
        Ok(Expanded { entries, rows: expanded, damage, starts, first_tokens })
    }

    /// Attends to run `at` of `count`. What the runs gave so far is part 0, by head.
    fn attend(&mut self, expanded: &Expanded, (at, count): (usize, usize)) -> Result {
        let Self { device, op, .. } = &mut *self;
        let (heads, size, tokens) = (op.dims.num_heads, op.dims.v_head_dim, op.q.rows);
        let out = device.heads(&op.out, dense_heads(&op.dims, size), HeadAxis::First);
        let lse = device.hold(Hold::Lse, BufferType::F32, [heads, tokens])?;
        if count == 1 {
            return self.launch(expanded, out, lse);
        }
        let shape = [2, heads, tokens, size];
        let outputs = device.hold(Hold::Parts, BufferType::F32, shape)?;
        let sums = device.hold(Hold::PartLse, BufferType::F32, [2, heads, tokens])?;
        let part = |arg: &KernelArg, part: usize, len: usize| match arg {
            Arg::View(view) => view.address + (part * len * 4) as u64,
            _ => unreachable!("scratch memory is an array"),
        };
        let (len, sum_len) = (heads * tokens * size, heads * tokens);
        let now = usize::from(at > 0);
        let own = dense(part(&outputs, now, len), "f32", [heads, tokens, size]);
        let own_lse = dense(part(&sums, now, sum_len), "f32", [heads, tokens]);
        self.launch(expanded, own, own_lse)?;
        if at == 0 {
            return Ok(());
        }
        let device = &mut *self.device;
        if at + 1 == count {
            return Ok(device.kernels.launch("mla_merge", &[outputs, sums, out, lse])?);
        }
        let merged = device.hold(Hold::Merged, BufferType::F32, [heads, tokens, size])?;
        device.kernels.launch("mla_merge", &[outputs, sums, merged, lse])?;
        device.scratch.copy((Hold::Parts, Hold::Merged), len * 4)?;
        Ok(device.scratch.copy((Hold::PartLse, Hold::Lse), sum_len * 4)?)
    }

    fn launch(&mut self, expanded: &Expanded, out: KernelArg, lse: KernelArg) -> Result {
        let Self { device, op, run } = self;
        let (dims, batch) = (&op.dims, &op.batch);
        let (seqs, nope) = (batch.num_seqs, dims.qk_nope_head_dim);
        let k_pe = expanded.entries + (dims.kv_lora_rank * 4) as u64;
        let columns = |part: Range<usize>| {
            let (heads, stride) = (dims.num_heads, dims.kv_b_head_rows());
            let address = expanded.rows + (part.start * 4) as u64;
            let shape = ([heads, run.rows, part.len()], [stride, heads * stride, 1]);
            strided(address, "f32", shape)
        };
        let args = [
            device.heads(&op.q, nope_heads(dims), HeadAxis::First),
            device.heads(&op.q, rope_heads(dims), HeadAxis::First),
            columns(0..nope),
            strided(k_pe, "f32", ([run.rows, dims.qk_rope_head_dim], [dims.entry(), 1])),
            columns(nope..dims.kv_b_head_rows()),
            expanded.damage,
            expanded.starts,
            expanded.first_tokens,
            device.array(batch.seq_lens, [seqs]),
            device.array(batch.cu_seqlens_q, [seqs + 1]),
            Arg::F32(op.softmax_scale),
            out,
            lse,
        ];
        Ok(device.kernels.launch("mla_prefill", &args)?)
    }
}

/// Numbers of a run, sent to the device behind the launches that read the last ones.
fn table(device: &mut CudaDevice, hold: Hold, values: &[i32]) -> Result<KernelArg> {
    let memory = device.scratch.take(hold, values.len() * 4)?;
    let address = memory.address();
    device.uploads.write((memory, 0), bytes_of(values))?;
    Ok(dense(address, "i32", [values.len()]))
}

/// Turns log-sum-exps by head, `[heads, tokens]`, into the rows of the output.
fn by_row(device: &mut CudaDevice, op: &MlaPrefill) -> Result {
    let (heads, tokens) = (op.dims.num_heads, op.q.rows);
    let count = heads * tokens;
    if device.scratch.transposed != Some((tokens, heads)) {
        let places: Vec<i32> = (0..count).map(|i| index(i % heads * tokens + i / heads)).collect();
        table(device, Hold::Transposed, &places)?;
        device.scratch.transposed = Some((tokens, heads));
    }
    let places = device.scratch.take(Hold::Transposed, count * 4)?.address();
    let lse = device.scratch.take(Hold::Lse, count * 4)?.address();
    let by_head = dense(lse, "f32", [count, 1]);
    let RowView { buffer, offset, stride, .. } = op.lse;
    if stride == heads {
        let out = dense(device.address(buffer, offset), "f32", [count, 1]);
        let args = [by_head, dense(places, "i32", [count]), out];
        return Ok(device.kernels.launch("gather_rows", &args)?);
    }
    // Rows with gaps: one token at a time.
    for token in 0..tokens {
        let places = dense(places + (token * heads * 4) as u64, "i32", [heads]);
        let out = dense(device.address(buffer, offset + token * stride), "f32", [heads, 1]);
        device.kernels.launch("gather_rows", &[by_head, places, out])?;
    }
    Ok(())
}
