//! A whole launch: a product of ragged tiles.

use tessera_tile_ir::eval::{Arg, Args, Evaluator, evaluate};
use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::op::{Binary, Literal};
use tessera_tile_ir::{Access, Builder, Elem, Kernel, Loc, OpKind, Param, ParamKind, Type};

const LOC: Loc = Loc { file: "gemm.rs", line: 1, column: 1 };

/// `y[M, N] = x[M, K] * w[K, N]` in tiles of `bm` rows, 16 columns and 8 of the sum.
fn gemm(bm: usize) -> Kernel {
    let mut b = Builder::new("gemm", LOC);
    let axis = |b: &mut Builder, name| Extent { dims: vec![b.dim(name)], constant: 0 };
    for (name, access, dims) in [
        ("x", Access::Read, ["M", "K"]),
        ("w", Access::Read, ["K", "N"]),
        ("y", Access::Write, ["M", "N"]),
    ] {
        let dims = dims.map(|dim| axis(&mut b, dim)).to_vec();
        let kind = ParamKind::View { elem: Elem::F32, access, dims };
        b.param(Param { name: name.to_owned(), kind, loc: LOC });
    }
    let i64s = [Type::scalar(Elem::I64)];
    let int = |b: &mut Builder, value: usize| {
        let literal = Literal::Int(i64::try_from(value).unwrap());
        b.push(LOC, OpKind::Const(literal), &[], &i64s)[0]
    };
    let binary = |b: &mut Builder, op, x, y| b.push(LOC, OpKind::Binary(op), &[x, y], &i64s)[0];
    b.open(LOC, &[]);
    let mut extents = Vec::new();
    for (name, tile) in [("M", bm), ("N", 16)] {
        let dim = b.dim(name);
        let extent = b.push(LOC, OpKind::Dim(dim), &[], &i64s)[0];
        let less = int(&mut b, tile - 1);
        let above = binary(&mut b, Binary::Add, extent, less);
        let tile = int(&mut b, tile);
        extents.push(binary(&mut b, Binary::Div, above, tile));
    }
    let grid = b.close(LOC, &extents);
    b.open(LOC, &[]);
    let [m, n] = [(0, bm), (1, 16)].map(|(axis, tile)| {
        let id = b.push(LOC, OpKind::ProgramId(axis), &[], &i64s)[0];
        let tile = int(&mut b, tile);
        binary(&mut b, Binary::Mul, id, tile)
    });
    let acc = Type::tile(Elem::F32, &[bm, 16]);
    let zero = b.push(LOC, OpKind::Const(Literal::Float(0.0)), &[], &[Type::scalar(Elem::F32)])[0];
    let zeros = b.push(LOC, OpKind::Broadcast, &[zero], &[acc.clone()])[0];
    let start = int(&mut b, 0);
    let dim = b.dim("K");
    let end = b.push(LOC, OpKind::Dim(dim), &[], &i64s)[0];
    let inside = b.open(LOC, &[Type::scalar(Elem::I64), acc.clone()]);
    let x = b.push(LOC, OpKind::Load(0), &[m, inside[0]], &[Type::tile(Elem::F32, &[bm, 8])])[0];
    let w = b.push(LOC, OpKind::Load(1), &[inside[0], n], &[Type::tile(Elem::F32, &[8, 16])])[0];
    let sum = b.push(LOC, OpKind::Dot, &[x, w, inside[1]], &[acc.clone()])[0];
    let region = b.close(LOC, &[sum]);
    let kind = (OpKind::For { step: 8 }, vec![region]);
    let sum = b.push_with(LOC, kind, &[start, end, zeros], &[acc])[0];
    b.push(LOC, OpKind::Store(2), &[m, n, sum], &[]);
    let body = b.close(LOC, &[]);
    b.finish(grid, body).unwrap()
}

fn values(count: usize, modulus: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7 % modulus) as f32 - 3.0).collect()
}

fn check([m, n, k]: [usize; 3]) {
    let (x, w) = (values(m * k, 11), values(k * n, 13));
    let expect: Vec<f32> = (0..m * n)
        .map(|at| (0..k).map(|i| x[at / n * k + i] * w[i * n + at % n]).sum())
        .collect();
    let kernel = gemm(4);
    let args = [Arg::f32(x, &[m, k]), Arg::f32(w, &[k, n]), Arg::f32(vec![9.0; m * n], &[m, n])];
    let mut args = Args(args.into());
    evaluate(&kernel, &mut args).unwrap();
    assert_eq!(args.0[2].as_f32(), expect);
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
fn a_launch_counts_its_work() {
    let args = [
        Arg::f32(vec![1.0; 4 * 16], &[4, 16]),
        Arg::f32(vec![1.0; 16 * 20], &[16, 20]),
        Arg::f32(vec![0.0; 4 * 20], &[4, 20]),
    ];
    let counts = Evaluator::new(&gemm(4)).run(&mut Args(args.into())).unwrap();
    // Two tiles of columns: x is read twice, w and y once; the tiles are computed whole.
    assert_eq!(counts.flops, 2 * 4 * 16 * 16);
    assert_eq!(counts.loaded, [2.0 * 256.0, 1280.0, 0.0]);
    assert_eq!(counts.stored, [0.0, 0.0, 320.0]);
}

#[test]
fn shapes_that_differ_are_named() {
    let args = [
        Arg::f32(vec![0.0; 12], &[4, 3]),
        Arg::f32(vec![0.0; 6], &[3, 2]),
        Arg::f32(vec![0.0; 12], &[4, 3]),
    ];
    let error = evaluate(&gemm(4), &mut Args(args.into())).unwrap_err().to_string();
    assert_eq!(error, "gemm: `y` has shape [4, 3], expected [M = 4, N = 2]");
}
