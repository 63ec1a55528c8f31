//! One launch of every kind on any device, and what it wrote: two devices are compared by it.

use std::sync::Arc;
use tessera_kernels::formats::{Format, KvFormat, PackedMatrix};
use tessera_kernels::launch::{BufferId, CacheId, Launch, RowView, WeightId};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::combine::Combine;
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::{FeedTokens, given};
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::linear::{GroupedLinear, Linear};
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::mla_prefill::{MlaDims, MlaPrefill, PagedBatch};
use tessera_kernels::ops::page_digest::{DigestKey, PageDigest, digest_layer};
use tessera_kernels::ops::page_tag_check::PageTagCheck;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::rope::{Rope, Rotation};
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::sample::{Sample, SampleParams, SampleRow};
use tessera_kernels::ops::swiglu::SwiGlu;
use tessera_runtime::device::{CacheSpec, Device, DeviceError, PlanKey};
use tessera_tile_ir::format::read_code;

/// What a launch wrote, by launch and output.
pub type Outputs = Vec<(String, Vec<f32>)>;

/// Small sizes of attention.
pub const SMALL: MlaDims = MlaDims {
    num_heads: 3,
    kv_lora_rank: 32,
    qk_nope_head_dim: 16,
    qk_rope_head_dim: 8,
    v_head_dim: 16,
};

/// The sizes of a head of DeepSeek-V3 and Kimi K2.
pub const LARGE: MlaDims = MlaDims {
    num_heads: 2,
    kv_lora_rank: 512,
    qk_nope_head_dim: 128,
    qk_rope_head_dim: 64,
    v_head_dim: 128,
};

/// A device with a few helpers, and what was read from it so far.
#[derive(Debug)]
pub struct Launches<D> {
    /// The device.
    pub device: D,
    weights: &'static Format,
    dims: MlaDims,
    outputs: Outputs,
}

type Result<T = ()> = std::result::Result<T, DeviceError>;

/// Numbers between -1 and 1 that differ for each `step`.
fn values(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * step).sin()).collect()
}

impl<D: Device> Launches<D> {
    /// Launches on `device`, with weights in that format.
    pub fn new(device: D, weights: &'static Format) -> Self {
        Self { device, weights, dims: SMALL, outputs: Vec::new() }
    }

    /// The same with attention of these sizes.
    pub fn with_dims(self, dims: MlaDims) -> Self {
        Self { dims, ..self }
    }

    /// What was written so far.
    pub fn into_outputs(self) -> Outputs {
        self.outputs
    }

    fn f32s(&mut self, values: &[f32]) -> Result<BufferId> {
        let id = self.device.alloc_f32(values.len())?;
        self.device.write_f32(id, values)?;
        Ok(id)
    }

    fn i32s(&mut self, values: &[i32]) -> Result<BufferId> {
        let id = self.device.alloc_i32(values.len())?;
        self.device.write_i32(id, values)?;
        Ok(id)
    }

    /// Rows of numbers, with a gap behind each.
    fn rows(&mut self, rows: usize, cols: usize, step: f32) -> Result<RowView> {
        let stride = cols + 4;
        let buffer = self.f32s(&values(rows * stride + 4, step))?;
        Ok(RowView { buffer, offset: 4, rows, cols, stride })
    }

    /// Rows of zeros, with a gap behind each.
    fn out(&mut self, rows: usize, cols: usize) -> Result<RowView> {
        let stride = cols + 4;
        let buffer = self.device.alloc_f32(rows * stride)?;
        Ok(RowView { buffer, offset: 0, rows, cols, stride })
    }

    fn matrix(&self, rows: usize, cols: usize, step: f32) -> PackedMatrix {
        PackedMatrix::encode(self.weights, rows, cols, &values(rows * cols, step))
            .expect("values and sizes that every format takes")
    }

    fn weight(&mut self, rows: usize, cols: usize, step: f32) -> Result<WeightId> {
        let matrix = self.matrix(rows, cols, step);
        self.device.load_weight(matrix)
    }

    fn keep(&mut self, name: &str, view: &RowView) -> Result {
        let len = view.offset + view.rows.saturating_sub(1) * view.stride + view.cols;
        let mut all = vec![0.0; len];
        self.device.read_f32(view.buffer, &mut all)?;
        let rows = (0..view.rows).map(|row| &all[view.offset + row * view.stride..][..view.cols]);
        let values = rows.flatten().copied().collect();
        self.outputs.push((name.to_owned(), values));
        Ok(())
    }

    fn keep_i32(&mut self, name: &str, id: BufferId, len: usize) -> Result {
        let mut values = vec![0; len];
        self.device.read_i32(id, &mut values)?;
        self.outputs.push((name.to_owned(), values.iter().map(|&value| value as f32).collect()));
        Ok(())
    }

    fn keep_f32(&mut self, name: &str, id: BufferId, len: usize) -> Result {
        self.keep(name, &RowView::contiguous(id, 1, len))
    }

    fn rotation(&mut self, positions: &[i32], rope_dim: usize) -> Result<Rotation> {
        let positions = self.i32s(positions)?;
        let inv_freq: Vec<f32> =
            (0..rope_dim / 2).map(|i| 0.5f32.powi(i32::try_from(i).unwrap_or(0))).collect();
        let inv_freq = self.f32s(&inv_freq)?;
        Ok(Rotation { positions, inv_freq, magnitude: 1.25, interleaved: true })
    }

    /// Launches that work on rows.
    ///
    /// # Errors
    /// As the device's.
    pub fn rows_ops(&mut self) -> Result {
        let (t, hidden) = (5, 256);
        let ids = self.i32s(&[3, 0, 39, 3, 17])?;
        let table = self.weight(40, hidden, 0.37)?;
        let out = self.out(t, hidden)?;
        self.device.perform(&Launch::Embedding(Embedding { ids, table, out }))?;
        self.keep("embedding", &out)?;

        let weight = self.f32s(&values(hidden, 0.11))?;
        let (x, residual) = (self.rows(t, hidden, 0.7)?, self.rows(t, hidden, 0.9)?);
        let normed = self.out(t, hidden)?;
        let norm = |residual, out| Launch::RmsNorm(RmsNorm { x, residual, weight, eps: 1e-5, out });
        self.device.perform(&norm(None, normed))?;
        self.keep("rms_norm", &normed)?;
        self.device.perform(&norm(Some(residual), normed))?;
        self.keep("add_rms_norm", &normed)?;
        self.keep("residual", &residual)?;

        let (gate, up, out) = (self.rows(t, 70, 0.31)?, self.rows(t, 70, 0.17)?, self.out(t, 70)?);
        self.device.perform(&Launch::SwiGlu(SwiGlu { gate, up, out }))?;
        self.keep("swiglu", &out)?;

        let rows = self.i32s(&[4, 4, 1])?;
        let out = self.out(3, hidden)?;
        self.device.perform(&Launch::GatherRows(GatherRows { x, rows, out }))?;
        self.keep("gather_rows", &out)?;

        let (sampled, source) =
            (self.i32s(&[30, -1, 32])?, self.i32s(&[2, given(7), 0, 1, given(0)])?);
        let (num_rows, num_tokens, ids) = (3, 5, self.device.alloc_i32(5)?);
        let op = FeedTokens { sampled, num_rows, source, ids, num_tokens };
        self.device.perform(&Launch::FeedTokens(op))?;
        self.keep_i32("ids", ids, num_tokens)?;

        for interleaved in [true, false] {
            let (heads, head_stride, rope_dim) = (3, 24, 8);
            let x = self.rows(t, heads * head_stride, 0.61)?;
            let rotation = self.rotation(&[0, 1, 2, 700, 5], rope_dim)?;
            let rotation = Rotation { interleaved, ..rotation };
            let view = x.columns(16, heads * head_stride - 16);
            let op = Rope { x: view, num_heads: heads, head_stride, rope_dim, rotation };
            self.device.perform(&Launch::Rope(op))?;
            self.keep(&format!("rope {interleaved}"), &x)?;
        }
        Ok(())
    }

    /// Products with a weight, of few rows and of many.
    ///
    /// # Errors
    /// As the device's.
    pub fn linear_ops(&mut self) -> Result {
        let (hidden, width) = (256, 128);
        for rows in [1, 5, 70] {
            let (x, out) = (self.rows(rows, hidden, 0.53)?, self.out(rows, width)?);
            let weight = self.weight(width, hidden, 0.23)?;
            self.device.perform(&Launch::Linear(Linear { x, weight, out }))?;
            self.keep(&format!("linear {rows}"), &out)?;
        }
        Ok(())
    }

    /// Launches of a mixture of experts.
    ///
    /// # Errors
    /// As the device's.
    pub fn moe_ops(&mut self) -> Result {
        let (t, experts, top_k, hidden, width) = (6, 8, 2, 128, 64);
        let logits = self.rows(t, experts, 1.7)?;
        let bias = self.f32s(&values(experts, 0.3))?;
        let (topk_ids, topk_weights) =
            (self.device.alloc_i32(t * top_k)?, self.device.alloc_f32(t * top_k)?);
        self.device.perform(&Launch::Router(Router {
            logits,
            bias,
            top_k,
            num_groups: 2,
            topk_groups: 1,
            norm_topk_prob: true,
            routed_scaling_factor: 2.5,
            topk_ids,
            topk_weights,
        }))?;
        self.keep_i32("topk_ids", topk_ids, t * top_k)?;
        self.keep_f32("topk_weights", topk_weights, t * top_k)?;

        let x = self.rows(t, hidden, 0.41)?;
        let permuted = self.out(t * top_k, hidden)?;
        let (order, expert_offsets) =
            (self.device.alloc_i32(t * top_k)?, self.device.alloc_i32(experts + 1)?);
        let (num_experts, out) = (experts, permuted);
        let op = Permute { x, topk_ids, top_k, num_experts, out, order, expert_offsets };
        self.device.perform(&Launch::Permute(op))?;
        self.keep("permuted", &permuted)?;
        self.keep_i32("order", order, t * top_k)?;
        self.keep_i32("expert_offsets", expert_offsets, experts + 1)?;

        let matrices = (0..experts).map(|e| self.matrix(width, hidden, 0.13 + e as f32 * 0.01));
        let matrices = matrices.collect();
        let weights: Arc<[WeightId]> = self.device.load_weights(matrices)?.into();
        let out = self.out(t * top_k, width)?;
        let op = GroupedLinear { x: permuted, weights, expert_offsets, out };
        self.device.perform(&Launch::GroupedLinear(op))?;
        self.keep("grouped_linear", &out)?;

        let x = out;
        let (shared, combined) = (self.rows(t, width, 0.29)?, self.out(t, width)?);
        for shared in [None, Some(shared)] {
            let op = Combine { x, order, topk_weights, top_k, shared, out: combined };
            self.device.perform(&Launch::Combine(op))?;
            self.keep(&format!("combine {}", shared.is_some()), &combined)?;
        }
        // An order that no `Permute` made.
        let reversed: Vec<i32> = (0..12).rev().collect();
        let order = self.i32s(&reversed)?;
        let op = Combine { x, order, topk_weights, top_k, shared: None, out: combined };
        self.device.perform(&Launch::Combine(op))?;
        self.keep("combine reversed", &combined)
    }

    /// Sampling: rows that want their likeliest token, and rows that want more.
    ///
    /// # Errors
    /// As the device's.
    pub fn sample_ops(&mut self) -> Result {
        let (rows, vocab) = (5, 600);
        let mut numbers = values(rows * vocab, 0.77);
        numbers[2 * vocab + 9] = f32::NAN;
        let logits = self.f32s(&numbers)?;
        let greedy = SampleParams { temperature: 0.0, ..SampleParams::default() };
        let drawn = SampleParams { seed: 5, ..SampleParams::default() };
        let top = SampleParams { top_logprobs: Some(3), ..greedy.clone() };
        let ways = [
            vec![greedy.clone(); 5],
            vec![drawn; 5],
            vec![greedy.clone(), greedy.clone(), greedy.clone(), top, greedy],
        ];
        for (way, params) in ways.into_iter().enumerate() {
            let sampled = params.into_iter().map(|params| SampleRow {
                params: Arc::new(params),
                position: 7,
                tokens: Arc::from([]),
                prompt_len: 0,
            });
            let max_top = if way == 2 { 3 } else { 0 };
            let op = Sample {
                logits: RowView::contiguous(logits, rows, vocab),
                rows: sampled.collect(),
                max_top,
                tokens: self.device.alloc_i32(rows)?,
                logprob: self.device.alloc_f32(rows)?,
                top_ids: self.device.alloc_i32(rows * max_top)?,
                top_logprobs: self.device.alloc_f32(rows * max_top)?,
            };
            self.device.perform(&Launch::Sample(op.clone()))?;
            self.keep_i32(&format!("tokens {way}"), op.tokens, rows)?;
            self.keep_f32(&format!("logprob {way}"), op.logprob, rows)?;
            self.keep_i32(&format!("top_ids {way}"), op.top_ids, rows * max_top)?;
            self.keep_f32(&format!("top_logprobs {way}"), op.top_logprobs, rows * max_top)?;
        }
        Ok(())
    }
}

/// Sequences in a paged cache, all their tokens written.
#[derive(Debug)]
pub struct Cached {
    cache: CacheId,
    page_size: usize,
    lens: Vec<usize>,
    /// Pages of each sequence, `[seqs, max_pages]`.
    table: Vec<i32>,
    max_pages: usize,
}

impl<D: Device> Launches<D> {
    /// A cache of two layers that holds sequences of these lengths.
    ///
    /// # Errors
    /// As the device's.
    pub fn cache(&mut self, format: &'static KvFormat, lens: &[usize]) -> Result<Cached> {
        let page_size = 16;
        let max_pages = lens.iter().map(|len| len.div_ceil(page_size)).max().unwrap_or(1) + 1;
        let num_pages = lens.len() * max_pages;
        let entry = self.dims.entry();
        let spec = CacheSpec { format, num_layers: 2, num_pages, page_size, entry };
        let cache = self.device.alloc_cache(spec)?;
        let scale = if format.scaled { 0.03 } else { 1.0 };
        let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        for page in 0..narrow(num_pages) {
            self.device.set_page_scales(cache, page, &[scale, 2.0 * scale])?;
            self.device.set_page_tag(cache, page, 100 + u64::from(page))?;
        }
        // Pages in an order of no pattern: 7 is prime to the number of pages that tests have.
        let table = (0..num_pages).map(|i| index((i * 7 + 3) % num_pages)).collect();
        let cached = Cached { cache, page_size, lens: lens.to_vec(), table, max_pages };
        for layer in 0..2 {
            self.fill(&cached, layer)?;
        }
        Ok(cached)
    }

    fn fill(&mut self, cached: &Cached, layer: usize) -> Result {
        let tokens = cached.lens.iter().sum::<usize>();
        let mut slots = Vec::new();
        let mut positions = Vec::new();
        for (seq, &len) in cached.lens.iter().enumerate() {
            for position in 0..len {
                let page = cached.table[seq * cached.max_pages + position / cached.page_size];
                let slot = usize::try_from(page).unwrap_or(0) * cached.page_size;
                slots.push(i64::from(index(slot + position % cached.page_size)));
                positions.push(index(position));
            }
        }
        // A slot of -1 writes nothing.
        slots.push(-1);
        positions.push(0);
        let slot_mapping = self.device.alloc_i64(tokens + 1)?;
        self.device.write_i64(slot_mapping, &slots)?;
        let saturated = self.device.alloc_u32(tokens + 1)?;
        let op = KvWrite {
            latent: self.rows(tokens + 1, self.dims.kv_lora_rank, 0.83)?,
            k_pe: self.rows(tokens + 1, self.dims.qk_rope_head_dim, 0.59)?,
            rotation: self.rotation(&positions, self.dims.qk_rope_head_dim)?,
            slot_mapping,
            cache: cached.cache,
            layer,
            saturated,
        };
        self.device.perform(&Launch::KvWrite(op))?;
        let mut counts = vec![0; tokens + 1];
        self.device.read_u32(saturated, &mut counts)?;
        let counts = counts.into_iter().map(|count| count as f32).collect();
        self.outputs.push((format!("saturated {layer}"), counts));
        Ok(())
    }

    /// The batch in which each sequence has that many new tokens.
    fn batch(&mut self, cached: &Cached, new: &[usize]) -> Result<PagedBatch> {
        let mut starts = vec![0];
        for &count in new {
            starts.push(starts[starts.len() - 1] + index(count));
        }
        let lens: Vec<i32> = cached.lens.iter().map(|&len| index(len)).collect();
        Ok(PagedBatch {
            num_seqs: lens.len(),
            max_pages_per_seq: cached.max_pages,
            block_table: self.i32s(&cached.table)?,
            seq_lens: self.i32s(&lens)?,
            cu_seqlens_q: self.i32s(&starts)?,
        })
    }

    /// Attention of the last `new` tokens of each sequence, expanded and in latent space.
    ///
    /// # Errors
    /// As the device's.
    pub fn attention_ops(&mut self, cached: &Cached, new: &[usize]) -> Result {
        let (dims, cache, layer, softmax_scale) = (self.dims, cached.cache, 1, 0.3);
        let (heads, tokens) = (dims.num_heads, new.iter().sum());
        let batch = self.batch(cached, new)?;
        let [rows, cols] = dims.kv_b_shape();
        let kv_b = self.weight(rows, cols, 0.19)?;
        let q = self.rows(tokens, heads * dims.qk_head_dim(), 0.47)?;
        let (out, lse) = (self.out(tokens, heads * dims.v_head_dim)?, self.out(tokens, heads)?);
        let op = MlaPrefill { dims, q, kv_b, cache, layer, batch, softmax_scale, out, lse };
        self.device.perform(&Launch::MlaPrefill(op.clone()))?;
        self.keep("prefill", &out)?;
        self.keep("prefill lse", &lse)?;
        let lse = RowView::contiguous(self.device.alloc_f32(tokens * heads)?, tokens, heads);
        self.device.perform(&Launch::MlaPrefill(MlaPrefill { lse, ..op }))?;
        self.keep("prefill lse without gaps", &lse)?;

        self.device.prepare_absorption(kv_b, &dims)?;
        let width = heads * dims.kv_lora_rank;
        let (ql_nope, latent) = (self.out(tokens, width)?, self.out(tokens, width)?);
        self.device.perform(&Launch::AbsorbQuery(AbsorbQuery { dims, q, kv_b, ql_nope }))?;
        self.keep("absorb_query", &ql_nope)?;
        let (values, lse) = (latent, self.out(tokens, heads)?);
        let op =
            MlaDecode { dims, ql_nope, q, cache, layer, batch, softmax_scale, out: values, lse };
        self.device.perform(&Launch::MlaDecode(op))?;
        self.keep("decode", &latent)?;
        self.keep("decode lse", &lse)?;
        self.device.perform(&Launch::AbsorbValue(AbsorbValue { dims, latent, kv_b, out }))?;
        self.keep("absorb_value", &out)
    }

    /// Decode steps of one shape, each with other queries, by the plan of that shape.
    ///
    /// # Errors
    /// As the device's.
    pub fn decode_plan(&mut self, cached: &Cached, steps: usize) -> Result {
        let (dims, cache, softmax_scale, tokens) =
            (self.dims, cached.cache, 0.3, cached.lens.len());
        let heads = dims.num_heads;
        let batch = self.batch(cached, &vec![1; tokens])?;
        let [rows, cols] = dims.kv_b_shape();
        let kv_b = self.weight(rows, cols, 0.19)?;
        let width = heads * dims.kv_lora_rank;
        let q = self.device.alloc_f32(tokens * heads * dims.qk_head_dim())?;
        let q = RowView::contiguous(q, tokens, heads * dims.qk_head_dim());
        let (ql_nope, out) = (self.out(tokens, width)?, self.out(tokens, width)?);
        let lse = self.out(tokens, heads)?;
        let mut plan = Vec::new();
        for layer in 0..2 {
            plan.push(Launch::AbsorbQuery(AbsorbQuery { dims, q, kv_b, ql_nope }));
            let op = MlaDecode { dims, ql_nope, q, cache, layer, batch, softmax_scale, out, lse };
            plan.push(Launch::MlaDecode(op));
        }
        for step in 0..steps {
            let queries = values(tokens * q.cols, 0.3 + step as f32 * 0.1);
            self.device.write_f32(q.buffer, &queries)?;
            self.device.perform_plan(PlanKey([tokens, tokens, 0, 0]), &plan)?;
            self.keep(&format!("step {step}"), &out)?;
            self.keep(&format!("lse {step}"), &lse)?;
        }
        Ok(())
    }

    /// What the tag check finds, with a tag changed and a table bent.
    ///
    /// # Errors
    /// As the device's.
    pub fn tag_check(&mut self, cached: &Cached) -> Result {
        let (seqs, max_pages) = (cached.lens.len(), cached.max_pages);
        let tags = cached.table.iter().map(|&page| 100 + u64::try_from(page).unwrap_or(0));
        let tags: Vec<u64> = tags.collect();
        let expected = self.device.alloc_u64(tags.len())?;
        self.device.write_u64(expected, &tags)?;
        let pages: Vec<i32> =
            cached.lens.iter().map(|len| index(len.div_ceil(cached.page_size))).collect();
        let (num_pages, mismatch) = (self.i32s(&pages)?, self.device.alloc_i32(seqs)?);
        let starts: Vec<i32> = (0..=seqs).map(index).collect();
        let (block_table, cu_seqlens_q) = (self.i32s(&cached.table)?, self.i32s(&starts)?);
        let slot_mapping = self.device.alloc_i64(seqs)?;
        let op = PageTagCheck {
            cache: cached.cache,
            block_table,
            expected,
            num_pages,
            num_seqs: seqs,
            max_pages_per_seq: max_pages,
            mismatch,
            cu_seqlens_q,
            num_tokens: seqs,
            slot_mapping,
        };
        for bend in ["sound", "changed", "bent"] {
            if bend == "changed" {
                let page = u32::try_from(cached.table[0]).unwrap_or(0);
                self.device.set_page_tag(cached.cache, page, 7)?;
            }
            if bend == "bent" {
                let mut bent = cached.table.clone();
                bent[(seqs - 1) * max_pages] = index(seqs * max_pages);
                self.device.write_i32(block_table, &bent)?;
            }
            let slots: Vec<i64> = (0..seqs).map(|slot| i64::from(index(slot))).collect();
            self.device.write_i64(slot_mapping, &slots)?;
            self.device.perform(&Launch::PageTagCheck(op.clone()))?;
            self.keep_i32(&format!("mismatch {bend}"), mismatch, seqs)?;
            let mut slots = vec![0; seqs];
            self.device.read_i64(slot_mapping, &mut slots)?;
            let slots = slots.into_iter().map(|slot| slot as f32).collect();
            self.outputs.push((format!("slots {bend}"), slots));
        }
        Ok(())
    }

    /// What the hand-off does with a page: measure, convert, digest, receive.
    ///
    /// # Errors
    /// As the device's.
    pub fn page_ops(&mut self, cached: &Cached, targets: &[&'static KvFormat]) -> Result {
        let spec = self.device.cache_spec(cached.cache)?;
        let page = u32::try_from(cached.table[0]).unwrap_or(0);
        let (cache, valid_tokens, layers) = (cached.cache, 11, spec.num_layers);
        let amax = self.f32s(&vec![0.0; layers])?;
        self.device.perform(&Launch::KvAmax(KvAmax { cache, page, valid_tokens, amax }))?;
        self.keep_f32("amax", amax, layers)?;
        for &target in targets {
            let bytes = CacheSpec { format: target, ..spec }.page_bytes();
            let out = self.device.alloc_bytes(bytes)?;
            let mut counts = vec![1000; layers * spec.page_size];
            let saturated = self.device.alloc_u32(counts.len())?;
            self.device.write_u32(saturated, &counts)?;
            let target_scales = self.f32s(&[0.002, 0.06])?;
            let op = KvConvert { cache, page, valid_tokens, target, target_scales, out, saturated };
            self.device.perform(&Launch::KvConvert(op))?;
            let mut codes = vec![0; bytes];
            self.device.read_bytes(out, &mut codes)?;
            self.device.read_u32(saturated, &mut counts)?;
            self.outputs.push((format!("codes of {}", target.name), decode(target, &codes)));
            let counts = counts.into_iter().map(|count| count as f32).collect();
            self.outputs.push((format!("clamped for {}", target.name), counts));
        }
        let digests = self.device.alloc_u64(layers)?;
        let key = DigestKey { owner: 3, generation: 1, logical_page: 2, valid_tokens };
        self.device.perform(&Launch::PageDigest(PageDigest { cache, page, key, digests }))?;
        let mut found = vec![0u64; layers];
        self.device.read_u64(digests, &mut found)?;
        let bytes = self.device.read_page(cache, page)?;
        let valid_bytes = valid_tokens as usize * spec.entry_bytes();
        let scales = self.device.page_scales(cache, page)?;
        let codes = bytes.chunks(spec.page_layer_bytes()).map(|codes| &codes[..valid_bytes]);
        let want = codes.zip(&scales).enumerate();
        let want = want.map(|(layer, (codes, &scale))| digest_layer(&key, layer, scale, codes));
        assert!(want.eq(found), "digests of what lies in the cache");
        let other = u32::try_from(cached.table[1]).unwrap_or(0);
        self.device.write_page(cache, other, &bytes)?;
        assert_eq!(self.device.read_page(cache, other)?, bytes, "a page comes back as written");
        self.device.clear_page(cache, other)?;
        assert!(self.device.read_page(cache, other)?.iter().all(|&byte| byte == 0));
        self.outputs.push(("page".to_owned(), decode(spec.format, &bytes)));
        Ok(())
    }
}

/// The numbers that codes stand for.
fn decode(format: &KvFormat, codes: &[u8]) -> Vec<f32> {
    let bits = format.element.bits();
    let count = codes.len() * 8 / bits;
    (0..count).map(|i| format.element.decode(read_code(codes, bits, i))).collect()
}

fn index(value: usize) -> i32 {
    i32::try_from(value).expect("sizes of tests are small")
}
