//! What is modelled: launches of a serving step, and the part of each that the emulator runs.

use crate::cases::{Case, Fill, Seeded};
use std::collections::BTreeMap;
use toml::Value;

/// A launch, and a case whose programs stand for its own.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What it is.
    pub name: String,
    /// How large it is.
    pub shape: String,
    /// How the label of its variant begins.
    pub kernel: &'static str,
    /// What the emulator runs.
    pub case: Case,
    /// Programs of the launch: all do what those of the case do.
    pub programs: u64,
    /// How many weights like the case's it reads.
    pub weights: u64,
    /// Bytes that any way to compute it moves at least, weights apart.
    pub least_bytes: u64,
    /// Bytes that this launch moves if it moves each once, weights apart.
    pub launch_bytes: u64,
    /// Multiplications and additions.
    pub flop: u64,
    /// What of the kernel's design the gap comes from, as its code and its counts say.
    pub why: &'static str,
}

const WHY_MLA: &str = "Queries and softmax weights are f32, three BF16 parts each: three products \
    for one. Cached codes are widened to BF16 by way of f16, four machine instructions a pair, once \
    for each of the two products and in each of the four programs that share a cache entry.";
const WHY_MLA_BF16: &str = "Queries and softmax weights are f32, three BF16 parts each: three \
    products for one. What they multiply is read from shared memory once for each product.";
const WHY_GROUPED: &str = "`x` is 16-bit integers in two BF16 parts, padded to eight rows, so that \
    one row costs what eight do, and is quantized by every program anew. Every group of 32 columns \
    has its own sums, which its scales multiply.";
const WHY_GEMM: &str = "`x` is f32, three BF16 parts, made anew by every program that multiplies \
    it: three products for one.";
const WHY_PREFILL: &str = "Queries, keys, values and softmax weights are f32, three BF16 parts \
    each: six products for one.";
const WHY_TAGS: &str = "The floor is shorter than one access of memory. What a GPU takes is the \
    launch and three loads that wait for each other, neither of which is modelled; 64 programs of \
    one warp leave most of it idle.";

const HEADS: u64 = 128;
const HEADS_OF_PROGRAM: u64 = 32;
const RANK: u64 = 512;
const ROPE: u64 = 64;
const CONTEXT: u64 = 4096;
const SEQUENCES: u64 = 16;
const PAGE: u64 = 64;

/// All of them.
pub fn workloads() -> Vec<Workload> {
    let mut all = vec![
        mla_decode("mla_decode<e4m3>[DC=512", "FP8", 1, CONTEXT / 512),
        mla_decode("mla_decode<e4m3>[DC=512", "FP8", 1, 1),
        mla_decode("mla_decode<bf16>[DC=512", "BF16", 2, CONTEXT / 512),
    ];
    all.extend([1, 2, 4, 8, 64].map(w_gemm_grouped));
    all.push(w_gemm());
    all.push(mla_prefill());
    all.push(page_tag_check());
    all
}

/// One step of decoding, 16 sequences of 4096 tokens, in parts as the runtime makes them or whole.
fn mla_decode(kernel: &'static str, cache: &str, element: u64, parts: u64) -> Workload {
    let tokens = CONTEXT / parts;
    let pages = tokens / PAGE;
    let rows = SEQUENCES * HEADS;
    let out = rows * (RANK + 1) * 4;
    let read = SEQUENCES * CONTEXT * (RANK + ROPE) * element
        + rows * (RANK + ROPE) * 4
        + SEQUENCES * CONTEXT / PAGE * 8;
    let mut case = case("mla_decode", "a part of one sequence, one program");
    case.dims = extents(&[
        ("T", 1),
        ("H", HEADS_OF_PROGRAM),
        ("RANK", RANK),
        ("ROPE", ROPE),
        ("SLOTS", tokens),
        ("PAGES", pages),
        ("S", 1),
        ("MAX_PAGES", pages),
        ("PARTS", 1),
    ]);
    let scalars = [("page_size", PAGE), ("split_tokens", tokens)];
    case.scalars = scalars.map(|(name, value)| (name.to_owned(), int(value))).into();
    case.scalars.insert("softmax_scale".to_owned(), Value::Float(0.1));
    case.arrays = [
        ("k_scale", Fill::List(vec![Value::Float(1.0); usize::try_from(pages).unwrap_or(0)])),
        // From the last page to the first, as after many turns.
        ("block_table", Fill::List((0..pages).rev().map(int).collect())),
        ("seq_lens", Fill::List(vec![int(tokens)])),
        ("cu_seqlens_q", Fill::List(vec![int(0), int(1)])),
    ]
    .map(|(name, fill)| (name.to_owned(), fill))
    .into();
    let split = if parts == 1 { "whole".to_owned() } else { format!("{parts} parts") };
    Workload {
        name: format!("{cache} MLA decode, {split}"),
        shape: format!("{SEQUENCES} sequences of {CONTEXT} tokens, {HEADS} heads"),
        kernel,
        case,
        programs: SEQUENCES * (HEADS / HEADS_OF_PROGRAM) * parts,
        weights: 0,
        least_bytes: read + out,
        launch_bytes: read + out * parts,
        flop: 2 * rows * CONTEXT * (2 * RANK + ROPE),
        why: if element == 1 { WHY_MLA } else { WHY_MLA_BF16 },
    }
}

/// Weights of a projection.
const K: u64 = 7168;
const N: u64 = 2048;
/// Rows of weights of a program, for few rows of `x` and for many, and then rows of `x`.
const ROWS_OF_PROGRAM: u64 = 64;
const ROWS_OF_LARGE: u64 = 128;
const BLOCK: u64 = 64;
/// Rows of an expert from which on there are many.
const MANY: u64 = 32;

/// A projection of 64 chosen experts, some rows each.
fn w_gemm_grouped(rows: u64) -> Workload {
    const EXPERTS: u64 = 64;
    let own = if rows < MANY { ROWS_OF_PROGRAM } else { ROWS_OF_LARGE };
    let mut case = case("w_gemm_grouped", "rows of one expert, one program");
    case.dims = extents(&[("M", rows), ("N", own), ("K", K), ("E", 1)]);
    case.arrays = [("expert_offsets".to_owned(), Fill::List(vec![int(0), int(rows)]))].into();
    let bytes = EXPERTS * rows * (K + N) * 4;
    Workload {
        name: format!("INT4 grouped GEM{}, rows: {rows}", if rows > 8 { 'M' } else { 'V' }),
        shape: format!("{EXPERTS} chosen experts, K = {K}, N = {N}, {rows} rows each"),
        kernel: match rows {
            ..MANY => "w_gemm_grouped<int4-g32>[ROWS=64",
            _ => "w_gemm_grouped<int4-g32>[ROWS=128",
        },
        case,
        programs: EXPERTS * N / own,
        weights: EXPERTS * N / own,
        least_bytes: bytes,
        launch_bytes: bytes,
        flop: 2 * EXPERTS * rows * N * K,
        why: WHY_GROUPED,
    }
}

/// A projection of a chunk of a prompt.
fn w_gemm() -> Workload {
    const TOKENS: u64 = 2048;
    // The fewest that the variant is for.
    const LEAST: u64 = 256;
    let mut case = case("w_gemm", "the programs of some weight rows");
    case.dims = extents(&[("M", LEAST), ("N", ROWS_OF_LARGE), ("K", K)]);
    let bytes = TOKENS * (K + N) * 4;
    Workload {
        name: "FP8 GEMM".to_owned(),
        shape: format!("{TOKENS} rows, K = {K}, N = {N}"),
        kernel: "w_gemm<fp8-128x128>[ROWS=128",
        case,
        programs: TOKENS / BLOCK * N / ROWS_OF_LARGE,
        weights: N / ROWS_OF_LARGE,
        // The weights of the case's program are counted for all of them.
        least_bytes: bytes,
        launch_bytes: bytes,
        flop: 2 * TOKENS * N * K,
        why: WHY_GEMM,
    }
}

/// Attention of a chunk of a prompt whose first keys are its own.
fn mla_prefill() -> Workload {
    const TOKENS: u64 = 2048;
    const QUERIES: u64 = 64;
    const NOPE: u64 = 128;
    const V: u64 = 128;
    // The program in the middle sees half of the keys, as programs do on average.
    let seen = TOKENS / 2;
    let mut case = case("mla_prefill", "queries of one head, one program");
    case.dims = extents(&[
        ("T", QUERIES),
        ("H", 1),
        ("NOPE", NOPE),
        ("ROPE", ROPE),
        ("V", V),
        ("KV_ROWS", seen),
        ("S", 1),
    ]);
    case.scalars = [("softmax_scale".to_owned(), Value::Float(0.1))].into();
    case.arrays = [
        ("kv_starts", Fill::List(vec![int(0), int(seen)])),
        ("first_token", Fill::List(vec![int(0)])),
        ("seq_lens", Fill::List(vec![int(seen)])),
        ("cu_seqlens_q", Fill::List(vec![int(0), int(QUERIES)])),
        (
            "damage",
            Fill::Seeded(Seeded { scale: 0.0, offset: 0.0, at: Vec::new(), count_to: None }),
        ),
    ]
    .map(|(name, fill)| (name.to_owned(), fill))
    .into();
    let bytes = HEADS * TOKENS * (2 * (NOPE + V) + ROPE + 1) * 4 + TOKENS * (ROPE + 1) * 4;
    Workload {
        name: "MLA prefill".to_owned(),
        shape: format!("{TOKENS} tokens, {HEADS} heads"),
        kernel: "mla_prefill[DN=128",
        case,
        programs: TOKENS / QUERIES * HEADS,
        weights: 0,
        least_bytes: bytes,
        launch_bytes: bytes,
        flop: HEADS * TOKENS * TOKENS * (NOPE + ROPE + V),
        why: WHY_PREFILL,
    }
}

/// Every tag of 64 sequences, their pages in no order.
fn page_tag_check() -> Workload {
    const SEQUENCES: u64 = 64;
    const PAGES: u64 = 128;
    let all = SEQUENCES * PAGES;
    // Coprime to the number of pages: each comes once, none beside its neighbour.
    let scattered = || Fill::List((0..all).map(|i| int(i * 2741 % all)).collect());
    let mut case = case("page_tag_check", "all sequences");
    case.dims =
        extents(&[("PAGES", all), ("S", SEQUENCES), ("MAX_PAGES", PAGES), ("T", SEQUENCES)]);
    let lengths = vec![int(PAGES); usize::try_from(SEQUENCES).unwrap_or(0)];
    case.arrays = [
        ("tags", counted(usize::try_from(all).unwrap_or(1))),
        ("block_table", scattered()),
        ("expected", scattered()),
        ("num_pages", Fill::List(lengths)),
        ("cu_seqlens_q", Fill::List((0..=SEQUENCES).map(int).collect())),
        ("slot_mapping", counted(64)),
    ]
    .map(|(name, fill)| (name.to_owned(), fill))
    .into();
    let bytes = all * (8 + 8 + 4) + SEQUENCES * 8;
    Workload {
        name: "page-tag check".to_owned(),
        shape: format!("{SEQUENCES} sequences of {PAGES} pages"),
        kernel: "page_tag_check",
        case,
        programs: SEQUENCES,
        weights: 0,
        least_bytes: bytes,
        launch_bytes: bytes,
        flop: 0,
        why: WHY_TAGS,
    }
}

fn case(kernel: &str, name: &str) -> Case {
    Case {
        kernel: kernel.to_owned(),
        name: name.to_owned(),
        tolerance: 0.0,
        dims: BTreeMap::new(),
        scalars: BTreeMap::new(),
        arrays: BTreeMap::new(),
        formats: Vec::new(),
        consts: BTreeMap::new(),
        seed: 0,
        fails: None,
    }
}

fn extents(pairs: &[(&str, u64)]) -> BTreeMap<String, usize> {
    let fits = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    pairs.iter().map(|&(name, value)| (name.to_owned(), fits(value))).collect()
}

fn int(value: u64) -> Value {
    Value::Integer(value.cast_signed())
}

/// Indices from 0, repeated after so many.
fn counted(to: usize) -> Fill {
    Fill::Seeded(Seeded { scale: 1.0, offset: 0.0, at: Vec::new(), count_to: Some(to) })
}
