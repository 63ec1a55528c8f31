//! What kernels record: parameters, variants, and ops of loops and branches.

use crate::support::{kv_formats, outline, weight_formats};
use tessera_kernel_dsl::ir::kernel::Extent;
use tessera_kernel_dsl::ir::{Kernel, ParamKind};
use tessera_kernel_dsl::prelude::*;
use tessera_kernel_dsl::{Class, Entry, Target};

/// Each row over the root of its mean square.
#[kernel(grid = (M), targets(cpu), variants(cpu: BK = [64]), class = bounded)]
pub(crate) fn rms_norm(
    x: &In<f32, { [M, K] }>,
    g: &In<f32, { [K] }>,
    eps: f32,
    y: &mut Out<f32, { [M, K] }>,
) {
    let m = program_id(0);
    let mut sum = zeros([1, 1]);
    for k in range(0, K, BK) {
        let part = x.tile([m, k], [1, BK]);
        sum += (part * part).sum(1);
    }
    let scale = (sum / K.to::<f32>() + eps).rsqrt();
    for k in range(0, K, BK) {
        y.store([m, k], x.tile([m, k], [1, BK]) * scale * g.tile([k], [BK]));
    }
}

/// Rows of pages, through a table of pages.
#[kernel(
    grid = (B),
    formats(KV = kv_formats),
    targets(cpu),
    variants(cpu: BN = [8]),
    class = exact
)]
pub(crate) fn gather<KV: Stored>(
    kv: &In<KV, { [ROWS, 16] }>,
    table: &In<i32, { [B, PAGES] }>,
    len: &In<i32, { [B] }>,
    out: &mut Out<f32, { [B, 16] }>,
) {
    let b = program_id(0);
    let n = len.at([b]).to::<i64>();
    let mut acc = zeros([1, 16]);
    let mut count = full::<i64, 0>([], 0);
    for j in range(0, n, BN) {
        let page = table.at([b, j / BN]).to::<i64>();
        if page >= 0 {
            let rows = kv.rows(page * BN + iota(BN), 0, 16).decode();
            acc += rows.mask(|r, _| j + r < n, 0.0).sum(0);
            count += 1;
        } else {
            acc = full([1, 16], f32::NAN);
        }
    }
    let mean = if count == 0 { acc } else { acc / count.to::<f32>() };
    out.store([b, 0], mean);
}

/// A scaled product.
#[kernel(
    grid = (cdiv(M, BM), cdiv(N, 16)),
    formats(W = weight_formats),
    targets(sm90a, sm100a, cpu),
    variants(cpu: BM = [4, 8]; gpu: (BM, BN) = [(16, 64), (128, 64)], WARPS = [4, 8]),
    require(BM * WARPS <= 512)
)]
pub(crate) fn w_gemm<W: Packed>(
    x: &In<f32, { [M, K] }>,
    w: &In<W, { [N, K] }>,
    y: &mut Out<f32, { [M, N] }>,
) {
    let (m, n) = (program_id(0) * BM, program_id(1) * 16);
    let mut acc = zeros([BM, 16]);
    for k in range(0, K, 64) {
        let part = x.tile([m, k], [BM, 64]).quantize::<W::Activation>();
        acc = dot_scaled(part, w.tile([n, k], [16, 64]), acc);
    }
    if m < M {
        y.store([m, n], acc);
    }
}

/// Two lists of formats, nothing else.
#[kernel(grid = (C), formats(W = weight_formats, KV = kv_formats), targets(cpu))]
pub(crate) fn crossed<KV: Stored, W: Packed>(
    kv: &In<KV, { [A + 2 + B, C] }>,
    w: &In<W, { [4, 32] }>,
    a: &In<f32, { [A] }>,
    b: &In<f32, { [B] }>,
    sum: &mut Out<f32, { [4] }>,
) {
    let rows = w.tile([0, 0], [4, 32]).decode().sum(1).reshape([4]);
    sum.store([0], rows + kv.tile([0, 0], [4]).decode() + a.at([0]) * b.at([0]));
}

fn built(entry: Entry, target: Target) -> Vec<Kernel> {
    (entry.build)(target)
        .into_iter()
        .map(|kernel| kernel.expect("a kernel without mistakes"))
        .collect()
}

#[test]
fn a_loop_carries_what_it_changes() {
    let entry = rms_norm();
    assert_eq!((entry.name, entry.class), ("rms_norm", Class::Bounded));
    assert_eq!(entry.targets, [Target::Cpu]);
    let kernels = built(entry, Target::Cpu);
    assert_eq!(kernels.len(), 1);
    let kernel = &kernels[0];
    assert_eq!(kernel.label(), "rms_norm[BK=64]");
    assert_eq!(kernel.dims, ["M", "K"]);
    assert_eq!(outline(kernel, &kernel.grid), "M; Yield");
    assert_eq!(
        outline(kernel, &kernel.body),
        "Scalar eps; K; ProgramId(0); Float(0.0); Broadcast; Int(0); \
         For by 64 of 1 { Load x; Mul; Reduce { axis: 1, combine: Sum }; Add; Yield }; \
         Cast(F32); Broadcast; Div; Broadcast; Add; Rsqrt; Int(0); \
         For by 64 of 0 { Load x; Broadcast; Mul; Load g; Broadcast; Mul; Store y; Yield }; Yield"
    );
}

#[test]
fn a_branch_carries_what_either_side_changes() {
    let kernels = built(gather(), Target::Cpu);
    let labels: Vec<String> = kernels.iter().map(Kernel::label).collect();
    assert_eq!(labels, ["gather<bf16>[BN=8]", "gather<e4m3>[BN=8]"]);
    let kernel = &kernels[0];
    assert_eq!(
        outline(kernel, &kernel.body),
        "ProgramId(0); Load len; Cast(I64); Float(0.0); Broadcast; Int(0); Int(0); \
         For by 8 of 2 { Int(8); Div; Load table; Cast(I64); Int(0); Ge; \
         If of 2 { Int(8); Mul; Iota(8); Broadcast; Add; Int(0); LoadRows kv; Decode; \
         Iota(8); Reshape; Iota(16); Reshape; Broadcast; Add; Broadcast; Lt; Float(0.0); \
         Broadcast; Broadcast; Select; Reduce { axis: 0, combine: Sum }; Add; Int(1); Add; \
         Yield } { Float(NaN); Broadcast; Yield }; Yield }; \
         Int(0); Eq; If of 2 { Yield } { Cast(F32); Broadcast; Div; Yield }; \
         Int(0); Store out; Yield"
    );
}

#[test]
fn variants_cross_constants_and_formats() {
    let labels = |target| {
        let kernels = built(w_gemm(), target);
        kernels.iter().map(Kernel::label).collect::<Vec<_>>()
    };
    let cpu = ["<plain>[BM=4]", "<fours>[BM=4]", "<plain>[BM=8]", "<fours>[BM=8]"];
    assert_eq!(labels(Target::Cpu), cpu.map(|label| format!("w_gemm{label}")));
    assert_eq!(labels(Target::Sm90a), labels(Target::Sm100a));
    let gpu = [
        "<plain>[BM=16, BN=64, WARPS=4]",
        "<fours>[BM=16, BN=64, WARPS=4]",
        "<plain>[BM=16, BN=64, WARPS=8]",
        "<fours>[BM=16, BN=64, WARPS=8]",
        "<plain>[BM=128, BN=64, WARPS=4]",
        "<fours>[BM=128, BN=64, WARPS=4]",
    ];
    assert_eq!(labels(Target::Sm90a), gpu.map(|label| format!("w_gemm{label}")));
    let kernel = &built(w_gemm(), Target::Cpu)[1];
    assert_eq!(
        outline(kernel, &kernel.grid),
        "M; N; Int(4); Int(1); Add; Sub; Div; Int(16); Int(1); Add; Sub; Div; Yield"
    );
    assert_eq!(
        outline(kernel, &kernel.body),
        "M; K; ProgramId(0); Int(4); Mul; ProgramId(1); Int(16); Mul; Float(0.0); Broadcast; \
         Int(0); For by 64 of 1 { Load x; Quantize plain; Load w; DotScaled; Yield }; \
         Lt; If of 0 { Store y; Yield } { Yield }; Yield"
    );
}

#[test]
fn dims_are_sums_and_formats_keep_the_order_of_the_parameters() {
    let kernels = built(crossed(), Target::Cpu);
    let labels: Vec<String> = kernels.iter().map(Kernel::label).collect();
    let want = ["<bf16, plain>", "<bf16, fours>", "<e4m3, plain>", "<e4m3, fours>"];
    assert_eq!(labels, want.map(|label| format!("crossed{label}")));
    assert_eq!(kernels[0].dims, ["A", "B", "C"]);
    let ParamKind::View { dims, .. } = &kernels[0].params[0].kind else {
        panic!("a view");
    };
    let want = [Extent { dims: vec![0, 1], constant: 2 }, Extent { dims: vec![2], constant: 0 }];
    assert_eq!(*dims, want);
    assert!(built(crossed(), Target::Sm90a).is_empty());
}
