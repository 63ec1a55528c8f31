//! Small kernels that together use every op, for the tests of the generator.

use tessera_kernel_dsl::ir::Kernel;
use tessera_kernel_dsl::prelude::*;
use tessera_kernel_dsl::{Entry, Target, block_format, number_format};

number_format! {
    /// IEEE binary16.
    pub F16 = Element::F16
}
number_format! {
    /// The upper half of binary32.
    pub Bf16 = Element::Bf16
}
number_format! {
    /// OCP FP8 E4M3.
    pub E4M3 = Element::F8E4M3
}
number_format! {
    /// OCP FP8 E5M2.
    pub E5M2 = Element::F8E5M2
}

number_format! {
    /// IEEE binary32, stored.
    pub Single = Element::F32
}
number_format! {
    /// Integers in -8..=7.
    pub I4 = Element::I4
}
number_format! {
    /// OCP FP4 E2M1.
    pub E2M1 = Element::F4E2M1
}
number_format! {
    /// Sixteen-bit integers.
    pub I16 = Element::I16
}
block_format! {
    /// f32, as is.
    pub Plain = "f32" {
        element = Single, scale = none, tol = (0.0, 0.0), activation = self,
    }
}
block_format! {
    /// FP8 with a scale for each 128 by 128.
    pub Tiled = "fp8-128x128" {
        element = E4M3,
        scale = F32 per (128, 128), ragged = true,
        divisor = 448.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.04, 0.03),
        activation = Plain,
    }
}
block_format! {
    /// Activations that meet four-bit weights.
    pub Sixteen = "a16-g32" {
        element = I16,
        scale = F32 per (1, 32), ragged = true,
        divisor = 32639.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.0000155, 0.0000213),
        activation = self,
    }
}
block_format! {
    /// Four-bit integers with zero points.
    pub Int4 = "int4-g32-zp" {
        element = I4,
        scale = Bf16 per (1, 32), ragged = false,
        divisor = 15.0, precision = Bf16,
        zero_point = true, tensor_scale = false,
        tol = (0.0711, 0.086),
        activation = Sixteen,
    }
}
block_format! {
    /// Four-bit floats.
    pub Mxfp4 = "mxfp4" {
        element = E2M1,
        scale = Ue8m0 per (1, 32), ragged = false,
        divisor = 6.0, precision = Ue8m0,
        zero_point = false, tensor_scale = false,
        tol = (0.3, 0.2),
        activation = Sixteen,
    }
}

macro_rules! weight_formats {
    (|$name:ident| $body:expr) => {{
        type $name = Plain;
        $body;
    }
    {
        type $name = Tiled;
        $body;
    }
    {
        type $name = Int4;
        $body;
    }
    {
        type $name = Mxfp4;
        $body;
    }};
}

macro_rules! stored_formats {
    (|$name:ident| $body:expr) => {{
        type $name = E4M3;
        $body;
    }
    {
        type $name = E5M2;
        $body;
    }
    {
        type $name = Bf16;
        $body;
    }
    {
        type $name = F16;
        $body;
    }};
}

/// All of them, in order.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        rms_norm(),
        softmax(),
        attend(),
        bits(),
        table(),
        control(),
        recode(),
        order(),
        elementary(),
        checked(),
        multiply(),
        lookup(),
        ragged(),
        ragged_codes(),
        ragged_product(),
    ]
}

/// The variants of each.
pub(crate) fn built() -> Vec<Vec<Kernel>> {
    let build = |entry: &Entry| -> Vec<Kernel> {
        let variants = (entry.build)(Target::Cpu).into_iter();
        variants.map(|kernel| kernel.expect("the test kernels are right")).collect()
    };
    entries().iter().map(build).collect()
}

/// The text of a kernel's file.
///
/// # Panics
/// If some op has no code.
pub(crate) fn file(variants: &[Kernel]) -> String {
    match tessera_kernel_cpu::source(&[variants.to_vec()]) {
        Ok(text) => format!("//! See `tests/kernels`.\n{text}"),
        Err(errors) => panic!("{errors:?}"),
    }
}

/// A loop with a carried tile, a reduction of a vector, a row broadcast.
#[kernel(grid = (T), targets(cpu))]
pub(crate) fn rms_norm(
    x: &In<f32, { [T, N] }>,
    weight: &In<f32, { [N] }>,
    eps: f32,
    out: &mut Out<f32, { [T, N] }>,
) {
    let t = program_id(0);
    let mut squares = zeros::<f32, 1>([48]);
    for c in range(0, N, 48) {
        let h = x.tile((t, c), [48]);
        squares = fma(h, h, squares);
    }
    let factor = (squares.sum(0) / N.to::<f32>() + eps).rsqrt();
    for c in range(0, N, 48) {
        out.store((t, c), x.tile((t, c), [48]) * factor * weight.tile([c], [48]));
    }
}

/// Reductions along both axes, masks from indices, a tile in place.
#[kernel(grid = (cdiv(M, 8)), targets(cpu))]
pub(crate) fn softmax(x: &mut InOut<f32, { [M, N] }>, largest: &mut Out<f32, { [1, N] }>) {
    let m = program_id(0) * 8;
    let tile = x.tile((m, 0), [8, 40]).mask(|_, c| c < N, f32::NEG_INFINITY);
    let top = tile.max(1);
    let weights = (tile - top).exp();
    let result = weights / weights.sum(1);
    x.store((m, 0), result);
    if m == 0 {
        largest.store((0, 0), result.max(0));
    }
}

/// Dots with transposed and sliced operands, online rescaling in a loop.
#[kernel(grid = (cdiv(M, 4)), targets(cpu))]
pub(crate) fn attend(
    q: &In<f32, { [M, 24] }>,
    k: &In<f32, { [S, 24] }>,
    out: &mut Out<f32, { [M, 16] }>,
    lse: &mut Out<f32, { [M] }>,
) {
    let m = program_id(0) * 4;
    let q = (q.tile((m, 0), [4, 24]) * 0.25).t();
    let mut top = full::<f32, 2>([1, 4], f32::NEG_INFINITY);
    let mut sum = zeros::<f32, 2>([1, 4]);
    let mut acc = zeros::<f32, 2>([4, 16]);
    for s in range(0, S, 10) {
        let keys = k.tile((s, 0), [10, 24]);
        let scores = dot(keys, q, zeros([10, 4]));
        let scores = scores.mask(|r, _| r + s < S, f32::NEG_INFINITY);
        let new_top = max(top, scores.max(0));
        let p = (scores - new_top).exp();
        let rescale = (top - new_top).exp();
        sum = sum * rescale + p.sum(0);
        acc = dot(p.t(), keys.cols(0, 16), acc * rescale.t());
        top = new_top;
    }
    out.store((m, 0), acc / sum.t());
    lse.store([m], (top + sum.ln()).reshape([4]));
}

/// Integers of every width.
#[kernel(grid = (cdiv(N, 20)), targets(cpu), class = exact)]
pub(crate) fn bits(
    a: &In<u32, { [N] }>,
    b: &In<i32, { [N] }>,
    c: &In<u64, { [N] }>,
    mixed: &mut Out<u32, { [N] }>,
    signed: &mut Out<i32, { [N] }>,
    wide: &mut Out<u64, { [N] }>,
    digest: &mut Out<u64, { [P] }>,
    count: &mut InOut<u32, { [1] }>,
) {
    let n = program_id(0) * 20;
    let (a, b, c) = (a.tile([n], [20]), b.tile([n], [20]), c.tile([n], [20]));
    let folded = (a ^ (a >> 3)) + (a << 5) - (a & 0xff);
    let less = min(max(folded, a / 3), 4_000_000_000_u32);
    mixed.store([n], select(a < folded, less, a | 1));
    let steps = max(b / 7, -b) + (b >> 2) * 3;
    signed.store([n], select(b <= steps, steps, b & 63));
    let spread = (c << 7) ^ (c >> 9) ^ a.to::<u64>();
    wide.store([n], spread);
    digest.store([program_id(0)], (spread * 3).xor(0).reshape([]));
    let odd = select((a & 1) == 1, full::<u32, 1>([20], 1), 0);
    count.atomic_add([0], odd.sum(0).reshape([]));
}

/// Rows and elements by index, in and out.
#[kernel(grid = (cdiv(R, 6)), targets(cpu), class = exact)]
pub(crate) fn table(
    from: &In<f32, { [P, N] }>,
    ids: &In<i32, { [R] }>,
    rows: &mut Out<f32, { [R, N] }>,
    spots: &mut Out<f32, { [R] }>,
    inverse: &mut Out<i64, { [P] }>,
) {
    let r = program_id(0) * 6;
    let ids = ids.tile([r], [6]).to::<i64>();
    let here = iota(6) + r;
    let row = from.rows(ids, 0, 20);
    rows.store_rows(here, 0, row);
    spots.scatter([here], from.gather([ids, rem(here, 3)]));
    inverse.scatter([select((ids < 0) | (here >= R), -1, ids)], here);
}

/// Loops and branches that carry scalars and tiles.
#[kernel(grid = (1), targets(cpu))]
pub(crate) fn control(x: &In<f32, { [N] }>, limit: f32, out: &mut Out<f32, { [3, 8] }>) {
    let mut a = full::<f32, 1>([8], 1.0);
    let mut b = x.tile([0], [8]);
    let mut total = full::<f32, 0>([], 0.0);
    let mut rounds = full::<i64, 0>([], 0);
    for i in range(0, N, 1) {
        let value = x.at([i]);
        total = total + value;
        let swapped = a + value;
        a = b;
        b = swapped;
        if total < limit {
            rounds = rounds + 1;
            a = a * 0.5;
        } else {
            b = b - a;
        }
        for j in range(0, rounds, 2) {
            b = b + j.to::<f32>();
        }
    }
    out.store((0, 0), a);
    out.store((1, 0), b);
    out.store((2, 0), total);
    out.store((2, 1), rounds.to::<f32>());
}

/// Codes to numbers and back.
#[kernel(grid = (cdiv(M, 3)), targets(cpu), formats(F = stored_formats), class = exact)]
pub(crate) fn recode<F: Stored>(
    x: &In<f32, { [M, N] }>,
    codes: &mut InOut<F, { [M, N] }>,
    values: &mut Out<f32, { [M, N] }>,
) {
    let m = program_id(0) * 3;
    values.store((m, 0), codes.tile((m, 0), [3, 50]).decode() + 0.0);
    codes.store((m, 0), x.tile((m, 0), [3, 50]).encode::<F>());
}

/// Prefixes, places of the largest, joined and reshaped tiles, truths along an axis.
#[kernel(grid = (1), targets(cpu))]
pub(crate) fn order(
    x: &In<f32, { [5, N] }>,
    prefix: &mut Out<f32, { [5, 21] }>,
    down: &mut Out<f32, { [5, 21] }>,
    best: &mut Out<i64, { [5] }>,
    tallest: &mut Out<i64, { [1, 21] }>,
    joined: &mut Out<f32, { [5, 32] }>,
    flat: &mut Out<f32, { [6, 7] }>,
    flags: &mut Out<i64, { [2, 21] }>,
) {
    let tile = x.tile((0, 0), [5, 21]);
    prefix.store((0, 0), tile.cumsum(1));
    down.store((0, 0), tile.cumsum(0));
    best.store([0], tile.argmax(1).reshape([5]));
    tallest.store((0, 0), tile.argmax(0));
    joined.store((0, 0), tile.cols(2, 11).join(tile.abs()));
    flat.store((0, 0), tile.cols(0, 14).t().cols(0, 3).reshape([6, 7]));
    let above = tile > 0.25;
    let zero = full::<i64, 2>([1, 21], 0);
    flags.store((0, 0), select(above.all(0), zero + 1, zero));
    flags.store((1, 0), select(above.any(0) & !tile.is_nan().any(0), zero + 1, zero));
}

/// Elementary functions, on tiles and on scalars.
#[kernel(grid = (M), targets(cpu))]
pub(crate) fn elementary(x: &In<f32, { [M, 18] }>, out: &mut Out<f32, { [M, 12, 18] }>) {
    let m = program_id(0);
    let v = x.tile((m, 0), [18]);
    let up = v.abs() + 0.001;
    out.store((m, 0, 0), v.exp());
    out.store((m, 1, 0), v.exp2());
    out.store((m, 2, 0), up.ln());
    out.store((m, 3, 0), up.log2());
    out.store((m, 4, 0), sin(v));
    out.store((m, 5, 0), cos(v));
    out.store((m, 6, 0), up.sqrt());
    out.store((m, 7, 0), up.rsqrt() + up.recip());
    out.store((m, 8, 0), (v * 4.0).floor() - (v * 4.0).round());
    out.store((m, 9, 0), (v * 1000.0).to::<i32>().to::<f32>());
    out.store((m, 10, 0), (v.bits::<u32>() & 0x7fff_ffff).bits::<f32>());
    let first = x.at((m, 0));
    out.store((m, 11, 0), first.exp() + sin(first));
}

/// An assert of the extents, one of the data, and variants.
#[kernel(grid = (M), targets(cpu), variants(cpu: WIDTH = [8, 24]), class = exact)]
pub(crate) fn checked(x: &In<i32, { [M, N] }>, out: &mut Out<i32, { [M, N] }>) {
    assert_all(N <= WIDTH, "rows are as wide as a variant");
    let m = program_id(0);
    let tile = x.tile((m, 0), [WIDTH]);
    assert_all(tile >= 0, "`x` counts");
    out.store((m, 0), tile * 2);
}

/// Weights of block formats, one matrix an expert.
#[kernel(grid = (cdiv(N, 32), E), targets(cpu), formats(W = weight_formats))]
pub(crate) fn multiply<W: Packed>(
    x: &In<f32, { [M, K] }>,
    w: &In<W, { [E, N, K] }>,
    y: &mut Out<f32, { [E, M, N] }>,
) {
    let (n, e) = (program_id(0) * 32, program_id(1));
    for m in range(0, M, 8) {
        let mut acc = zeros::<f32, 2>([8, 32]);
        for k in range(0, K, 128) {
            let x = x.tile((m, k), [8, 128]).quantize::<W::Activation>();
            acc = dot_scaled(x, w.tile((e, n, k), [32, 128]), acc);
        }
        y.store((e, m, n), acc);
    }
}

/// Rows of a weight as f32.
#[kernel(grid = (cdiv(T, 4)), targets(cpu), formats(W = weight_formats))]
pub(crate) fn lookup<W: Packed>(
    ids: &In<i32, { [T] }>,
    w: &In<W, { [V, N] }>,
    out: &mut Out<f32, { [T, N] }>,
    first: &mut Out<f32, { [4, N] }>,
) {
    let t = program_id(0) * 4;
    let ids = ids.tile([t], [4]).to::<i64>();
    for c in range(0, N, 40) {
        out.store((t, c), w.rows(ids, c, 40).decode());
        if t == 0 {
            first.store((0, c), w.tile((0, c), [4, 40]).decode());
        }
    }
}

/// Segments of rows, the last chunk of each ragged: rows in place, in scratch, in a dot, one by
/// one, and as scalars.
#[kernel(grid = (S), targets(cpu))]
pub(crate) fn ragged(
    x: &In<f32, { [M, N] }>,
    bounds: &In<i64, { [S, 2] }>,
    changed: &mut InOut<f32, { [M, N] }>,
    product: &mut Out<f32, { [S, 4, 4] }>,
    gram: &mut Out<f32, { [M, 4] }>,
    last: &mut Out<i64, { [S] }>,
    first: &mut Out<f32, { [M] }>,
) {
    let s = program_id(0);
    let (start, end) = (bounds.at([s, 0]), bounds.at([s, 1]));
    let (x, rows) = (x.until(end), changed.until(end));
    let mut sum = zeros::<f32, 2>([4, 4]);
    for m in range(start, end, 4) {
        let tile = x.tile([m, 0], [4, 21]);
        rows.store([m, 0], rows.tile([m, 0], [4, 21]) - tile.max(1));
        gram.until(end).store([m, 0], dot(tile, x.tile([start, 0], [4, 21]).t(), zeros([4, 4])));
        sum = dot(x.tile([m, 0], [4, 4]).t(), x.tile([m, 0], [4, 4]), sum);
        for i in [0, 3] {
            rows.store((m + i, 0), rows.tile((m + i, 0), [21]) * 2.0);
            first.until(end).store([m + i], x.tile((m + i, 1), []) + 1.0);
        }
    }
    product.store((s, 0, 0), sum);
    // Until an end that the view does not reach, and a negative one.
    last.until(S + 9).store([s], end);
    last.until(-1).store([s], -7);
}

/// Codes up to an end, in and out.
#[kernel(grid = (1), targets(cpu), formats(F = stored_formats), class = exact)]
pub(crate) fn ragged_codes<F: Stored>(
    end: i64,
    from: &In<F, { [M, 20] }>,
    codes: &mut Out<F, { [M, 20] }>,
    values: &mut Out<f32, { [M, 20] }>,
) {
    let tile = from.until(end).tile([1, 0], [6, 20]);
    values.store([0, 0], tile.decode());
    codes.until(end - 1).store([0, 0], tile);
}

/// Segments of rows times a weight, in a loop along `k` and in one step.
#[kernel(grid = (cdiv(N, 32), S), targets(cpu), formats(W = weight_formats))]
pub(crate) fn ragged_product<W: Packed>(
    x: &In<f32, { [M, K] }>,
    w: &In<W, { [N, K] }>,
    bounds: &In<i64, { [S, 2] }>,
    y: &mut Out<f32, { [M, N] }>,
    head: &mut Out<f32, { [M, N] }>,
) {
    let (n, s) = (program_id(0) * 32, program_id(1));
    let (start, end) = (bounds.at([s, 0]), bounds.at([s, 1]));
    let x = x.until(end);
    for m in range(start, end, 8) {
        let mut acc = zeros::<f32, 2>([8, 32]);
        for k in range(0, K, 128) {
            let x = x.tile([m, k], [8, 128]).quantize::<W::Activation>();
            acc = dot_scaled(x, w.tile([n, k], [32, 128]), acc);
        }
        y.until(end).store([m, n], acc);
        let x = x.tile([m, 0], [8, 128]).quantize::<W::Activation>();
        let acc = dot_scaled(x, w.tile([n, 0], [32, 128]), zeros([8, 32]));
        head.until(end).store([m, n], acc);
    }
}
