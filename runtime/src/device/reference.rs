//! Runs a checked launch by the op's reference: slow, plain, what generated kernels are held to.

use super::cpu::{Buffer, Cache, CpuDevice};
use tessera_kernels::formats::PackedMatrix;
use tessera_kernels::launch::{BufferId, CacheId, Launch, PlanError, RowView, WeightId};
use tessera_kernels::ops::attention::BatchIndex;
use tessera_kernels::ops::cache::{CacheView, CacheViewMut};
use tessera_kernels::ops::combine::CombineInputs;
use tessera_kernels::ops::kv_convert::KvConvert;
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::linear::GroupedLinear;
use tessera_kernels::ops::mla_decode::{DecodeInputs, MlaDecode};
use tessera_kernels::ops::mla_prefill::{MlaPrefill, PagedBatch, PrefillInputs};
use tessera_kernels::ops::page_tag_check::{PageTagCheck, TagInputs};
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::sample::{Sample, SampleOutputs};
use tessera_kernels::ops::{Rows, RowsMut};

/// Runs `launch`, which `Launch::check` has passed, on the ambient thread pool.
pub(super) fn perform(device: &mut CpuDevice, launch: &Launch) -> Result<(), PlanError> {
    match launch {
        Launch::FeedTokens(op) => device.lend([op.ids], |device, [ids]| {
            op.reference(device.i32(op.sampled), device.i32(op.source), ids.i32())
        }),
        Launch::Embedding(op) => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.i32(op.ids), device.weight(op.table), out.rows(&op.out))
        }),
        Launch::RmsNorm(op) => rms_norm(device, op),
        Launch::Linear(op) => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.rows(&op.x), device.weight(op.weight), out.rows(&op.out));
            Ok(())
        }),
        Launch::GroupedLinear(op) => grouped_linear(device, op),
        Launch::Rope(op) => device.lend([op.x.buffer], |device, [x]| {
            op.reference(
                x.rows(&op.x),
                device.i32(op.rotation.positions),
                device.f32(op.rotation.inv_freq),
            );
            Ok(())
        }),
        Launch::KvWrite(op) => kv_write(device, op),
        Launch::MlaPrefill(op) => mla_prefill(device, op),
        Launch::AbsorbQuery(op) => device.lend([op.ql_nope.buffer], |device, [out]| {
            op.reference(device.rows(&op.q), device.weight(op.kv_b), out.rows(&op.ql_nope));
            Ok(())
        }),
        Launch::MlaDecode(op) => mla_decode(device, op),
        Launch::AbsorbValue(op) => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.rows(&op.latent), device.weight(op.kv_b), out.rows(&op.out));
            Ok(())
        }),
        Launch::SwiGlu(op) => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.rows(&op.gate), device.rows(&op.up), out.rows(&op.out));
            Ok(())
        }),
        Launch::Router(op) => router(device, op),
        Launch::Permute(op) => permute(device, op),
        Launch::Combine(op) => device.lend([op.out.buffer], |device, [out]| {
            let inputs = CombineInputs {
                x: device.rows(&op.x),
                order: device.i32(op.order),
                topk_weights: device.f32(op.topk_weights),
                shared: op.shared.as_ref().map(|shared| device.rows(shared)),
            };
            op.reference(&inputs, out.rows(&op.out))
        }),
        Launch::GatherRows(op) => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.rows(&op.x), device.i32(op.rows), out.rows(&op.out))
        }),
        Launch::Sample(op) => sample(device, op),
        Launch::PageTagCheck(op) => page_tag_check(device, op),
        Launch::PageDigest(op) => device.lend([op.digests], |device, [digests]| {
            op.reference(&device.cache_view(op.cache), digests.u64());
            Ok(())
        }),
        Launch::KvAmax(op) => device.lend([op.amax], |device, [amax]| {
            op.reference(&device.cache_view(op.cache), amax.f32());
            Ok(())
        }),
        Launch::KvConvert(op) => kv_convert(device, op),
    }
}

fn rms_norm(device: &mut CpuDevice, op: &RmsNorm) -> Result<(), PlanError> {
    match &op.residual {
        None => device.lend([op.out.buffer], |device, [out]| {
            op.reference(device.rows(&op.x), None, device.f32(op.weight), out.rows(&op.out));
        }),
        Some(view) => device.lend([view.buffer, op.out.buffer], |device, [residual, out]| {
            let residual = Some(residual.rows(view));
            op.reference(device.rows(&op.x), residual, device.f32(op.weight), out.rows(&op.out));
        }),
    }
    Ok(())
}

fn grouped_linear(device: &mut CpuDevice, op: &GroupedLinear) -> Result<(), PlanError> {
    device.lend([op.out.buffer], |device, [out]| {
        let weights: Vec<&PackedMatrix> = op.weights.iter().map(|&id| device.weight(id)).collect();
        let offsets = &device.i32(op.expert_offsets)[..=weights.len()];
        op.reference(device.rows(&op.x), &weights, offsets, out.rows(&op.out))
    })
}

fn kv_write(device: &mut CpuDevice, op: &KvWrite) -> Result<(), PlanError> {
    let CpuDevice { buffers, caches, .. } = device;
    let Cache { spec, data, scales, .. } = &mut caches[op.cache.0 as usize];
    let cache = CacheViewMut { spec: *spec, data, scales };
    let saturated_at = op.saturated.0 as usize;
    let mut saturated = std::mem::take(&mut buffers[saturated_at]);
    let rows = |view: &RowView| Rows::new(buffers[view.buffer.0 as usize].as_f32(), view);
    let positions = buffers[op.rotation.positions.0 as usize].as_i32();
    let inv_freq = buffers[op.rotation.inv_freq.0 as usize].as_f32();
    let slots = buffers[op.slot_mapping.0 as usize].as_i64();
    let inputs = (rows(&op.latent), rows(&op.k_pe));
    let result = op.reference(inputs, (positions, inv_freq, slots), cache, saturated.u32());
    buffers[saturated_at] = saturated;
    result
}

fn mla_prefill(device: &mut CpuDevice, op: &MlaPrefill) -> Result<(), PlanError> {
    device.lend([op.out.buffer, op.lse.buffer], |device, [out, lse]| {
        let inputs = PrefillInputs {
            q: device.rows(&op.q),
            kv_b: device.weight(op.kv_b),
            cache: device.cache_view(op.cache),
            index: device.batch(&op.batch),
        };
        op.reference(&inputs, out.rows(&op.out), lse.rows(&op.lse))
    })
}

fn mla_decode(device: &mut CpuDevice, op: &MlaDecode) -> Result<(), PlanError> {
    device.lend([op.out.buffer, op.lse.buffer], |device, [out, lse]| {
        let inputs = DecodeInputs {
            ql_nope: device.rows(&op.ql_nope),
            q: device.rows(&op.q),
            cache: device.cache_view(op.cache),
            index: device.batch(&op.batch),
        };
        op.reference(&inputs, out.rows(&op.out), lse.rows(&op.lse))
    })
}

fn router(device: &mut CpuDevice, op: &Router) -> Result<(), PlanError> {
    device.lend([op.topk_ids, op.topk_weights], |device, [ids, weights]| {
        op.reference(device.rows(&op.logits), device.f32(op.bias), ids.i32(), weights.f32());
        Ok(())
    })
}

fn permute(device: &mut CpuDevice, op: &Permute) -> Result<(), PlanError> {
    let lent = [op.out.buffer, op.order, op.expert_offsets];
    device.lend(lent, |device, [out, order, offsets]| {
        let inputs = (device.rows(&op.x), device.i32(op.topk_ids));
        op.reference(inputs, out.rows(&op.out), order.i32(), offsets.i32())
    })
}

fn sample(device: &mut CpuDevice, op: &Sample) -> Result<(), PlanError> {
    let lent = [op.tokens, op.logprob, op.top_ids, op.top_logprobs];
    device.lend(lent, |device, [tokens, logprob, top_ids, top_logprobs]| {
        let outputs = SampleOutputs {
            tokens: tokens.i32(),
            logprob: logprob.f32(),
            top_ids: top_ids.i32(),
            top_logprobs: top_logprobs.f32(),
        };
        op.reference(device.rows(&op.logits), outputs);
        Ok(())
    })
}

fn page_tag_check(device: &mut CpuDevice, op: &PageTagCheck) -> Result<(), PlanError> {
    device.lend([op.mismatch, op.slot_mapping], |device, [mismatch, slots]| {
        let inputs = TagInputs {
            tags: &device.caches[op.cache.0 as usize].tags,
            block_table: device.i32(op.block_table),
            expected: device.u64(op.expected),
            num_pages: device.i32(op.num_pages),
            cu_seqlens_q: device.i32(op.cu_seqlens_q),
        };
        op.reference(&inputs, mismatch.i32(), slots.i64())
    })
}

fn kv_convert(device: &mut CpuDevice, op: &KvConvert) -> Result<(), PlanError> {
    device.lend([op.out, op.saturated], |device, [out, saturated]| {
        let scales = device.f32(op.target_scales);
        op.reference(&device.cache_view(op.cache), scales, out.bytes(), saturated.u32())
    })
}

impl CpuDevice {
    /// Calls `f` with the buffers that a launch writes, which no longer are in the device, and the
    /// device with all that it reads. Checks keep the ids apart.
    pub(super) fn lend<const N: usize, R>(
        &mut self,
        ids: [BufferId; N],
        f: impl FnOnce(&Self, [&mut Buffer; N]) -> R,
    ) -> R {
        let mut lent = ids.map(|id| std::mem::take(&mut self.buffers[id.0 as usize]));
        let result = f(self, lent.each_mut());
        for (id, buffer) in ids.into_iter().zip(lent) {
            self.buffers[id.0 as usize] = buffer;
        }
        result
    }

    fn rows(&self, view: &RowView) -> Rows<'_> {
        Rows::new(self.f32(view.buffer), view)
    }

    pub(super) fn f32(&self, id: BufferId) -> &[f32] {
        self.buffers[id.0 as usize].as_f32()
    }

    pub(super) fn i32(&self, id: BufferId) -> &[i32] {
        self.buffers[id.0 as usize].as_i32()
    }

    pub(super) fn u64(&self, id: BufferId) -> &[u64] {
        match &self.buffers[id.0 as usize] {
            Buffer::U64(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn i64(&self, id: BufferId) -> &[i64] {
        self.buffers[id.0 as usize].as_i64()
    }

    fn weight(&self, id: WeightId) -> &PackedMatrix {
        &self.weights[id.0 as usize]
    }

    fn cache_view(&self, id: CacheId) -> CacheView<'_> {
        let Cache { spec, data, scales, .. } = &self.caches[id.0 as usize];
        CacheView { spec: *spec, data, scales }
    }

    fn batch(&self, batch: &PagedBatch) -> BatchIndex<'_> {
        BatchIndex {
            block_table: self.i32(batch.block_table),
            seq_lens: self.i32(batch.seq_lens),
            cu_seqlens_q: self.i32(batch.cu_seqlens_q),
            batch: *batch,
        }
    }
}

impl Buffer {
    fn wrong_type(&self) -> ! {
        unreachable!("the launch was checked, yet a buffer holds {:?}", self.kind())
    }

    fn as_f32(&self) -> &[f32] {
        match self {
            Self::F32(values) => values,
            other => other.wrong_type(),
        }
    }

    fn as_i32(&self) -> &[i32] {
        match self {
            Self::I32(values) => values,
            other => other.wrong_type(),
        }
    }

    fn as_i64(&self) -> &[i64] {
        match self {
            Self::I64(values) => values,
            other => other.wrong_type(),
        }
    }

    fn rows(&mut self, view: &RowView) -> RowsMut<'_> {
        RowsMut::new(self.f32(), view)
    }

    pub(super) fn f32(&mut self) -> &mut [f32] {
        match self {
            Self::F32(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn i32(&mut self) -> &mut [i32] {
        match self {
            Self::I32(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn u32(&mut self) -> &mut [u32] {
        match self {
            Self::U32(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn i64(&mut self) -> &mut [i64] {
        match self {
            Self::I64(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn u64(&mut self) -> &mut [u64] {
        match self {
            Self::U64(values) => values,
            other => other.wrong_type(),
        }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(values) => values,
            other => other.wrong_type(),
        }
    }
}
