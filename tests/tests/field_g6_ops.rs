//! Field cases about single ops, on the CPU device and on the references.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![expect(clippy::cast_possible_truncation, reason = "sizes here are small constants")]

use std::sync::Arc;
use tessera_kernels::formats::{PackedMatrix, format, kv_format};
use tessera_kernels::launch::{BufferId, CacheId, Launch, RowView};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::attention::merge;
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::mla_prefill::{MlaDims, MlaPrefill, PagedBatch};
use tessera_kernels::ops::rope::Rotation;
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::sample::{Choice, SampleParams, SampleRow, sample_row};
use tessera_runtime::device::{CacheSpec, CpuDevice, Device};

const DIMS: MlaDims = MlaDims {
    num_heads: 2,
    kv_lora_rank: 32,
    qk_nope_head_dim: 8,
    qk_rope_head_dim: 4,
    v_head_dim: 8,
};
const PAGE_SIZE: usize = 4;

fn values(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * step).sin()).collect()
}

fn f32_buffer(device: &mut CpuDevice, values: &[f32]) -> BufferId {
    let id = device.alloc_f32(values.len()).unwrap();
    device.write_f32(id, values).unwrap();
    id
}

fn i32_buffer(device: &mut CpuDevice, values: &[i32]) -> BufferId {
    let id = device.alloc_i32(values.len()).unwrap();
    device.write_i32(id, values).unwrap();
    id
}

/// A rotation that turns nothing.
fn still(device: &mut CpuDevice, tokens: usize, rope_dim: usize) -> Rotation {
    let positions = i32_buffer(device, &vec![0; tokens]);
    let inv_freq = f32_buffer(device, &vec![0.0; rope_dim / 2]);
    Rotation { positions, inv_freq, magnitude: 1.0, interleaved: false }
}

/// One sequence of `len` tokens in pages 5, 2, 7, 0 of a cache of 8.
struct Bench {
    device: CpuDevice,
    cache: CacheId,
    len: usize,
}

const PAGES: [i32; 4] = [5, 2, 7, 0];

impl Bench {
    fn new(kv: &str, len: usize, fill: u8) -> Self {
        let mut device = CpuDevice::new();
        let format = kv_format(kv).unwrap();
        let spec = CacheSpec {
            format,
            num_layers: 1,
            num_pages: 8,
            page_size: PAGE_SIZE,
            entry: DIMS.entry(),
        };
        let cache = device.alloc_cache(spec).unwrap();
        for page in 0..8 {
            device.write_page(cache, page, &vec![fill; spec.page_bytes()]).unwrap();
        }
        let latent = f32_buffer(&mut device, &values(len * DIMS.kv_lora_rank, 0.83));
        let k_pe = f32_buffer(&mut device, &values(len * DIMS.qk_rope_head_dim, 0.59));
        let slots: Vec<i64> = (0..len)
            .map(|t| i64::from(PAGES[t / PAGE_SIZE]) * 4 + (t % PAGE_SIZE) as i64)
            .collect();
        let slot_mapping = device.alloc_i64(len).unwrap();
        device.write_i64(slot_mapping, &slots).unwrap();
        let saturated = device.alloc_u32(len).unwrap();
        let write = KvWrite {
            latent: RowView::contiguous(latent, len, DIMS.kv_lora_rank),
            k_pe: RowView::contiguous(k_pe, len, DIMS.qk_rope_head_dim),
            rotation: still(&mut device, len, DIMS.qk_rope_head_dim),
            slot_mapping,
            cache,
            layer: 0,
            saturated,
        };
        device.perform(&Launch::KvWrite(write)).unwrap();
        Self { device, cache, len }
    }

    fn batch(&mut self, num_tokens: usize) -> PagedBatch {
        PagedBatch {
            num_seqs: 1,
            max_pages_per_seq: 4,
            block_table: i32_buffer(&mut self.device, &PAGES),
            seq_lens: i32_buffer(&mut self.device, &[self.len as i32]),
            cu_seqlens_q: i32_buffer(&mut self.device, &[0, num_tokens as i32]),
        }
    }

    /// Output and lse of the last `num_tokens` tokens: by keys and values, or in latent space.
    fn attend(&mut self, num_tokens: usize, absorbed: bool) -> (Vec<f32>, Vec<f32>) {
        let batch = self.batch(num_tokens);
        let (heads, device) = (DIMS.num_heads, &mut self.device);
        let [rows, cols] = DIMS.kv_b_shape();
        let kv_b = values(rows * cols, 0.31);
        let kv_b = PackedMatrix::encode(format("f32").unwrap(), rows, cols, &kv_b).unwrap();
        let kv_b = device.load_weight(kv_b).unwrap();
        let q_cols = heads * DIMS.qk_head_dim();
        let q = f32_buffer(device, &values(num_tokens * q_cols, 0.47));
        let q = RowView::contiguous(q, num_tokens, q_cols);
        let mut view = |cols: usize| {
            RowView::contiguous(device.alloc_f32(num_tokens * cols).unwrap(), num_tokens, cols)
        };
        let (out, lse) = (view(heads * DIMS.v_head_dim), view(heads));
        let (ql_nope, latent) = (view(heads * DIMS.kv_lora_rank), view(heads * DIMS.kv_lora_rank));
        let (dims, cache, layer, softmax_scale) = (DIMS, self.cache, 0, 0.3);
        let launches = if absorbed {
            vec![
                Launch::AbsorbQuery(AbsorbQuery { dims, q, kv_b, ql_nope }),
                Launch::MlaDecode(MlaDecode {
                    dims,
                    ql_nope,
                    q,
                    cache,
                    layer,
                    batch,
                    softmax_scale,
                    out: latent,
                    lse,
                }),
                Launch::AbsorbValue(AbsorbValue { dims, latent, kv_b, out }),
            ]
        } else {
            let prefill =
                MlaPrefill { dims, q, kv_b, cache, layer, batch, softmax_scale, out, lse };
            vec![Launch::MlaPrefill(prefill)]
        };
        for launch in &launches {
            device.perform(launch).unwrap();
        }
        let (mut values, mut sums) =
            (vec![0.0; num_tokens * out.cols], vec![0.0; num_tokens * heads]);
        device.read_f32(out.buffer, &mut values).unwrap();
        device.read_f32(lse.buffer, &mut sums).unwrap();
        (values, sums)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn expanded_and_absorbed_attention_agree() {
    for kv in ["f32", "bf16", "fp8_e4m3"] {
        let mut bench = Bench::new(kv, 13, 0);
        let (expanded, absorbed) = (bench.attend(5, false), bench.attend(5, true));
        let pairs = expanded.0.iter().chain(&expanded.1).zip(absorbed.0.iter().chain(&absorbed.1));
        for (a, b) in pairs {
            assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{kv}: {a} and {b}");
        }
    }
}

/// The expanded form against f64 from the definition, over an exact cache.
#[test]
fn attention_matches_the_definition() {
    let len = 6;
    let (out, lse) = Bench::new("f32", len, 0).attend(1, false);
    let f64s = |count, step| values(count, step).into_iter().map(f64::from).collect::<Vec<f64>>();
    let latent = f64s(len * 32, 0.83);
    let rope = f64s(len * 4, 0.59);
    let [rows, cols] = DIMS.kv_b_shape();
    let (kv_b, q) = (f64s(rows * cols, 0.31), f64s(24, 0.47));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for h in 0..2 {
        let project =
            |t: usize, row: usize| dot(&kv_b[(h * 16 + row) * 32..][..32], &latent[t * 32..][..32]);
        let weights: Vec<f64> = (0..len)
            .map(|t| {
                let nope: f64 = (0..8).map(|d| q[h * 12 + d] * project(t, d)).sum();
                (0.3 * (nope + dot(&q[h * 12 + 8..][..4], &rope[t * 4..][..4]))).exp()
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        assert!((f64::from(lse[h]) - sum.ln()).abs() < 1e-4);
        for v in 0..8 {
            let want: f64 = (0..len).map(|t| weights[t] / sum * project(t, 8 + v)).sum();
            assert!((f64::from(out[h * 8 + v]) - want).abs() < 1e-4);
        }
    }
}

#[test]
fn o_305_k_scale_half_writes_0x48_and_reads_2() {
    let mut device = CpuDevice::new();
    let format = kv_format("fp8_e4m3").unwrap();
    let spec = CacheSpec { format, num_layers: 2, num_pages: 2, page_size: 4, entry: 4 };
    let cache = device.alloc_cache(spec).unwrap();
    device.set_page_scales(cache, 1, &[1.0, 0.5]).unwrap();
    let latent = f32_buffer(&mut device, &[2.0, 1000.0]);
    let k_pe = f32_buffer(&mut device, &[0.0, 0.0]);
    let slot_mapping = device.alloc_i64(1).unwrap();
    device.write_i64(slot_mapping, &[5]).unwrap();
    let saturated = device.alloc_u32(1).unwrap();
    let write = KvWrite {
        latent: RowView::contiguous(latent, 1, 2),
        k_pe: RowView::contiguous(k_pe, 1, 2),
        rotation: still(&mut device, 1, 2),
        slot_mapping,
        cache,
        layer: 1,
        saturated,
    };
    device.perform(&Launch::KvWrite(write)).unwrap();
    let page = device.read_page(cache, 1).unwrap();
    assert_eq!(page[16 + 4..16 + 6], [0x48, 0x7e]);
    assert!(page.iter().enumerate().all(|(i, b)| (20..22).contains(&i) || *b == 0));
    let mut count = [0];
    device.read_u32(saturated, &mut count).unwrap();
    assert_eq!(count, [1]);
    let amax = device.alloc_f32(2).unwrap();
    let op = tessera_kernels::ops::kv_convert::KvAmax { cache, page: 1, valid_tokens: 2, amax };
    device.perform(&Launch::KvAmax(op)).unwrap();
    let mut got = [0.0; 2];
    device.read_f32(amax, &mut got).unwrap();
    assert_eq!(got, [0.0, 224.0]);
}

#[test]
fn o_405_junk_in_unused_slots_changes_no_bit() {
    for kv in ["f32", "bf16", "fp8_e4m3"] {
        for absorbed in [false, true] {
            let want = Bench::new(kv, 13, 0).attend(3, absorbed);
            assert!(want.0.iter().all(|value| value.is_finite()));
            // NaN in every format; a large finite value; NaN with the sign set.
            for fill in [0x7f, 0x47, 0xff] {
                let got = Bench::new(kv, 13, fill).attend(3, absorbed);
                assert_eq!(bits(&got.0), bits(&want.0), "{kv} {fill:x}");
                assert_eq!(bits(&got.1), bits(&want.1), "{kv} {fill:x}");
            }
        }
    }
}

#[test]
fn o_406_offsets_are_64_bit() {
    let format = kv_format("fp8_e4m3").unwrap();
    let spec = CacheSpec { format, num_layers: 1, num_pages: 59_376, page_size: 64, entry: 576 };
    assert_eq!(spec.slot_offset(0, 3_728_270), 2_147_483_520);
    assert_eq!(spec.slot_offset(0, 3_728_271), 2_147_484_096);
    let wide = CacheSpec { page_size: 64, entry: 512, num_pages: 70_000, ..spec };
    assert_eq!(wide.page_offset(0, 65_536), 65_536 * 32_768);
    let view = RowView { buffer: BufferId(0), offset: 0, rows: 131_073, cols: 1, stride: 16_384 };
    assert_eq!(view.rows.saturating_sub(1) * view.stride, 2_147_483_648);

    // The pool is zeroed lazily, so only the pages written take memory.
    let mut device = CpuDevice::new();
    let cache = device.alloc_cache(spec).unwrap();
    let slots = [3_728_270i64, 3_728_271, 3_800_000];
    let latent: Vec<f32> = (0..3 * 512).map(|i| (1 + i / 512) as f32).collect();
    let latent = f32_buffer(&mut device, &latent);
    let k_pe = f32_buffer(&mut device, &[0.5; 3 * 64]);
    let slot_mapping = device.alloc_i64(3).unwrap();
    device.write_i64(slot_mapping, &slots).unwrap();
    let saturated = device.alloc_u32(3).unwrap();
    let write = KvWrite {
        latent: RowView::contiguous(latent, 3, 512),
        k_pe: RowView::contiguous(k_pe, 3, 64),
        rotation: still(&mut device, 3, 64),
        slot_mapping,
        cache,
        layer: 0,
        saturated,
    };
    device.perform(&Launch::KvWrite(write)).unwrap();
    for (slot, code) in slots.into_iter().zip([0x38, 0x40, 0x44]) {
        let page = device.read_page(cache, (slot / 64) as u32).unwrap();
        let entry = &page[(slot % 64) as usize * 576..][..576];
        assert!(entry[..512].iter().all(|&b| b == code) && entry[512..].iter().all(|&b| b == 0x30));
    }
    for page in 0..16 {
        assert!(device.read_page(cache, page).unwrap().iter().all(|&b| b == 0));
    }
}

fn route(logits: &[f32], bias: &[f32], groups: (usize, usize)) -> (Vec<i32>, Vec<f32>) {
    let mut device = CpuDevice::new();
    let (logits_id, bias) = (f32_buffer(&mut device, logits), f32_buffer(&mut device, bias));
    let op = Router {
        logits: RowView::contiguous(logits_id, 1, logits.len()),
        bias,
        top_k: 2,
        num_groups: groups.0,
        topk_groups: groups.1,
        norm_topk_prob: true,
        routed_scaling_factor: 1.0,
        topk_ids: device.alloc_i32(2).unwrap(),
        topk_weights: device.alloc_f32(2).unwrap(),
    };
    device.perform(&Launch::Router(op.clone())).unwrap();
    let (mut ids, mut weights) = (vec![0; 2], vec![0.0; 2]);
    device.read_i32(op.topk_ids, &mut ids).unwrap();
    device.read_f32(op.topk_weights, &mut weights).unwrap();
    (ids, weights)
}

#[test]
fn o_604_bias_selects_and_does_not_weigh() {
    let (ids, weights) = route(&[2.0, 1.0, 0.0, -1.0], &[0.0, 0.0, 0.5, 0.9], (1, 1));
    assert_eq!(ids, [3, 2]);
    assert!((weights[0] - 0.349_755_4).abs() < 1e-6 && (weights[1] - 0.650_244_6).abs() < 1e-6);
    // Logits of 0 score 0.5, so these biases give -0.3, -0.2 | -0.1, -0.15.
    let (ids, _) = route(&[0.0; 4], &[-0.8, -0.7, -0.6, -0.65], (2, 1));
    assert_eq!(ids, [2, 3]);
    assert_eq!(route(&[0.0; 4], &[0.0; 4], (1, 1)).0, [0, 1]);
    assert_eq!(route(&[0.0; 4], &[0.0; 4], (2, 1)).0, [0, 1]);
}

#[test]
fn o_605_empty_attention_parts() {
    let empty = f32::NEG_INFINITY;
    let mut out = [0.0];
    assert_eq!((merge(&mut out, empty, &[0.0], empty), out), (empty, [0.0]));
    assert_eq!((merge(&mut out, empty, &[3.0], -1.5), out), (-1.5, [3.0]));
    let mut out = [3.0];
    assert_eq!((merge(&mut out, -1.5, &[0.0], empty), out), (-1.5, [3.0]));
    let mut out = [1.0];
    let lse = merge(&mut out, 0.0, &[3.0], 0.0);
    assert!((lse - 2f32.ln()).abs() < 1e-6 && (out[0] - 2.0).abs() < 1e-6);
    for absorbed in [false, true] {
        let (out, lse) = Bench::new("bf16", 0, 0xff).attend(1, absorbed);
        assert!(out.iter().all(|&value| value == 0.0));
        assert!(lse.iter().all(|&lse| lse == empty));
    }
}

fn sample(logits: &[f32], params: SampleParams, position: u64) -> Choice {
    let row =
        SampleRow { params: Arc::new(params), position, tokens: [0, 1].into(), prompt_len: 2 };
    sample_row(logits, &row)
}

#[test]
fn o_606_sampler_extremes() {
    let base = SampleParams::default();
    let field = |params: SampleParams| params.check(100).err().map(|e| e.field);
    assert_eq!(field(base.clone()), None);
    for temperature in [0.0, 1e-9, 1e-4, 1.0] {
        let params = SampleParams { temperature, ..base.clone() };
        assert_eq!(field(params.clone()), None);
        assert_eq!(sample(&[1.0, 3.0, 2.0], params, 5).token, Some(1));
    }
    for temperature in [-1.0, 1e9, f32::NAN, f32::INFINITY] {
        assert_eq!(field(SampleParams { temperature, ..base.clone() }), Some("temperature"));
    }
    assert_eq!(field(SampleParams { top_p: 1.1, ..base.clone() }), Some("top_p"));
    assert_eq!(field(SampleParams { min_p: 1.5, ..base.clone() }), Some("min_p"));
    for repetition_penalty in [0.0, -1.0, 1e30] {
        let params = SampleParams { repetition_penalty, ..base.clone() };
        assert_eq!(field(params), Some("repetition_penalty"));
    }
    for logit_bias in [vec![(999_999, 1.0)], vec![(100, 1.0)], vec![(1, 1e9)]] {
        assert_eq!(field(SampleParams { logit_bias, ..base.clone() }), Some("logit_bias"));
    }
    let logits = [2.0, 2.5, 2.4, 0.0];
    for position in 0..200 {
        let one = SampleParams { top_p: 0.0, ..base.clone() };
        assert_eq!(sample(&logits, one, position).token, Some(1));
        let off = SampleParams { top_k: 9, ..base.clone() };
        let plain = sample(&logits, base.clone(), position);
        assert_eq!(sample(&logits, off, position), plain);
    }
    // +3 becomes 1.5 and -3 becomes -6: the order against 1.4, 1.6 and -5.9 shows it.
    let greedy = SampleParams { temperature: 0.0, repetition_penalty: 2.0, ..base };
    assert_eq!(sample(&[3.0, -3.0, 1.4], greedy.clone(), 0).token, Some(0));
    assert_eq!(sample(&[3.0, -3.0, 1.6], greedy.clone(), 0).token, Some(2));
    assert_eq!(sample(&[-99.0, -3.0, -5.9], greedy.clone(), 0).token, Some(2));
    assert_eq!(sample(&[-99.0, -3.0, -6.1], greedy, 0).token, Some(1));
}

#[test]
fn o_607_seed_choice_and_position_alone_key_the_stream() {
    let logits = [0.0; 50];
    let run = |seed, choice| -> Vec<_> {
        let params = SampleParams { seed, choice, ..SampleParams::default() };
        (0..40).map(|position| sample(&logits, params.clone(), position).token).collect()
    };
    let (first, other, third) = (run(7, 0), run(7, 1), run(7, 2));
    assert_eq!(first, run(7, 0));
    assert!(first != other && other != third && first != third);
    assert_ne!(first, run(1 << 63, 0));
}

#[test]
fn o_608_nan_logits_give_no_token() {
    let params = SampleParams::default;
    for bad in [f32::NAN, f32::INFINITY] {
        assert_eq!(sample(&[0.0, bad, 1.0], params(), 0).token, None);
        assert_eq!(sample(&[bad; 3], params(), 0).token, None);
    }
    assert_eq!(sample(&[f32::NEG_INFINITY; 3], params(), 0).token, None);
    assert_eq!(sample(&[f32::NEG_INFINITY, 0.0], params(), 0).token, Some(1));
}
