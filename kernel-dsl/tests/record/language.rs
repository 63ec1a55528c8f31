//! Functions over tiles, structs of them, loops that unroll and branches of the build.

use crate::support::{Fours, outline};
use tessera_kernel_dsl::ir::{Kernel, OpKind};
use tessera_kernel_dsl::prelude::*;
use tessera_kernel_dsl::{Entry, Target};

const WIDTH: usize = 4;

/// The running state of a softmax.
#[derive(Clone, Copy, Carry)]
struct Softmax {
    max: Tile<f32>,
    sum: Tile<f32>,
}

#[derive(Carry)]
struct Pair<A, B>(A, [B; 2]);

impl Softmax {
    #[tile_fn]
    fn new(rows: usize) -> Self {
        Self { max: full([rows, 1], f32::NEG_INFINITY), sum: zeros([rows, 1]) }
    }

    #[tile_fn]
    fn update(&mut self, scores: Tile<f32>) {
        let max = max(self.max, scores.max(1));
        self.sum *= (self.max - max).exp();
        self.sum += (scores - max).exp().sum(1);
        self.max = max;
    }
}

#[tile_fn]
fn power(x: Tile<f32>, n: usize) -> Tile<f32> {
    let mut result = x;
    for _ in 1..n {
        result *= x;
    }
    result
}

/// A struct is carried as a whole, by method call and by field.
#[kernel(grid = (M), targets(cpu))]
fn softmax(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, 1] }>) {
    let m = program_id(0);
    let mut state = Softmax::new(1);
    for k in range(0, K, 16) {
        state.update(x.tile([m, k], [1, 16]));
    }
    for k in range(0, K, 16) {
        state.sum += x.tile([m, k], [1, 16]).sum(1);
    }
    let mut pair = Pair(state.max, [state.sum, state.sum]);
    if m > 3 {
        pair.1[0] = pair.0;
    }
    y.store([m, 0], pair.0 + pair.1[0] * pair.1[1]);
}

/// Numbers of the build: loops over them unroll, conditions on them choose.
#[kernel(grid = (M, 2), targets(cpu), variants(BK = [8, 16]))]
fn unrolled(x: &In<f32, { [M, BK + 1] }>, y: &mut Out<f32, { [M, 1] }>) {
    const HALF: usize = 4 * 2;
    let width = if BK > HALF && BK % 2 == 0 { 2 } else { 1 };
    let mut count = 0;
    let mut sum = zeros([1, width]);
    for i in (0..BK).step_by(8) {
        count += 1;
        if i == 0 {
            sum = x.tile([program_id(0), 0], [1, width]);
        } else {
            for part in [sum, sum] {
                sum = sum + part;
            }
        }
    }
    assert_eq!(count, BK / 8);
    y.store([0, 0], power(sum.sum(1), count + 1));
}

/// Names that are shadowed are other variables.
#[kernel(grid = (M), targets(cpu))]
fn shadowed(x: &In<f32, { [M] }>, y: &mut Out<f32, { [M] }>) {
    let mut a = x.at([0]);
    let mut b = a;
    for i in range(0, M, 1) {
        let mut a = x.at([i]);
        a += 1.0;
        let fixed = |b: Tile<f32>| b + a;
        if 0 < i {
            b = fixed(b);
        }
    }
    a = a + b;
    y.store([0], a);
}

/// A number may stand on either side of an operator.
#[kernel(grid = (M), targets(cpu))]
fn sides(x: &In<f32, { [M] }>, n: i64, scale: f32, y: &mut Out<f32, { [M] }>) {
    let m = 2 * program_id(0) + 1;
    let inside = (0 < m) & (m <= n) & !(16usize > m);
    let back = (1 - m).to::<f32>() + (7 % m).to::<f32>() + (100 / (8 - m)).to::<f32>();
    let known: usize = (1 << WIDTH) + 100 / WIDTH + 7 % WIDTH + (9 - WIDTH);
    let holds = (WIDTH > 1) != (1 > WIDTH);
    assert_eq!((known, holds), (16 + 25 + 3 + 5, true));
    let v = 1.0 / (2.0 - 1.0 * x.at([m]) * scale) + back;
    if inside {
        y.store([m], select((0.5 < v) & (v != 1.0), v, -1.0 / 3.0));
    }
}

/// An end is a number of the build or of the launch.
#[kernel(grid = (M), targets(cpu))]
fn ends(x: &In<f32, { [M, K] }>, y: &mut InOut<f32, { [M, K] }>, z: &mut Out<f32, { [M] }>) {
    let end = program_id(0) + 1;
    y.until(end).store([0, 0], x.until(3).tile([0, 0], [4, 8]));
    z.until(end).store([0], y.until(end).tile([0, 0], []));
}

fn built(entry: Entry) -> Vec<Kernel> {
    let kernels = (entry.build)(Target::Cpu).into_iter();
    kernels.map(|kernel| kernel.expect("a kernel without mistakes")).collect()
}

/// How many values each loop and branch changes, in order.
fn changed(kernel: &Kernel) -> Vec<usize> {
    let flow = kernel.ops.iter().filter(|op| matches!(op.kind, OpKind::For { .. } | OpKind::If));
    flow.map(|op| op.results.len()).collect()
}

#[test]
fn structs_of_tiles_are_carried() {
    let kernels = built(softmax());
    assert_eq!(changed(&kernels[0]), [2, 2, 3]);
}

#[test]
fn what_is_known_is_done_while_building() {
    let [small, large] = built(unrolled()).try_into().expect("two variants");
    assert_eq!((small.label(), large.label()), ("unrolled[BK=8]".into(), "unrolled[BK=16]".into()));
    assert_eq!(small.dims, ["M"]);
    let head = "Float(0.0); Broadcast; ProgramId(0); Int(0); Load x";
    let tail = "Int(0); Int(0); Store y; Yield";
    let sum = "Reduce { axis: 1, combine: Sum }";
    assert_eq!(outline(&small, &small.body), format!("{head}; {sum}; Mul; {tail}"));
    assert_eq!(outline(&large, &large.body), format!("{head}; Add; Add; {sum}; Mul; Mul; {tail}"));
}

#[test]
fn ends_are_operands() {
    let kernel = built(ends()).remove(0);
    let want = "ProgramId(0); Int(1); Add; Int(3); Int(0); Int(0); LoadUntil x; Int(0); Int(0); \
                StoreUntil y; Int(0); Int(0); LoadUntil y; Int(0); StoreUntil z; Yield";
    assert_eq!(outline(&kernel, &kernel.body), want);
}

#[test]
fn shadowed_names_are_not_carried() {
    // The loop changes `b`; the `a` inside is its own.
    assert_eq!(changed(&built(shadowed())[0]), [1, 1]);
}

#[test]
fn numbers_stand_on_either_side() {
    let kernels = built(sides());
    assert_eq!(changed(&kernels[0]), [0]);
}

#[test]
fn a_function_over_tiles_needs_a_kernel_under_construction() {
    let outside = std::panic::catch_unwind(|| power(zeros([1]), 2));
    assert!(outside.is_err());
}

#[test]
fn a_format_has_a_name() {
    assert_eq!(tessera_kernel_dsl::format_name::<Fours>(), "fours");
    assert_eq!(tessera_kernel_dsl::format_name::<i64>(), "i64");
}
