//! Launches of latent attention.

use super::super::cpu::{Buffer, CpuDevice};
use super::super::layout::{
    RUN_TOKENS, Run, SPLIT_TOKENS, dense_heads, int, longest, nope_heads, pairs, rope_heads,
};
use super::scratch::Scratch;
use super::{Heads, Result, launched};
use std::ops::Range;
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::{Cpu, View, ViewMut};
use tessera_kernels::launch::RowView;
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::mla_prefill::{MlaPrefill, PagedBatch};
use tessera_kernels::ops::rope::Rope;

pub(super) fn rope(device: &mut CpuDevice, op: &Rope) -> Result {
    device.lend([op.x.buffer], |device, [x]| {
        let (tokens, half) = (op.x.rows, op.rope_dim / 2);
        let (pair_stride, pair_gap) = pairs(&op.rotation, op.rope_dim);
        let data = x.f32().get_mut(op.x.offset..).unwrap_or(&mut []);
        let dims = [tokens, op.num_heads, op.rope_dim];
        let launch = cpu::Rope {
            x: ViewMut::strided(data, dims, [op.x.stride, op.head_stride, 1]),
            positions: View::new(device.i32(op.rotation.positions), [tokens]),
            inv_freq: View::new(device.f32(op.rotation.inv_freq), [half]),
            magnitude: op.rotation.magnitude,
            pair_stride,
            pair_gap,
        };
        launched(launch.launch(device.cpu()))
    })
}

/// Rows of a view as `[rows, heads, size]`, from element `first` of each head on.
fn by_row<'a>(data: &'a [f32], view: &RowView, heads: Heads) -> View<'a, f32, 3> {
    let data = data.get(view.offset + heads.first..).unwrap_or(&[]);
    View::strided(data, [view.rows, heads.count, heads.size], [view.stride, heads.stride, 1])
}

/// The longest sequence of a batch.
fn longest_of(device: &CpuDevice, batch: &PagedBatch, page_size: usize) -> Result<usize> {
    Ok(longest(device.i32(batch.seq_lens), batch, page_size)?)
}

pub(super) fn mla_decode(device: &mut CpuDevice, op: &MlaDecode) -> Result {
    device.lend_with_scratch([op.out.buffer, op.lse.buffer], |device, scratch, [out, lse]| {
        let cache = &device.caches[op.cache.0 as usize];
        let (dims, batch, page_size) = (&op.dims, &op.batch, cache.spec.page_size);
        let parts = longest_of(device, batch, page_size)?.div_ceil(SPLIT_TOKENS).max(1);
        let (tokens, heads, rank) = (op.q.rows, dims.num_heads, dims.kv_lora_rank);
        let table = [batch.num_seqs, batch.max_pages_per_seq];
        let ql_nope = by_row(device.f32(op.ql_nope.buffer), &op.ql_nope, dense_heads(dims, rank));
        let decode = |out, lse| cpu::MlaDecode {
            ql_nope,
            q_pe: by_row(device.f32(op.q.buffer), &op.q, rope_heads(dims)),
            ckv_cache: cache.layer(op.layer, 0, rank),
            kpe_cache: cache.layer(op.layer, rank, dims.qk_rope_head_dim),
            k_scale: cache.layer_scales(op.layer),
            page_size: int(page_size),
            block_table: View::new(device.i32(batch.block_table), table),
            seq_lens: View::new(device.i32(batch.seq_lens), [batch.num_seqs]),
            cu_seqlens_q: View::new(device.i32(batch.cu_seqlens_q), [batch.num_seqs + 1]),
            split_tokens: int(SPLIT_TOKENS),
            softmax_scale: op.softmax_scale,
            out,
            lse,
        };
        let (out_rows, lse_rows) = (Target::of(&op.out, rank), Target::of(&op.lse, 1));
        if parts == 1 {
            let out = out_rows.one_part(out, heads);
            return launched(decode(out, lse_rows.one_part_lse(lse, heads)).launch(device.cpu()));
        }
        let shape = [parts, tokens, heads, rank];
        let (part_out, part_lse) = (&mut scratch.parts, &mut scratch.part_lse);
        let launch = decode(part_out.view(shape), part_lse.view([parts, tokens, heads]));
        launched(launch.launch(device.cpu()))?;
        let launch = cpu::MlaMerge {
            parts: View::new(part_out.left(shape.iter().product()), shape),
            part_lse: View::new(part_lse.left(parts * tokens * heads), [parts, tokens, heads]),
            out: out_rows.by_row(out, heads),
            lse: lse.view(&op.lse),
        };
        launched(launch.launch(device.cpu()))
    })
}

/// Rows of a buffer that attention writes: heads of `size` elements side by side.
#[derive(Debug, Clone, Copy)]
struct Target {
    offset: usize,
    rows: usize,
    stride: usize,
    size: usize,
}

impl Target {
    fn of(view: &RowView, size: usize) -> Self {
        Self { offset: view.offset, rows: view.rows, stride: view.stride, size }
    }

    fn data(self, buffer: &mut Buffer) -> &mut [f32] {
        buffer.f32().get_mut(self.offset..).unwrap_or(&mut [])
    }

    fn by_row(self, buffer: &mut Buffer, heads: usize) -> ViewMut<'_, f32, 3> {
        let strides = [self.stride, self.size, 1];
        ViewMut::strided(self.data(buffer), [self.rows, heads, self.size], strides)
    }

    fn one_part(self, buffer: &mut Buffer, heads: usize) -> ViewMut<'_, f32, 4> {
        let strides = [0, self.stride, self.size, 1];
        ViewMut::strided(self.data(buffer), [1, self.rows, heads, self.size], strides)
    }

    fn one_part_lse(self, buffer: &mut Buffer, heads: usize) -> ViewMut<'_, f32, 3> {
        ViewMut::strided(self.data(buffer), [1, self.rows, heads], [0, self.stride, 1])
    }
}

/// Expands keys and values of a run of tokens, attends to them, and merges with the runs before.
/// Runs end at multiples of [`RUN_TOKENS`] of their sequence, so no batch changes a bit.
pub(super) fn prefill(device: &mut CpuDevice, op: &MlaPrefill) -> Result {
    device.lend_with_scratch([op.out.buffer, op.lse.buffer], |device, scratch, [out, lse]| {
        let page_size = device.caches[op.cache.0 as usize].spec.page_size;
        let longest = longest_of(device, &op.batch, page_size)?;
        let seq_lens = &device.i32(op.batch.seq_lens)[..op.batch.num_seqs];
        for first in (0..longest.max(1)).step_by(RUN_TOKENS) {
            let run = Run::new(first, seq_lens);
            let step = Step { device, op, run: &run };
            step.expand(scratch)?;
            step.attend(scratch, (&mut *out, &mut *lse), first > 0)?;
        }
        Ok(())
    })
}

struct Step<'a> {
    device: &'a CpuDevice,
    op: &'a MlaPrefill,
    run: &'a Run,
}

impl Step<'_> {
    fn cpu(&self) -> &Cpu {
        self.device.cpu()
    }

    /// Decodes the entries of the run and multiplies their latents with `kv_b`.
    fn expand(&self, scratch: &mut Scratch) -> Result {
        let Self { device, op, run } = self;
        let (cache, batch, dims) = (&device.caches[op.cache.0 as usize], &op.batch, &op.dims);
        let (seqs, entry) = (batch.num_seqs, dims.entry());
        let launch = cpu::KvGather {
            cache: cache.layer(op.layer, 0, entry),
            k_scale: cache.layer_scales(op.layer),
            page_size: int(cache.spec.page_size),
            block_table: View::new(device.i32(batch.block_table), [seqs, batch.max_pages_per_seq]),
            kv_starts: View::new(&run.starts, [seqs + 1]),
            first_token: View::new(&run.first_tokens, [seqs]),
            entries: scratch.entries.view([run.rows, entry]),
            damage: scratch.damage.view([run.rows]),
        };
        launched(launch.launch(self.cpu()))?;
        let [width, rank] = dims.kv_b_shape();
        let latents = scratch.entries.left(run.rows * entry);
        let launch = cpu::WGemm {
            x: View::strided(latents, [run.rows, rank], [entry, 1]),
            w: device.packed_weight(op.kv_b),
            y: scratch.expanded.view([run.rows, width]),
        };
        launched(launch.launch(self.cpu()))
    }

    /// Attends to the run; `is_later` if the outputs hold the runs before.
    fn attend(
        &self,
        scratch: &mut Scratch,
        (out, lse): (&mut Buffer, &mut Buffer),
        is_later: bool,
    ) -> Result {
        let Self { device, op, run } = self;
        let (dims, batch) = (&op.dims, &op.batch);
        let (seqs, heads, size, tokens) =
            (batch.num_seqs, dims.num_heads, dims.v_head_dim, op.q.rows);
        let entries = scratch.entries.left(run.rows * dims.entry());
        let expanded = scratch.expanded.left(run.rows * heads * dims.kv_b_head_rows());
        let launch = |out, lse| cpu::MlaPrefill {
            q_nope: device.heads(&op.q, nope_heads(dims)),
            q_pe: device.heads(&op.q, rope_heads(dims)),
            k_nope: self.expanded(expanded, 0..dims.qk_nope_head_dim),
            k_pe: View::strided(
                entries.get(dims.kv_lora_rank..).unwrap_or(&[]),
                [run.rows, dims.qk_rope_head_dim],
                [dims.entry(), 1],
            ),
            v: self.expanded(expanded, dims.qk_nope_head_dim..dims.kv_b_head_rows()),
            damage: View::new(scratch.damage.left(run.rows), [run.rows]),
            kv_starts: View::new(&run.starts, [seqs + 1]),
            first_token: View::new(&run.first_tokens, [seqs]),
            seq_lens: View::new(device.i32(batch.seq_lens), [seqs]),
            cu_seqlens_q: View::new(device.i32(batch.cu_seqlens_q), [seqs + 1]),
            softmax_scale: op.softmax_scale,
            out,
            lse,
        };
        let (out_rows, lse_rows) = (Target::of(&op.out, size), Target::of(&op.lse, 1));
        let by_head = scratch.lse.view([heads, tokens]);
        if !is_later {
            launched(
                launch(out.heads(&op.out, dense_heads(dims, size)), by_head).launch(self.cpu()),
            )?;
            let by_head = scratch.lse.left(heads * tokens);
            transpose(by_head, lse_rows.data(lse), op.lse.stride, tokens);
            return Ok(());
        }
        // Part 0 is what the runs before gave, part 1 this run's.
        let parts = scratch.parts.take(2 * tokens * heads * size);
        let lses = scratch.part_lse.take(2 * tokens * heads);
        let (before, now) = parts.split_at_mut(tokens * heads * size);
        let (lse_before, lse_now) = lses.split_at_mut(tokens * heads);
        copy_rows(out_rows.data(out), op.out.stride, before, heads * size);
        copy_rows(lse_rows.data(lse), op.lse.stride, lse_before, heads);
        let now = ViewMut::strided(now, [heads, tokens, size], [size, heads * size, 1]);
        launched(launch(now, by_head).launch(self.cpu()))?;
        transpose(scratch.lse.left(heads * tokens), lse_now, heads, tokens);
        let launch = cpu::MlaMerge {
            parts: View::new(parts, [2, tokens, heads, size]),
            part_lse: View::new(lses, [2, tokens, heads]),
            out: out_rows.by_row(out, heads),
            lse: lse.view(&op.lse),
        };
        launched(launch.launch(self.cpu()))
    }

    /// Columns `part` of each head's part of the expanded rows, `[heads, rows, columns]`.
    fn expanded<'e>(&self, data: &'e [f32], part: Range<usize>) -> View<'e, f32, 3> {
        let (dims, rows) = (&self.op.dims, self.run.rows);
        let (heads, stride) = (dims.num_heads, dims.kv_b_head_rows());
        let data = data.get(part.start..).unwrap_or(&[]);
        View::strided(data, [heads, rows, part.len()], [stride, heads * stride, 1])
    }
}

fn copy_rows(from: &[f32], stride: usize, to: &mut [f32], width: usize) {
    for (to, from) in to.chunks_mut(width).zip(from.chunks(stride)) {
        to.copy_from_slice(&from[..width]);
    }
}

/// Rows of `from`, each of `width`, become columns of `to`, whose rows are `stride` apart.
fn transpose(from: &[f32], to: &mut [f32], stride: usize, width: usize) {
    for (column, from) in from.chunks(width.max(1)).enumerate() {
        for (row, &value) in from.iter().enumerate() {
            to[row * stride + column] = value;
        }
    }
}
