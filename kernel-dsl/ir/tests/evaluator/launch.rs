//! Whole launches: a product of ragged tiles, its work and its shapes.

use crate::{fault, kernel, run};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Args, Evaluator};

/// `y = x * w` in tiles of 4 rows, 16 columns and 8 of the sum.
fn gemm() -> Kernel {
    kernel(
        r"kernel gemm dims(M, K, N) {
            param x: in f32[M, K]
            param w: in f32[K, N]
            param y: out f32[M, N]
            grid {
              %0: i64 = dim M
              %1: i64 = const 3
              %2: i64 = add (%0, %1)
              %3: i64 = const 4
              %4: i64 = div (%2, %3)
              %5: i64 = dim N
              %6: i64 = const 15
              %7: i64 = add (%5, %6)
              %8: i64 = const 16
              %9: i64 = div (%7, %8)
              yield (%4, %9)
            }
            body {
              %10: i64 = program_id 0
              %11: i64 = const 4
              %12: i64 = mul (%10, %11)
              %13: i64 = program_id 1
              %14: i64 = const 16
              %15: i64 = mul (%13, %14)
              %16: f32 = const 0.0
              %17: f32[4, 16] = broadcast (%16)
              %18: i64 = const 0
              %19: i64 = dim K
              %20: f32[4, 16] = for 8 (%18, %19, %17) {|%21: i64, %22: f32[4, 16]|
                %23: f32[4, 8] = load x (%12, %21)
                %24: f32[8, 16] = load w (%21, %15)
                %25: f32[4, 16] = dot (%23, %24, %22)
                yield (%25)
              }
              store y (%12, %15, %20)
              yield
            }
          }",
    )
}

fn values(count: usize, modulus: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7 % modulus) as f32 - 3.0).collect()
}

fn check([m, n, k]: [usize; 3]) {
    let (x, w) = (values(m * k, 11), values(k * n, 13));
    let expect: Vec<f32> =
        (0..m * n).map(|at| (0..k).map(|i| x[at / n * k + i] * w[i * n + at % n]).sum()).collect();
    let y = Arg::f32(vec![9.0; m * n], &[m, n]);
    let after = run(&gemm(), vec![Arg::f32(x, &[m, k]), Arg::f32(w, &[k, n]), y]);
    assert_eq!(after[2].as_f32(), expect);
}

#[test]
fn products_of_any_shape() {
    for shape in [[1, 1, 1], [4, 16, 8], [5, 17, 9], [3, 40, 31], [0, 3, 2], [64, 256, 256]] {
        check(shape);
    }
}

#[test]
fn a_sum_over_nothing_is_zero() {
    check([2, 3, 0]);
}

#[test]
fn rows_may_have_gaps() {
    let x = Arg::strided(values_at(&[0.0, 1.0, 9.0, 2.0, 3.0]), &[2, 2], &[3, 1]);
    let w = Arg::f32(vec![1.0, 10.0], &[2, 1]);
    let after = run(&gemm(), vec![x, w, Arg::f32(vec![0.0; 2], &[2, 1])]);
    assert_eq!(after[2].as_f32(), [10.0, 32.0]);
}

fn values_at(values: &[f32]) -> tessera_tile_ir::eval::Data {
    tessera_tile_ir::eval::Data::F32(values.to_vec())
}

#[test]
fn a_launch_counts_its_work() {
    let args = vec![
        Arg::f32(vec![1.0; 4 * 16], &[4, 16]),
        Arg::f32(vec![1.0; 16 * 20], &[16, 20]),
        Arg::f32(vec![0.0; 4 * 20], &[4, 20]),
    ];
    let counts = Evaluator::new(&gemm()).run(&mut Args(args)).expect("the shapes fit");
    // Two tiles of columns: x is read twice, w and y once; the tiles are computed whole.
    assert_eq!(counts.flops, 2 * 4 * 16 * 16);
    assert_eq!(counts.loaded, [2.0 * 256.0, 1280.0, 0.0]);
    assert_eq!(counts.stored, [0.0, 0.0, 320.0]);
}

#[test]
fn a_trace_sees_every_value() {
    let args = vec![
        Arg::f32(vec![1.0; 9], &[1, 9]),
        Arg::f32(vec![1.0; 9], &[9, 1]),
        Arg::f32(vec![0.0], &[1, 1]),
    ];
    let kernel = gemm();
    let mut seen = Vec::new();
    let evaluator = Evaluator::new(&kernel).trace(|event| {
        if [15, 20, 21, 25].contains(&event.value.0) {
            assert_eq!(event.program, [0, 0]);
            seen.push((event.value.0, event.op.kind.name(), event.ty.to_string()));
        }
    });
    evaluator.run(&mut Args(args)).expect("the shapes fit");
    let [index, tile] = ["i64", "f32[4, 16]"].map(str::to_owned);
    let want = [
        (15, "mul", index.clone()),
        (21, "for", index.clone()),
        (25, "dot", tile.clone()),
        (21, "for", index.clone()),
        (25, "dot", tile.clone()),
        (20, "for", tile.clone()),
        (15, "store", index),
        (20, "store", tile),
    ];
    assert_eq!(seen, want);
}

#[test]
fn shapes_that_differ_are_named() {
    let args = vec![
        Arg::f32(vec![0.0; 12], &[4, 3]),
        Arg::f32(vec![0.0; 6], &[3, 2]),
        Arg::f32(vec![0.0; 12], &[4, 3]),
    ];
    let error = fault(&gemm(), args).to_string();
    assert_eq!(error, "gemm: `y` has shape [4, 3], expected [M = 4, N = 2]");
}

#[test]
fn sums_of_dims_are_solved_and_checked() {
    let kernel = kernel(
        r"kernel parts dims(N, DC, DR) {
            param q: in f32[N, DC + DR + 1]
            param y: out f32[N, DC]
            grid { %0: i64 = const 1 yield (%0) }
            body {
              %1: i64 = dim DR
              %2: f32 = cast f32 (%1)
              %3: i64 = const 0
              store y (%3, %3, %2)
              yield
            }
          }",
    );
    let args = |q: [usize; 2], y: [usize; 2]| {
        vec![Arg::f32(vec![0.0; q[0] * q[1]], &q), Arg::f32(vec![0.0; y[0] * y[1]], &y)]
    };
    assert_eq!(run(&kernel, args([1, 9], [1, 3]))[1].as_f32()[0], 5.0);
    let error = fault(&kernel, args([1, 2], [1, 3])).to_string();
    assert_eq!(error, "parts: `q` has shape [1, 2], expected [N = 1, DC + DR + 1]");
    let error = fault(&kernel, args([2, 9], [1, 3])).to_string();
    assert_eq!(error, "parts: `y` has shape [1, 3], expected [N = 2, DC = 3]");
}

#[test]
fn arguments_of_another_kind_are_named() {
    let scalar = Arg::Scalar(tessera_tile_ir::op::Literal::Int(3));
    let args = vec![scalar, Arg::f32(vec![], &[0, 0]), Arg::f32(vec![], &[0, 0])];
    let error = fault(&gemm(), args).to_string();
    assert_eq!(error, "gemm: `x` holds the number Int(3), expected an array of f32");
    let args =
        vec![Arg::f32(vec![0.0; 5], &[2, 3]), Arg::f32(vec![], &[3, 0]), Arg::f32(vec![], &[2, 0])];
    let error = fault(&gemm(), args).to_string();
    let expect = "gemm: `x` has strides [3, 1] for shape [2, 3]: it holds fewer elements";
    assert_eq!(error, expect);
}
