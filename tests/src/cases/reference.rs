//! The ops' own references, called with the arguments of a kernel.
//!
//! They are written in another form, by hand and in f32, so that a kernel that says the wrong thing
//! is found even where every executor runs it faithfully.

use super::Built;
use tessera_kernels::formats::KvFormat;
use tessera_kernels::launch::{BufferId, CacheId, CacheSpec, RowView, WeightId};
use tessera_kernels::ops::attention::BatchIndex;
use tessera_kernels::ops::cache::CacheView;
use tessera_kernels::ops::combine::{Combine, CombineInputs};
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::FeedTokens;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::{GroupedLinear, Linear};
use tessera_kernels::ops::mla_decode::{DecodeInputs, MlaDecode};
use tessera_kernels::ops::mla_prefill::{MlaDims, PagedBatch};
use tessera_kernels::ops::page_digest::{DigestKey, digest_layer};
use tessera_kernels::ops::page_tag_check::{PageTagCheck, TagInputs};
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::rope::{Rope, Rotation};
use tessera_kernels::ops::router::Router;
use tessera_kernels::ops::swiglu::SwiGlu;
use tessera_kernels::ops::{Rows, RowsMut};
use tessera_tile_ir::eval::{Arg, Array, Data};
use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Elem, Kernel, ParamKind};

const ANY: BufferId = BufferId(0);

/// Runs the reference of a kernel's op in place of the kernel; false where none has its form.
pub fn reference(kernel: &Kernel, built: &mut Built) -> bool {
    match kernel.name.as_str() {
        "rms_norm" | "add_rms_norm" => rms_norm(built),
        "swiglu" => swiglu(built),
        "rope" => rope(built),
        "w_gemm" => linear(built),
        "w_gemm_grouped" => grouped(built),
        "router" => router(built),
        "permute_order" => permute(built),
        "combine" | "combine_shared" => combine(kernel, built),
        "feed_tokens" => feed(built),
        "gather_rows" => gather(built),
        "embedding" => embedding(built),
        "page_tag_check" => page_tag_check(built),
        "page_digest" => page_digest(built),
        "mla_decode" => return mla_decode(kernel, built),
        _ => return false,
    }
    true
}

macro_rules! typed {
    ($($get:ident $set:ident $variant:ident $ty:ty;)*) => {$(
        fn $get(built: &Built, name: &str) -> Vec<$ty> {
            match built.arg(name) {
                Arg::Array(Array { data: Data::$variant(values), .. }) => values.clone(),
                other => panic!("`{name}` is {other:?}"),
            }
        }

        fn $set(built: &mut Built, name: &str, new: Vec<$ty>) {
            let index = built.index(name);
            match &mut built.args.0[index] {
                Arg::Array(Array { data: Data::$variant(values), .. }) => *values = new,
                other => panic!("`{name}` is {other:?}"),
            }
        }
    )*};
}

typed! {
    f32s set_f32s F32 f32;
    i32s set_i32s I32 i32;
    i64s set_i64s I64 i64;
    u64s set_u64s U64 u64;
}

fn dims(built: &Built, name: &str) -> Vec<usize> {
    match built.arg(name) {
        Arg::Array(array) => array.dims.clone(),
        Arg::Scalar(_) => Vec::new(),
    }
}

/// An array as rows of its last axis.
fn view(built: &Built, name: &str) -> RowView {
    let dims = dims(built, name);
    let (cols, rows) = dims.split_last().expect("an array has an axis");
    RowView::contiguous(ANY, rows.iter().product(), *cols)
}

#[expect(clippy::cast_possible_truncation, reason = "cases hold what fits")]
fn float(built: &Built, name: &str) -> f32 {
    match built.arg(name) {
        Arg::Scalar(Literal::Float(value)) => *value as f32,
        other => panic!("`{name}` is {other:?}"),
    }
}

fn int(built: &Built, name: &str) -> i64 {
    match built.arg(name) {
        Arg::Scalar(Literal::Int(value)) => *value,
        other => panic!("`{name}` is {other:?}"),
    }
}

fn size(built: &Built, name: &str) -> usize {
    usize::try_from(int(built, name)).expect("a size")
}

fn rms_norm(built: &mut Built) {
    let (x, weight) = (f32s(built, "x"), f32s(built, "weight"));
    let adds = built.names.iter().any(|name| name == "residual");
    let shape = view(built, "x");
    let op = RmsNorm {
        x: shape,
        residual: adds.then_some(shape),
        weight: ANY,
        eps: float(built, "eps"),
        out: shape,
    };
    let mut residual = if adds { f32s(built, "residual") } else { Vec::new() };
    let mut out = f32s(built, "out");
    let sums = adds.then(|| RowsMut::contiguous(&mut residual, shape.cols));
    let rows = RowsMut::contiguous(&mut out, shape.cols);
    op.reference(Rows::contiguous(&x, shape.cols), sums, &weight, rows);
    set_f32s(built, "out", out);
    if adds {
        set_f32s(built, "residual", residual);
    }
}

fn swiglu(built: &mut Built) {
    let shape = view(built, "gate");
    let (gate, up, mut out) = (f32s(built, "gate"), f32s(built, "up"), f32s(built, "out"));
    let rows = |values| Rows::contiguous(values, shape.cols);
    let op = SwiGlu { gate: shape, up: shape, out: shape };
    op.reference(rows(&gate), rows(&up), RowsMut::contiguous(&mut out, shape.cols));
    set_f32s(built, "out", out);
}

fn rope(built: &mut Built) {
    let dims = dims(built, "x");
    let (num_heads, rope_dim) = (dims[1], dims[2]);
    let mut x = f32s(built, "x");
    let op = Rope {
        x: RowView::contiguous(ANY, dims[0], num_heads * rope_dim),
        num_heads,
        head_stride: rope_dim,
        rope_dim,
        rotation: Rotation {
            positions: ANY,
            inv_freq: ANY,
            magnitude: float(built, "magnitude"),
            // Of a single pair, neighbours are halves.
            interleaved: int(built, "pair_stride") == 2,
        },
    };
    let rows = RowsMut::contiguous(&mut x, num_heads * rope_dim);
    op.reference(rows, &i32s(built, "positions"), &f32s(built, "inv_freq"));
    set_f32s(built, "x", x);
}

fn linear(built: &mut Built) {
    let (x, y) = (view(built, "x"), view(built, "y"));
    let (input, mut out) = (f32s(built, "x"), f32s(built, "y"));
    let weight = built.weights[built.index("w")].clone().expect("a weight");
    let op = Linear { x, weight: WeightId(0), out: y };
    let rows = RowsMut::contiguous(&mut out, y.cols);
    op.reference(Rows::contiguous(&input, x.cols), &weight.parts[0], rows);
    set_f32s(built, "y", out);
}

fn grouped(built: &mut Built) {
    let (x, y) = (view(built, "x"), view(built, "y"));
    let (input, mut out) = (f32s(built, "x"), f32s(built, "y"));
    let weight = built.weights[built.index("w")].clone().expect("a weight");
    let ids = (0..).map(WeightId).take(weight.parts.len()).collect();
    let op = GroupedLinear { x, weights: ids, expert_offsets: ANY, out: y };
    let parts: Vec<_> = weight.parts.iter().collect();
    let rows = RowsMut::contiguous(&mut out, y.cols);
    let offsets = i32s(built, "expert_offsets");
    let done = op.reference(Rows::contiguous(&input, x.cols), &parts, &offsets, rows);
    done.expect("offsets that the kernel took");
    set_f32s(built, "y", out);
}

fn router(built: &mut Built) {
    let shape = view(built, "logits");
    let logits = f32s(built, "logits");
    let (mut ids, mut weights) = (i32s(built, "topk_ids"), f32s(built, "topk_weights"));
    let op = Router {
        logits: shape,
        bias: ANY,
        top_k: dims(built, "topk_ids")[1],
        num_groups: size(built, "num_groups"),
        topk_groups: size(built, "topk_groups"),
        norm_topk_prob: int(built, "norm_topk_prob") == 1,
        routed_scaling_factor: float(built, "routed_scaling_factor"),
        topk_ids: ANY,
        topk_weights: ANY,
    };
    let rows = Rows::contiguous(&logits, shape.cols);
    op.reference(rows, &f32s(built, "bias"), &mut ids, &mut weights);
    set_i32s(built, "topk_ids", ids);
    set_f32s(built, "topk_weights", weights);
}

fn permute(built: &mut Built) {
    let ids = i32s(built, "topk_ids");
    let (mut order, mut offsets) = (i32s(built, "order"), i32s(built, "expert_offsets"));
    let rows = RowView::contiguous(ANY, ids.len(), 1);
    let op = Permute {
        x: rows,
        topk_ids: ANY,
        top_k: 1,
        num_experts: offsets.len() - 1,
        out: rows,
        order: ANY,
        expert_offsets: ANY,
    };
    let (x, mut out) = (vec![0.0; ids.len()], vec![0.0; ids.len()]);
    let (x, rows) = (Rows::contiguous(&x, 1), RowsMut::contiguous(&mut out, 1));
    op.reference((x, &ids), rows, &mut order, &mut offsets).expect("experts that exist");
    let mut row_of = vec![0; ids.len()];
    for (row, &choice) in (0..).zip(&order) {
        row_of[usize::try_from(choice).expect("a choice")] = row;
    }
    set_i32s(built, "order", order);
    set_i32s(built, "row_of", row_of);
    set_i32s(built, "expert_offsets", offsets);
}

fn combine(kernel: &Kernel, built: &mut Built) {
    let (x, out) = (view(built, "x"), view(built, "out"));
    let row_of = i32s(built, "row_of");
    let mut order = vec![0; row_of.len()];
    for (choice, &row) in (0..).zip(&row_of) {
        order[usize::try_from(row).expect("a row")] = choice;
    }
    let top_k = dims(built, "row_of")[1];
    let shared = (kernel.name == "combine_shared").then(|| f32s(built, "shared"));
    let shared_view = shared.as_ref().map(|_| out);
    let op = Combine { x, order: ANY, topk_weights: ANY, top_k, shared: shared_view, out };
    let (values, weights) = (f32s(built, "x"), f32s(built, "topk_weights"));
    let inputs = CombineInputs {
        x: Rows::contiguous(&values, x.cols),
        order: &order,
        topk_weights: &weights,
        shared: shared.as_ref().map(|shared| Rows::contiguous(shared, out.cols)),
    };
    let mut result = f32s(built, "out");
    op.reference(&inputs, RowsMut::contiguous(&mut result, out.cols)).expect("a permutation");
    set_f32s(built, "out", result);
}

fn feed(built: &mut Built) {
    let (sampled, source, mut ids) =
        (i32s(built, "sampled"), i32s(built, "source"), i32s(built, "ids"));
    let (num_rows, num_tokens) = (sampled.len(), source.len());
    let op = FeedTokens { sampled: ANY, num_rows, source: ANY, ids: ANY, num_tokens };
    op.reference(&sampled, &source, &mut ids).expect("rows that were sampled");
    set_i32s(built, "ids", ids);
}

fn gather(built: &mut Built) {
    let (x, out) = (view(built, "x"), view(built, "out"));
    let (values, mut result) = (f32s(built, "x"), f32s(built, "out"));
    let op = GatherRows { x, rows: ANY, out };
    let rows = RowsMut::contiguous(&mut result, out.cols);
    let done = op.reference(Rows::contiguous(&values, x.cols), &i32s(built, "rows"), rows);
    done.expect("rows that exist");
    set_f32s(built, "out", result);
}

fn embedding(built: &mut Built) {
    let out = view(built, "out");
    let table = built.weights[built.index("table")].clone().expect("a weight");
    let op = Embedding { ids: ANY, table: WeightId(0), out };
    let mut result = f32s(built, "out");
    let rows = RowsMut::contiguous(&mut result, out.cols);
    op.reference(&i32s(built, "ids"), &table.parts[0], rows).expect("tokens that exist");
    set_f32s(built, "out", result);
}

fn page_tag_check(built: &mut Built) {
    let table = dims(built, "block_table");
    let (mut mismatch, mut slots) = (i32s(built, "mismatch"), i64s(built, "slot_mapping"));
    let op = PageTagCheck {
        cache: CacheId(0),
        block_table: ANY,
        expected: ANY,
        num_pages: ANY,
        num_seqs: table[0],
        max_pages_per_seq: table[1],
        mismatch: ANY,
        cu_seqlens_q: ANY,
        num_tokens: slots.len(),
        slot_mapping: ANY,
    };
    let inputs = TagInputs {
        tags: &u64s(built, "tags"),
        block_table: &i32s(built, "block_table"),
        expected: &u64s(built, "expected"),
        num_pages: &i32s(built, "num_pages"),
        cu_seqlens_q: &i32s(built, "cu_seqlens_q"),
    };
    op.reference(&inputs, &mut mismatch, &mut slots).expect("pages that the kernel took");
    set_i32s(built, "mismatch", mismatch);
    set_i64s(built, "slot_mapping", slots);
}

fn page_digest(built: &mut Built) {
    let place = int(built, "place").cast_unsigned();
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("a half");
    let key = DigestKey {
        owner: int(built, "owner").cast_unsigned(),
        generation: int(built, "generation").cast_unsigned(),
        logical_page: half(place >> 32),
        valid_tokens: half(place),
    };
    let words = u64s(built, "words");
    let per_layer = dims(built, "words")[1];
    let (scales, valid) = (f32s(built, "k_scale"), size(built, "valid_bytes"));
    let digest = |(layer, words): (usize, &[u64])| {
        let codes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        digest_layer(&key, layer, scales[layer], &codes[..valid])
    };
    set_u64s(built, "digests", words.chunks(per_layer).enumerate().map(digest).collect());
}

/// The reference attends over all tokens at once, so it stands for the kernel where there is one
/// part.
fn mla_decode(kernel: &Kernel, built: &mut Built) -> bool {
    let (latent, rope) = (dims(built, "ql_nope"), dims(built, "q_pe"));
    let (tokens, num_heads, rank) = (latent[0], latent[1], latent[2]);
    if dims(built, "out")[0] != 1 {
        return false;
    }
    let mla = MlaDims {
        num_heads,
        kv_lora_rank: rank,
        qk_nope_head_dim: 0,
        qk_rope_head_dim: rope[2],
        v_head_dim: 1,
    };
    let ckv = kernel.params.iter().find(|param| param.name == "ckv_cache");
    let Some(ParamKind::View { elem: Elem::Stored(element), .. }) = ckv.map(|p| &p.kind) else {
        return false;
    };
    let formats = tessera_kernels::formats::KV_FORMATS;
    let format: Option<&'static KvFormat> = formats.iter().find(|f| f.element == *element);
    let Some(format) = format else { return false };
    let (table, num_pages) = (dims(built, "block_table"), dims(built, "k_scale")[0]);
    let page_size = size(built, "page_size");
    let entry = mla.entry();
    let spec = CacheSpec { format, num_layers: 1, num_pages, page_size, entry };
    let data = interleave(&codes(built, "ckv_cache"), &codes(built, "kpe_cache"), &spec, rank);
    let view = |cols| RowView::contiguous(ANY, tokens, cols);
    let batch = PagedBatch {
        num_seqs: table[0],
        max_pages_per_seq: table[1],
        block_table: ANY,
        seq_lens: ANY,
        cu_seqlens_q: ANY,
    };
    let op = MlaDecode {
        dims: mla,
        ql_nope: view(num_heads * rank),
        q: view(num_heads * rope[2]),
        cache: CacheId(0),
        layer: 0,
        batch,
        softmax_scale: float(built, "softmax_scale"),
        out: view(num_heads * rank),
        lse: view(num_heads),
    };
    let (ql_nope, q) = (f32s(built, "ql_nope"), f32s(built, "q_pe"));
    let inputs = DecodeInputs {
        ql_nope: Rows::contiguous(&ql_nope, num_heads * rank),
        q: Rows::contiguous(&q, num_heads * rope[2]),
        cache: CacheView { spec, data: &data, scales: &f32s(built, "k_scale") },
        index: BatchIndex {
            block_table: &i32s(built, "block_table"),
            seq_lens: &i32s(built, "seq_lens"),
            cu_seqlens_q: &i32s(built, "cu_seqlens_q"),
            batch,
        },
    };
    let (mut out, mut lse) = (f32s(built, "out"), f32s(built, "lse"));
    let rows = RowsMut::contiguous(&mut out, num_heads * rank);
    let done = op.reference(&inputs, rows, RowsMut::contiguous(&mut lse, num_heads));
    done.expect("a batch that the kernel took");
    set_f32s(built, "out", out);
    set_f32s(built, "lse", lse);
    true
}

fn codes(built: &Built, name: &str) -> Vec<u8> {
    match built.arg(name) {
        Arg::Array(Array { data: Data::Stored(bytes), .. }) => bytes.clone(),
        other => panic!("`{name}` is {other:?}"),
    }
}

/// Cache entries from their two parts.
fn interleave(latent: &[u8], rope: &[u8], spec: &CacheSpec, rank: usize) -> Vec<u8> {
    let bytes = spec.format.element_bytes();
    let (wide, narrow) = (rank * bytes, (spec.entry - rank) * bytes);
    let entries = latent.chunks(wide).zip(rope.chunks(narrow));
    entries.flat_map(|(latent, rope)| [latent, rope].concat()).collect()
}
