//! The verifier: each mistake with its code, its words and its place.

use tessera_tile_ir::format::{Element, Format, ScaleTile, ScaleType, Tol, WHOLE};
use tessera_tile_ir::text::{Names, parse};
use tessera_tile_ir::{Builder, Loc, OpKind, Type};

const fn format(name: &'static str, cols: usize, zero_point: bool) -> Format {
    Format {
        name,
        element: Element::I4,
        scale_tile: Some(ScaleTile {
            scale: ScaleType::F32,
            rows: 1,
            cols,
            ragged: false,
            divisor: 7.0,
            precision: ScaleType::F32,
        }),
        zero_point,
        tensor_scale: false,
        tol: Tol { element: 0.0, tensor: 0.0 },
        activation: None,
    }
}

static G2: Format = format("g2", 2, false);
static G3: Format = format("g3", 3, false);
static G4: Format = format("g4", 4, false);
static G4_ZP: Format = format("g4-zp", 4, true);
static ROW: Format = format("row", WHOLE, false);

const NAMES: Names<'static> =
    Names { elements: &[Element::Bf16, Element::F8E4M3], formats: &[&G2, &G3, &G4, &G4_ZP, &ROW] };

const PARAMS: &str = "param x: in f32[M, N] param y: out f32[M, N] param z: inout f32[M, N]
    param n: inout u32[N] param w: in packed<g4>[M, N] param r: in packed<row>[M, N]
    param eps: f32 ";

/// The mistakes of a text.
fn mistakes(text: &str) -> Vec<String> {
    let kernel = parse("k.tile", text, &NAMES).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let errors = kernel.verify().err().unwrap_or_default();
    errors.iter().map(|error| format!("{} {}", error.code, error.message)).collect()
}

/// Checks the mistakes of a body. `%0` is an i64, `%1` an f32[4, 4], `%2` a bool.
fn check(body: &str, expect: &[&str]) {
    let text = format!(
        "kernel k dims(M, N) {{ {PARAMS} grid {{ %3: i64 = dim M yield (%3) }}
         body {{ %0: i64 = const 0 %1: f32[4, 4] = load x (%0, %0) %2: bool = const true
           {body} yield }} }}"
    );
    assert_eq!(mistakes(&text), expect, "{body}");
}

#[test]
fn sound_bodies() {
    for body in [
        "",
        "%4: u32 = const -1 atomic max n (%0, %4)",
        "%4: f32[4] = load z (%0, %0) store z (%0, %0, %4)",
        "%4: f32[4] = load_until z (%0, %0, %0) store_until z (%0, %0, %0, %4)",
        "%4: packed<g2>[4, 4] = quantize g2 (%1) %5: packed<g4>[4, 4] = load w (%0, %0)
         %6: f32[4, 4] = dot_scaled (%4, %5, %1)",
        "%4: packed<g4>[4, 4] = quantize g4 (%1) %5: packed<row>[4, 4] = load r (%0, %0)
         %6: f32[4, 4] = dot_scaled (%4, %5, %1)",
        "%4: bool = eq (%2, %2) if (%4) { yield } { yield }",
    ] {
        check(body, &[]);
    }
}

#[test]
fn types() {
    let pair = "%4: f32[4] = load x (%0, %0)";
    check(
        &format!("{pair} %5: f32[4] = add (%4, %1)"),
        &["K011 `add` takes two tiles of numbers of one type; this takes (f32[4], f32[4, 4]), \
         gives f32[4]"],
    );
    check(
        "%4: bool = add (%2, %2)",
        &["K011 `add` takes two tiles of numbers of one type; this takes (bool, bool), gives bool"],
    );
    check(
        "%4: f32[4, 4] = rem (%1, %1)",
        &[
            "K011 `rem` takes two tiles of integers of one type; this takes (f32[4, 4], f32[4, 4]), \
         gives f32[4, 4]",
        ],
    );
    check(
        "%4: i64 = exp (%0)",
        &["K011 `exp` takes f32 and keeps the shape; this takes (i64), gives i64"],
    );
    check(
        "%4: f32[2, 6] = broadcast (%1)",
        &["K011 `broadcast` takes a tile whose extents are 1, missing or those of the result; \
         this takes (f32[4, 4]), gives f32[2, 6]"],
    );
    check(
        "%4: f32[3, 5] = reshape (%1)",
        &[
            "K011 `reshape` takes a tile of as many elements as the result; this takes (f32[4, 4]), \
         gives f32[3, 5]",
        ],
    );
    check(
        "%4: f32[4, 2] = slice 1 3 (%1)",
        &["K011 `slice` takes a tile that has that range; this takes (f32[4, 4]), gives f32[4, 2]"],
    );
    check(
        "%4: f32[4, 2] = load x (%0, %0) %5: f32[4, 4] = dot (%4, %1, %1)",
        &["K011 `dot` takes f32 of [m, k], [k, n] and [m, n]; this takes (f32[4, 2], f32[4, 4], \
         f32[4, 4]), gives f32[4, 4]"],
    );
    check("assert \"x\" (%0)", &["K011 `assert` takes truths; this takes (i64), gives nothing"]);
    check(
        "%4: f32 = const 1.0 %5: i64 = bitcast i64 (%4)",
        &["K011 `bitcast` takes numbers of the same width; this takes (f32), gives i64"],
    );
}

#[test]
fn every_op_refuses_no_operands() {
    for op in [
        "broadcast",
        "reshape",
        "transpose",
        "slice 0 0",
        "concat 0",
        "load x",
        "load_until x",
        "load_rows x",
        "gather x",
        "neg",
        "exp",
        "not",
        "is_nan",
        "add",
        "and",
        "shl",
        "eq",
        "lt",
        "select",
        "fma",
        "cast f32",
        "bitcast f32",
        "reduce sum 0",
        "argmax 0",
        "scan sum 0",
        "decode",
        "encode bf16",
        "dot",
        "quantize g2",
        "dot_scaled",
    ] {
        let text = format!(
            "kernel k dims(M, N) {{ {PARAMS} grid {{ %0: i64 = const 1 yield (%0) }}
             body {{ %1: f32[4, 4] = {op} yield }} }}"
        );
        let found = mistakes(&text);
        let coded =
            found.len() == 1 && (found[0].starts_with("K011") || found[0].starts_with("K010"));
        assert!(coded, "{op}: {found:?}");
    }
}

#[test]
fn loops_and_branches() {
    check(
        "%4: i64 = for 0 (%0, %0, %0) {|%5: i64, %6: i64| yield (%6) }",
        &["K011 a loop with a step of 0 never ends"],
    );
    check(
        "%4: i64 = for 1 (%0, %0, %0) {|%5: i64, %6: i64| yield (%1) }",
        &["K011 a loop carries (i64), enters with (i64), yields (f32[4, 4]) and gives (i64)"],
    );
    check(
        "for 1 (%0) {|%4: i64| yield }",
        &["K010 a loop has two bounds, and its region an index"],
    );
    check("if (%1) { yield } { yield }", &["K011 a branch takes one truth, not (f32[4, 4])"]);
    check("if (%2) { yield }", &["K010 a branch has two regions"]);
    check(
        "%4: i64 = if (%2) { yield (%0) } { yield (%2) }",
        &["K011 a branch yields (i64) or (bool) and gives (i64)"],
    );
    check("if (%2) { yield } { }", &["K010 a region does not end with a yield"]);
    check("yield", &["K010 a yield ends its region"]);
    check(
        "if (%2) { %4: i64 = const 1 yield } { yield } %5: i64 = neg (%4)",
        &["K012 `neg` uses %4, which is not defined here"],
    );
    check(
        "%4: i64 = neg (%5) %5: i64 = neg (%0)",
        &["K012 `neg` uses %5, which is not defined here"],
    );
    check("%4: i64 = neg (%3)", &["K012 `neg` uses %3, which is not defined here"]);
}

#[test]
fn views_are_used_in_their_direction() {
    check("%4: f32[4] = load y (%0, %0)", &["K014 `y` is an Out: it cannot be read"]);
    check("store x (%0, %0, %1)", &["K014 `x` is an In: it cannot be written"]);
    check(
        "%4: f32 = const 1.0 atomic add y (%0, %0, %4)",
        &["K014 an atomic reads and writes `y`: make it an InOut"],
    );
    check(
        "%4: f32 = const 1.0 atomic add z (%0, %0, %4)",
        &["K020 `z` holds f32: atomics are for integers"],
    );
    check(
        "%4: f32 = load x (%0)",
        &[
            "K011 `load` takes one i64 per axis, for a tile of no more axes than the view; this takes \
         (i64), gives f32; `x` has 2 axes of f32",
        ],
    );
    check(
        "store n (%0, %1)",
        &[
            "K011 `store` takes one i64 per axis and a tile of no more axes than the view; this takes \
         (i64, f32[4, 4]), gives nothing; `n` has 1 axes of u32",
        ],
    );
    check(
        "%4: i64[4] = iota 4 %5: u32[4, 2] = load_rows n (%4, %0)",
        &["K011 `load_rows` takes i64[rows] and an i64 column of a view of 2 axes; this takes \
         (i64[4], i64), gives u32[4, 2]; `n` has 1 axes of u32"],
    );
    check(
        "%4: f32 = load_until x (%0, %0)",
        &["K011 `load_until` takes one i64 per axis and an end, for a tile of no more axes than \
         the view; this takes (i64, i64), gives f32; `x` has 2 axes of f32"],
    );
    check(
        "store_until y (%0, %0, %2, %1)",
        &["K011 `store_until` takes one i64 per axis, an end and a tile of no more axes than the \
         view; this takes (i64, i64, bool, f32[4, 4]), gives nothing; `y` has 2 axes of f32"],
    );
    check("%4: f32 = load_until y (%0, %0, %0)", &["K014 `y` is an Out: it cannot be read"]);
    check("store_until x (%0, %0, %0, %1)", &["K014 `x` is an In: it cannot be written"]);
    check("%4: f32 = load eps ()", &["K013 `eps` is a number, not a view"]);
    check("%4: f32 = scalar x", &["K013 parameter 0 is no scalar"]);
    check("%4: i64 = program_id 1", &["K013 the grid has 1 axes, no axis 1"]);
}

#[test]
fn packed_tiles() {
    let load = "%4: packed<g4>[4, 4] = load w (%0, %0)";
    check(
        "%4: packed<g4>[4, 4] = load_until w (%0, %0, %0)",
        &["K017 `w` holds g4: it cannot end early"],
    );
    check(
        &format!("{load} %5: packed<g4>[4, 4] = transpose (%4)"),
        &["K017 `transpose` of packed<g4>[4, 4]: decode it first"],
    );
    check(
        &format!("{load} %5: packed<g3>[4, 4] = quantize g3 (%1)"),
        &["K018 4 columns cut the scale groups of g3, 3 wide"],
    );
    check(
        "%4: packed<row>[4, 4] = quantize row (%1)",
        &["K018 a kernel cannot quantize to row: rows share its scales"],
    );
    check(
        "%4: packed<g4-zp>[4, 4] = quantize g4-zp (%1)",
        &["K018 a kernel cannot quantize to g4-zp: it has more than scales"],
    );
    check(
        "%4: f32[4, 12] = load x (%0, %0) %5: packed<g3>[4, 12] = quantize g3 (%4)
         %6: packed<g4>[4, 12] = load w (%0, %0) %7: f32[4, 4] = dot_scaled (%5, %6, %1)",
        &["K019 scale groups of 3 (packed<g3>[4, 12]) and 4 (packed<g4>[4, 12]) do not nest"],
    );
    check(
        "%4: f32[4, 6] = load x (%0, %0) %5: packed<g2>[4, 6] = quantize g2 (%4)
         %6: packed<g4>[4, 6] = load w (%0, %0) %7: f32[4, 4] = dot_scaled (%5, %6, %1)",
        &["K019 6 columns cut scale groups of 4"],
    );
}

#[test]
fn tiles_and_constants_that_cannot_be() {
    check(
        "%4: f32[2, 2, 4] = reshape (%1)",
        &["K016 a tile has at most two axes, none of 0: not f32[2, 2, 4]"],
    );
    check("%4: i64[0] = iota 0", &["K016 a tile has at most two axes, none of 0: not i64[0]"]);
    check("%4: i32 = const 2147483648", &["K022 Int(2147483648) is no constant of i32"]);
    check("%4: u32 = const 4294967296", &["K022 Int(4294967296) is no constant of u32"]);
}

#[test]
fn grids_are_made_from_dims() {
    let grid = |grid: &str| {
        mistakes(&format!(
            "kernel k dims(M) {{ param x: in i64[M] param s: i64 grid {{ {grid} }} body {{ yield }} }}"
        ))
    };
    assert_eq!(
        grid("%0: i64 = scalar s yield (%0)"),
        ["K015 a grid cannot use `scalar`: it is made from dims"]
    );
    assert_eq!(
        grid("%0: i64 = const 1 %1: i64 = load x (%0) yield (%1)"),
        ["K015 a grid cannot use `load`: it is made from dims"]
    );
    let extents = "K015 a grid is one to three extents made from dims";
    assert_eq!(grid("yield"), [extents]);
    assert_eq!(grid("%0: bool = const true yield (%0)"), [extents]);
    assert_eq!(grid("%0: i64 = dim M yield (%0, %0, %0, %0)"), [extents]);
}

#[test]
fn parameters_that_cannot_be() {
    let params = |params: &str| {
        let grid = "grid { %0: i64 = const 1 yield (%0) }";
        mistakes(&format!("kernel k dims(M, N) {{ {params} {grid} body {{ yield }} }}"))
    };
    assert_eq!(
        params("param x: in bool[M, N]"),
        ["K016 `x` cannot hold truths: their layout is not defined"]
    );
    assert_eq!(
        params("param x: in f32[M, N] param x: i64"),
        ["K013 two parameters are called `x`"]
    );
    assert_eq!(params("param w: out packed<g4>[M, N]"), ["K014 `w` holds g4: it can only be read"]);
    assert_eq!(
        params("param w: in packed<g4>[M + N]"),
        ["K016 `w` is packed: it has 2 axes, or 3 with experts first"]
    );
    assert_eq!(params("param x: in f32[]"), ["K016 `x` has no axes"]);
    assert_eq!(params("param x: in f32[M + N, M]"), Vec::<String>::new());
    assert_eq!(
        params("param x: in f32[M + N, 4]"),
        [
            "K021 no view defines the launch extent `M`",
            "K021 no view defines the launch extent `N`",
        ]
    );
}

#[test]
fn a_builder_gives_verified_kernels() {
    let at = |line| Loc { file: "kernels/src/op.rs", line, column: 7 };
    let mut builder = Builder::new("k", at(1));
    builder.open(at(1), &[]);
    let one = OpKind::Const(tessera_tile_ir::op::Literal::Int(1));
    let i64s = Type::scalar(tessera_tile_ir::Elem::I64);
    let extent = builder.push(at(1), one, &[], std::slice::from_ref(&i64s));
    let grid = builder.close(at(1), &extent);
    builder.open(at(1), &[]);
    builder.push(at(5), OpKind::ProgramId(3), &[], &[i64s]);
    let body = builder.close(at(1), &[]);
    let errors = builder.finish(grid, body).expect_err("there is no axis 3");
    assert_eq!(
        errors[0].to_string(),
        "error[K013]: the grid has 1 axes, no axis 3\n  --> kernels/src/op.rs:5:7"
    );
}
