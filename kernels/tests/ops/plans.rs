//! What a plan is refused for, before anything runs: every op, and each error names op and argument.

use super::{kv, named};
use std::sync::Arc;
use tessera_kernels::launch::{
    BufferId, BufferType, CacheId, CacheSpec, DeviceShapes, Launch, PlanError, RowView, WeightId,
};
use tessera_kernels::ops::absorb::{AbsorbQuery, AbsorbValue};
use tessera_kernels::ops::combine::Combine;
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::FeedTokens;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::linear::{GroupedLinear, Linear};
use tessera_kernels::ops::mla_decode::MlaDecode;
use tessera_kernels::ops::mla_prefill::{MlaDims, MlaPrefill, PagedBatch};
use tessera_kernels::ops::page_digest::{DigestKey, PageDigest};
use tessera_kernels::ops::page_tag_check::PageTagCheck;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::rope::{Rope, Rotation};
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::sample::{Sample, SampleParams, SampleRow};
use tessera_kernels::ops::swiglu::SwiGlu;

// Buffers of the device, by what they hold; each long enough for every launch below but SHORT.
const X: BufferId = BufferId(0);
const Y: BufferId = BufferId(1);
const OUT: BufferId = BufferId(2);
const LSE: BufferId = BufferId(3);
const I32: BufferId = BufferId(4);
const I32_B: BufferId = BufferId(5);
const I64: BufferId = BufferId(6);
const U32: BufferId = BufferId(7);
const U64: BufferId = BufferId(8);
const BYTES: BufferId = BufferId(9);
const SHORT: BufferId = BufferId(10);
const I32_C: BufferId = BufferId(11);
const NONE: BufferId = BufferId(12);
const SQUARE: WeightId = WeightId(0);
const KV_B: WeightId = WeightId(1);
const NO_WEIGHT: WeightId = WeightId(2);
const CACHE: CacheId = CacheId(0);
const NO_CACHE: CacheId = CacheId(1);

const DIMS: MlaDims = MlaDims {
    num_heads: 2,
    kv_lora_rank: 4,
    qk_nope_head_dim: 3,
    qk_rope_head_dim: 2,
    v_head_dim: 5,
};
const BATCH: PagedBatch = PagedBatch {
    num_seqs: 2,
    max_pages_per_seq: 2,
    block_table: I32,
    seq_lens: I32,
    cu_seqlens_q: I32,
};

fn device() -> DeviceShapes {
    use BufferType::{Bytes, F32, I32, I64, U32, U64};
    let types = [F32, F32, F32, F32, I32, I32, I64, U32, U64, Bytes];
    let mut buffers: Vec<_> = types.into_iter().map(|kind| (kind, 64)).collect();
    buffers.extend([(F32, 1), (I32, 64)]);
    let format = kv("fp8_e4m3");
    let cache = CacheSpec { format, num_layers: 2, num_pages: 3, page_size: 4, entry: 6 };
    DeviceShapes { buffers, weights: vec![[4, 4], [16, 4]], caches: vec![cache] }
}

fn view(buffer: BufferId, rows: usize, cols: usize) -> RowView {
    RowView::contiguous(buffer, rows, cols)
}

fn norm() -> RmsNorm {
    let residual = Some(view(Y, 3, 4));
    RmsNorm { x: view(X, 3, 4), residual, weight: LSE, eps: 1e-6, out: view(OUT, 3, 4) }
}

fn grouped() -> GroupedLinear {
    let weights = [SQUARE, SQUARE].into();
    GroupedLinear { x: view(X, 3, 4), weights, expert_offsets: I32, out: view(OUT, 3, 4) }
}

fn rope() -> Rope {
    Rope { x: view(X, 3, 6), num_heads: 2, head_stride: 3, rope_dim: 2, rotation: ROTATION }
}

const ROTATION: Rotation =
    Rotation { positions: I32, inv_freq: Y, magnitude: 1.0, interleaved: true };

fn kv_write() -> KvWrite {
    KvWrite {
        latent: view(X, 3, 4),
        k_pe: view(Y, 3, 2),
        rotation: ROTATION,
        slot_mapping: I64,
        cache: CACHE,
        layer: 1,
        saturated: U32,
    }
}

fn prefill() -> MlaPrefill {
    MlaPrefill {
        dims: DIMS,
        q: view(X, 3, 10),
        kv_b: KV_B,
        cache: CACHE,
        layer: 1,
        batch: BATCH,
        softmax_scale: 1.0,
        out: view(OUT, 3, 10),
        lse: view(LSE, 3, 2),
    }
}

fn decode() -> MlaDecode {
    MlaDecode {
        dims: DIMS,
        ql_nope: view(Y, 3, 8),
        q: view(X, 3, 10),
        cache: CACHE,
        layer: 1,
        batch: BATCH,
        softmax_scale: 1.0,
        out: view(OUT, 3, 8),
        lse: view(LSE, 3, 2),
    }
}

fn absorb_query() -> AbsorbQuery {
    AbsorbQuery { dims: DIMS, q: view(X, 3, 10), kv_b: KV_B, ql_nope: view(OUT, 3, 8) }
}

fn absorb_value() -> AbsorbValue {
    AbsorbValue { dims: DIMS, latent: view(X, 3, 8), kv_b: KV_B, out: view(OUT, 3, 10) }
}

fn router() -> Router {
    Router {
        logits: view(X, 3, 8),
        bias: Y,
        top_k: 2,
        num_groups: 4,
        topk_groups: 2,
        norm_topk_prob: true,
        routed_scaling_factor: 1.0,
        topk_ids: I32,
        topk_weights: OUT,
    }
}

fn permute() -> Permute {
    Permute {
        x: view(X, 3, 4),
        topk_ids: I32,
        top_k: 2,
        num_experts: 5,
        out: view(OUT, 6, 4),
        order: I32_B,
        expert_offsets: I32_C,
    }
}

fn combine() -> Combine {
    Combine {
        x: view(X, 6, 4),
        order: I32,
        topk_weights: LSE,
        top_k: 2,
        shared: Some(view(Y, 3, 4)),
        out: view(OUT, 3, 4),
    }
}

fn sample(params: SampleParams) -> Sample {
    let row = SampleRow {
        params: Arc::new(params),
        position: 1,
        tokens: Arc::from([1u32]),
        prompt_len: 1,
    };
    Sample {
        logits: view(X, 1, 8),
        rows: vec![row],
        max_top: 2,
        tokens: I32,
        logprob: OUT,
        top_ids: I32_B,
        top_logprobs: LSE,
    }
}

fn tag_check() -> PageTagCheck {
    PageTagCheck {
        cache: CACHE,
        block_table: I32,
        expected: U64,
        num_pages: I32,
        num_seqs: 2,
        max_pages_per_seq: 2,
        mismatch: I32_B,
        cu_seqlens_q: I32,
        num_tokens: 2,
        slot_mapping: I64,
    }
}

fn digest(page: u32, valid_tokens: u32) -> PageDigest {
    let key = DigestKey { owner: 1, generation: 1, logical_page: 0, valid_tokens };
    PageDigest { cache: CACHE, page, key, digests: U64 }
}

fn amax() -> KvAmax {
    KvAmax { cache: CACHE, page: 2, valid_tokens: 4, amax: OUT }
}

fn convert() -> KvConvert {
    KvConvert {
        cache: CACHE,
        page: 2,
        valid_tokens: 4,
        target: kv("fp8_e4m3"),
        target_scales: X,
        out: BYTES,
        saturated: U32,
    }
}

fn embedding() -> Embedding {
    Embedding { ids: I32, table: SQUARE, out: view(OUT, 3, 4) }
}

fn linear() -> Linear {
    Linear { x: view(X, 3, 4), weight: SQUARE, out: view(OUT, 3, 4) }
}

fn feed() -> FeedTokens {
    FeedTokens { sampled: I32, num_rows: 2, source: I32_B, ids: I32_C, num_tokens: 3 }
}

fn gather() -> GatherRows {
    GatherRows { x: view(X, 3, 4), rows: I32, out: view(OUT, 2, 4) }
}

fn swiglu() -> SwiGlu {
    SwiGlu { gate: view(X, 3, 4), up: view(Y, 3, 4), out: view(OUT, 3, 4) }
}

fn check(launch: &Launch) -> Result<(), PlanError> {
    launch.check(&device())
}

fn check_params(params: SampleParams) -> Launch {
    Launch::Sample(sample(params))
}

#[test]
fn plans_that_fit_pass() {
    use Launch as L;
    let launches = [
        L::FeedTokens(feed()),
        L::Embedding(embedding()),
        L::RmsNorm(norm()),
        L::Linear(linear()),
        L::GroupedLinear(grouped()),
        L::Rope(rope()),
        L::KvWrite(kv_write()),
        L::MlaPrefill(prefill()),
        L::AbsorbQuery(absorb_query()),
        L::MlaDecode(decode()),
        L::AbsorbValue(absorb_value()),
        L::SwiGlu(swiglu()),
        L::Router(router()),
        L::Permute(permute()),
        L::Combine(combine()),
        L::GatherRows(gather()),
        L::Sample(sample(SampleParams::default())),
        L::PageTagCheck(tag_check()),
        L::PageDigest(digest(2, 4)),
        L::KvAmax(amax()),
        L::KvConvert(convert()),
    ];
    for launch in launches {
        assert_eq!(check(&launch), Ok(()), "{launch:?}");
    }
}

fn refused(launch: &Launch, want: (&str, &str)) {
    let error = check(launch).expect_err(&format!("{launch:?} should not fit"));
    assert_eq!(named(&error), want, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{}: `{}` ", want.0, want.1)), "{text}");
}

#[test]
fn plans_of_rows_that_do_not_fit_are_refused() {
    use Launch as L;
    let wide = view(OUT, 3, 5);
    let cases = [
        (L::FeedTokens(FeedTokens { sampled: SHORT, ..feed() }), ("feed_tokens", "sampled")),
        (L::FeedTokens(FeedTokens { source: I64, ..feed() }), ("feed_tokens", "source")),
        (L::FeedTokens(FeedTokens { ids: SHORT, ..feed() }), ("feed_tokens", "ids")),
        (L::FeedTokens(FeedTokens { ids: I32, ..feed() }), ("feed_tokens", "ids")),
        (L::Embedding(Embedding { table: NO_WEIGHT, ..embedding() }), ("embedding", "table")),
        (L::Embedding(Embedding { out: wide, ..embedding() }), ("embedding", "out")),
        (L::Embedding(Embedding { ids: I64, ..embedding() }), ("embedding", "ids")),
        (L::RmsNorm(RmsNorm { x: view(U32, 3, 4), ..norm() }), ("rms_norm", "x")),
        (L::RmsNorm(RmsNorm { out: wide, ..norm() }), ("rms_norm", "out")),
        (L::RmsNorm(RmsNorm { out: view(X, 3, 4), ..norm() }), ("rms_norm", "out")),
        (L::RmsNorm(RmsNorm { residual: Some(wide), ..norm() }), ("rms_norm", "residual")),
        (L::RmsNorm(RmsNorm { weight: SHORT, ..norm() }), ("rms_norm", "weight")),
        (L::Linear(Linear { weight: NO_WEIGHT, ..linear() }), ("linear", "weight")),
        (L::Linear(Linear { x: view(X, 3, 5), ..linear() }), ("linear", "x")),
        (L::Linear(Linear { x: view(SHORT, 3, 4), ..linear() }), ("linear", "x")),
        (L::Linear(Linear { out: view(OUT, 2, 4), ..linear() }), ("linear", "out")),
        (L::Linear(Linear { out: view(X, 3, 4), ..linear() }), ("linear", "out")),
        (
            L::GroupedLinear(GroupedLinear { weights: [].into(), ..grouped() }),
            ("grouped_linear", "weights"),
        ),
        (
            L::GroupedLinear(GroupedLinear { weights: [SQUARE, KV_B].into(), ..grouped() }),
            ("grouped_linear", "weights"),
        ),
        (
            L::GroupedLinear(GroupedLinear { expert_offsets: U32, ..grouped() }),
            ("grouped_linear", "expert_offsets"),
        ),
        (L::Rope(Rope { rope_dim: 3, ..rope() }), ("rope", "rope_dim")),
        (L::Rope(Rope { num_heads: 0, ..rope() }), ("rope", "num_heads")),
        (L::Rope(Rope { head_stride: 1, ..rope() }), ("rope", "head_stride")),
        (L::Rope(Rope { num_heads: 3, ..rope() }), ("rope", "x")),
        (
            L::Rope(Rope { rotation: Rotation { inv_freq: I32, ..ROTATION }, ..rope() }),
            ("rope", "inv_freq"),
        ),
        (L::SwiGlu(SwiGlu { up: view(Y, 2, 4), ..swiglu() }), ("swiglu", "up")),
        (L::SwiGlu(SwiGlu { out: view(Y, 3, 4), ..swiglu() }), ("swiglu", "out")),
        (L::GatherRows(GatherRows { rows: SHORT, ..gather() }), ("gather_rows", "rows")),
        (L::GatherRows(GatherRows { out: wide, ..gather() }), ("gather_rows", "out")),
    ];
    for (launch, want) in cases {
        refused(&launch, want);
    }
}

#[test]
fn views_that_leave_their_buffer_are_refused() {
    for x in [
        RowView { offset: 53, ..view(X, 3, 4) },
        RowView { stride: 31, ..view(X, 3, 4) },
        RowView { stride: 3, ..view(X, 3, 4) },
        RowView { stride: usize::MAX, ..view(X, 3, 4) },
        RowView { offset: usize::MAX, ..view(X, 3, 4) },
        view(NONE, 3, 4),
    ] {
        refused(&Launch::Linear(Linear { x, ..linear() }), ("linear", "x"));
    }
    for x in [RowView { offset: 52, ..view(X, 3, 4) }, RowView { stride: 30, ..view(X, 3, 4) }] {
        assert_eq!(check(&Launch::Linear(Linear { x, ..linear() })), Ok(()));
    }
}

#[test]
fn plans_of_experts_and_samples_that_do_not_fit_are_refused() {
    use Launch as L;
    let params = SampleParams::default;
    let cases = [
        (L::Router(Router { num_groups: 3, ..router() }), ("router", "num_groups")),
        (L::Router(Router { num_groups: 0, ..router() }), ("router", "num_groups")),
        (L::Router(Router { topk_groups: 5, ..router() }), ("router", "topk_groups")),
        (L::Router(Router { top_k: 5, ..router() }), ("router", "top_k")),
        (L::Router(Router { topk_ids: OUT, ..router() }), ("router", "topk_ids")),
        (L::Router(Router { topk_weights: X, ..router() }), ("router", "topk_weights")),
        (L::Permute(Permute { top_k: 0, ..permute() }), ("permute", "top_k")),
        (L::Permute(Permute { top_k: usize::MAX, ..permute() }), ("permute", "out")),
        (L::Permute(Permute { num_experts: 64, ..permute() }), ("permute", "expert_offsets")),
        (L::Permute(Permute { order: I32, ..permute() }), ("permute", "order")),
        (L::Combine(Combine { top_k: 0, ..combine() }), ("combine", "top_k")),
        (L::Combine(Combine { x: view(X, 5, 4), ..combine() }), ("combine", "x")),
        (L::Combine(Combine { shared: Some(view(Y, 3, 3)), ..combine() }), ("combine", "shared")),
        (L::Combine(Combine { order: X, ..combine() }), ("combine", "order")),
        (L::Combine(Combine { topk_weights: SHORT, ..combine() }), ("combine", "topk_weights")),
        (L::Sample(Sample { rows: vec![], ..sample(params()) }), ("sample", "logits")),
        (L::Sample(Sample { tokens: OUT, ..sample(params()) }), ("sample", "tokens")),
        (L::Sample(Sample { max_top: 65, ..sample(params()) }), ("sample", "top_ids")),
        (check_params(SampleParams { top_p: 1.5, ..params() }), ("sample", "top_p")),
        (
            check_params(SampleParams { top_logprobs: Some(3), ..params() }),
            ("sample", "top_logprobs"),
        ),
    ];
    for (launch, want) in cases {
        refused(&launch, want);
    }
}

#[test]
fn plans_of_attention_that_do_not_fit_are_refused() {
    use Launch as L;
    let no_heads = MlaDims { num_heads: 0, ..DIMS };
    let table = PagedBatch { block_table: OUT, ..BATCH };
    let long = PagedBatch { max_pages_per_seq: 33, ..BATCH };
    let cases = [
        (L::MlaPrefill(MlaPrefill { dims: no_heads, ..prefill() }), ("mla_prefill", "num_heads")),
        (L::MlaPrefill(MlaPrefill { q: view(X, 3, 9), ..prefill() }), ("mla_prefill", "q")),
        (L::MlaPrefill(MlaPrefill { kv_b: SQUARE, ..prefill() }), ("mla_prefill", "kv_b")),
        (L::MlaPrefill(MlaPrefill { layer: 2, ..prefill() }), ("mla_prefill", "layer")),
        (L::MlaPrefill(MlaPrefill { cache: NO_CACHE, ..prefill() }), ("mla_prefill", "cache")),
        (L::MlaPrefill(MlaPrefill { batch: table, ..prefill() }), ("mla_prefill", "block_table")),
        (L::MlaDecode(MlaDecode { batch: long, ..decode() }), ("mla_decode", "block_table")),
        (L::MlaDecode(MlaDecode { ql_nope: view(Y, 3, 7), ..decode() }), ("mla_decode", "ql_nope")),
        (L::MlaDecode(MlaDecode { lse: view(OUT, 3, 2), ..decode() }), ("mla_decode", "lse")),
        (L::AbsorbQuery(AbsorbQuery { kv_b: SQUARE, ..absorb_query() }), ("absorb_query", "kv_b")),
        (
            L::AbsorbValue(AbsorbValue { out: view(OUT, 3, 9), ..absorb_value() }),
            ("absorb_value", "out"),
        ),
    ];
    for (launch, want) in cases {
        refused(&launch, want);
    }
}

#[test]
fn plans_of_the_cache_that_do_not_fit_are_refused() {
    use Launch as L;
    let cases = [
        (L::KvWrite(KvWrite { layer: 2, ..kv_write() }), ("kv_write", "layer")),
        (L::KvWrite(KvWrite { k_pe: view(Y, 3, 4), ..kv_write() }), ("kv_write", "cache")),
        (L::KvWrite(KvWrite { slot_mapping: I32, ..kv_write() }), ("kv_write", "slot_mapping")),
        (
            L::PageTagCheck(PageTagCheck { cache: NO_CACHE, ..tag_check() }),
            ("page_tag_check", "cache"),
        ),
        (
            L::PageTagCheck(PageTagCheck { expected: U32, ..tag_check() }),
            ("page_tag_check", "expected"),
        ),
        (
            L::PageTagCheck(PageTagCheck { num_seqs: usize::MAX, ..tag_check() }),
            ("page_tag_check", "block_table"),
        ),
        (
            L::PageTagCheck(PageTagCheck { mismatch: I32, ..tag_check() }),
            ("page_tag_check", "mismatch"),
        ),
        (L::PageDigest(digest(3, 4)), ("page_digest", "page")),
        (L::PageDigest(digest(2, 5)), ("page_digest", "valid_tokens")),
        (L::PageDigest(PageDigest { digests: I64, ..digest(2, 4) }), ("page_digest", "digests")),
        (L::KvAmax(KvAmax { page: 3, ..amax() }), ("kv_amax", "page")),
        (L::KvAmax(KvAmax { amax: SHORT, ..amax() }), ("kv_amax", "amax")),
        (L::KvConvert(KvConvert { valid_tokens: 5, ..convert() }), ("kv_convert", "valid_tokens")),
        // Two layers of four tokens of six elements of two bytes are 96 bytes, not 64.
        (L::KvConvert(KvConvert { target: kv("bf16"), ..convert() }), ("kv_convert", "out")),
        (L::KvConvert(KvConvert { saturated: U64, ..convert() }), ("kv_convert", "saturated")),
        (L::KvConvert(KvConvert { saturated: SHORT, ..convert() }), ("kv_convert", "saturated")),
    ];
    for (launch, want) in cases {
        refused(&launch, want);
    }
}
