//! The evaluator against values worked out by hand. Kernels are in the text form.

mod codes;
mod elementwise;
mod faults;
mod flow;
mod launch;
mod shapes;
mod views;

use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Args, EvalError, evaluate};
use tessera_tile_ir::format::{Element, Format, ScaleTile, ScaleType, Tol};
use tessera_tile_ir::text::{Names, parse};

const TOL: Tol = Tol { element: 0.0, tensor: 0.0 };

/// FP8 codes, an f32 scale for each two of a row.
static E4M3_G2: Format = Format {
    name: "e4m3-g2",
    element: Element::F8E4M3,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: 1,
        cols: 2,
        ragged: false,
        divisor: 448.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: TOL,
    activation: None,
};

/// Four-bit integers, a bf16 scale for each four of a row.
static I4_G4: Format = Format {
    name: "i4-g4",
    element: Element::I4,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::Bf16,
        rows: 1,
        cols: 4,
        ragged: false,
        divisor: 7.0,
        precision: ScaleType::Bf16,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: TOL,
    activation: None,
};

const NAMES: Names<'static> = Names {
    elements: &[Element::F16, Element::Bf16, Element::F8E4M3, Element::F4E2M1, Element::I4],
    formats: &[&E4M3_G2, &I4_G4],
};

/// A verified kernel.
fn kernel(text: &str) -> Kernel {
    let kernel = parse("test.tile", text, &NAMES).unwrap_or_else(|error| panic!("{error}"));
    kernel.verify().unwrap_or_else(|errors| panic!("{}", errors[0]));
    kernel
}

/// A kernel of one program: its parameters and its body.
fn single(dims: &str, params: &str, body: &str) -> Kernel {
    kernel(&format!(
        "kernel k dims({dims}) {{ {params}
           grid {{ %0: i64 = const 1 yield (%0) }}
           body {{ {body} yield }} }}"
    ))
}

/// Runs a kernel and gives its arguments back.
fn run(kernel: &Kernel, args: Vec<Arg>) -> Vec<Arg> {
    let mut args = Args(args);
    evaluate(kernel, &mut args).unwrap_or_else(|error| panic!("{error}"));
    args.0
}

/// Runs a kernel that fails.
fn fault(kernel: &Kernel, args: Vec<Arg>) -> EvalError {
    evaluate(kernel, &mut Args(args)).expect_err("the launch is at fault")
}

/// Runs `body`, which makes `%9: f32[n]` from nothing, and gives its elements.
fn floats(body: &str, n: usize) -> Vec<f32> {
    let store = "%90: i64 = const 0 store y (%90, %9)";
    let values = filled(&format!("{body} {store}"));
    let kernel = single("N", "param y: out f32[N]", &values);
    run(&kernel, vec![Arg::f32(vec![99.0; n], &[n])])[0].as_f32().to_vec()
}

/// Texts of tests leave numbers out; the text form does not.
fn filled(body: &str) -> String {
    let used: Vec<usize> = body
        .split('%')
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect();
    let last = used.iter().copied().max().unwrap_or(0);
    let missing = (1..last).filter(|value| !used.contains(value));
    let dummies = missing.map(|value| format!("%{value}: bool = const true "));
    dummies.collect::<String>() + body
}
