//! Codes on their way into matrix instructions: every pair of every small format stands there for
//! what its format's table says, NaN and infinity included, whichever way its tile lies in memory.

use tessera_emulator::{Config, Machine};
use tessera_kernel_dsl::prelude::*;
use tessera_kernel_dsl::{Target, kernel};
use tessera_kernel_tool::cases::Built;
use tessera_kernel_tool::emulate;
use tessera_ptx::{Origin, Sm, compile};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Args, Data, evaluate};
use tessera_tile_ir::format::Element;

/// Rows and columns of a tile.
const ROWS: usize = 64;
const COLS: usize = 32;

macro_rules! small_formats {
    (|$name:ident| $body:expr) => {{
        {
            type $name = tessera_kernels::formats::number::E4M3;
            $body;
        }
        {
            type $name = tessera_kernels::formats::number::E5M2;
            $body;
        }
    }};
}

/// Codes times one, along their rows and down their columns: the tile waits in shared memory for two
/// dots.
#[kernel(grid = (cdiv(M, ROWS)), formats(KV = small_formats), class = exact)]
fn shared_codes<KV: Stored>(
    codes: &In<KV, { [M, K] }>,
    along: &mut Out<f32, { [M, K] }>,
    down: &mut Out<f32, { [M, K] }>,
) {
    let first = program_id(0) * ROWS;
    let real = codes.tile([first, 0], [ROWS, COLS]).decode();
    along.store([first, 0], dot(real, one(COLS), zeros([ROWS, COLS])));
    down.store([first, 0], dot(one(ROWS), real, zeros([ROWS, COLS])));
}

/// Codes times one, loaded by the threads that multiply them.
#[kernel(grid = (cdiv(M, ROWS)), formats(KV = small_formats), class = exact)]
fn loaded_codes<KV: Stored>(codes: &In<KV, { [M, K] }>, along: &mut Out<f32, { [M, K] }>) {
    let first = program_id(0) * ROWS;
    let real = codes.tile([first, 0], [ROWS, COLS]).decode();
    along.store([first, 0], dot(real, one(COLS), zeros([ROWS, COLS])));
}

/// The matrix that changes nothing.
#[tile_fn]
fn one(size: usize) -> Tile<f32> {
    let index = iota(size);
    select(index.reshape([size, 1]) == index.reshape([1, size]), 1.0, 0.0)
}

/// Runs a kernel for an element on tiles of codes and holds it to the evaluator, which reads the
/// format's table.
fn check(kernels: Vec<Kernel>, element: Element, codes: &[u8]) {
    let name = element.name();
    let kernel = kernels.into_iter().find(|kernel| kernel.formats == [name]).expect("the format");
    let origin = Origin { class: String::new(), source_hash: String::new() };
    let compiled = compile(&kernel, &origin, Sm::Sm90a).unwrap_or_else(|e| panic!("{}", e[0]));
    let rows = codes.len() / COLS;
    let built = || {
        let array = |data| Arg::array(data, &[rows, COLS]);
        let mut args = vec![array(Data::Stored(codes.to_vec()))];
        let outs = kernel.params.len() - 1;
        args.extend((0..outs).map(|_| array(Data::F32(vec![0.0; rows * COLS]))));
        let names = kernel.params.iter().map(|param| param.name.clone()).collect();
        let weights = kernel.params.iter().map(|_| None).collect();
        Built { names, args: Args(args), weights }
    };
    let (mut got, mut want) = (built(), built());
    evaluate(&kernel, &mut want.args).expect("it runs");
    let mut machine = Machine::new(Config::default());
    emulate::run(&kernel, &compiled, &mut got, &mut machine).expect("it runs");
    let arrays = got.args.0.iter().zip(&want.args.0).zip(&got.names).skip(1);
    for ((got, want), array) in arrays {
        for (i, (got, want)) in got.as_f32().iter().zip(want.as_f32()).enumerate() {
            // An infinity meets the zeros that are the rest of one in bfloat16.
            let agree = got == want || !got.is_finite() && !want.is_finite();
            assert!(agree, "{name}: `{array}`[{i}] is {got}, expected {want}");
        }
    }
}

/// Tiles in which every two numbers of a format stand side by side, and in others one above the
/// other.
fn pairs_of_numbers(element: Element) -> Vec<u8> {
    let is_number = |code: &u8| element.decode(u32::from(*code)).is_finite();
    let numbers: Vec<u8> = (0..=255).filter(is_number).collect();
    let pair = |n: usize| {
        let n = n % (numbers.len() * numbers.len());
        [numbers[n / numbers.len()], numbers[n % numbers.len()]]
    };
    let tiles = (numbers.len() * numbers.len()).div_ceil(ROWS * COLS / 2);
    let beside = (0..tiles * ROWS * COLS).map(|i| pair(i / 2)[i % 2]);
    let above = (0..tiles * ROWS * COLS).map(|i| {
        let (row, col) = (i / COLS, i % COLS);
        pair(row / 2 * COLS + col)[row % 2]
    });
    beside.chain(above).collect()
}

/// Every code that is no number before and after every code: a pair a row, in other tiles a pair a
/// column. What it meets is no number any more, and nothing else.
fn pairs_with_others(element: Element) -> Vec<u8> {
    let others = (0..=255).filter(|code: &u8| !element.decode(u32::from(*code)).is_finite());
    let pairs: Vec<[u8; 2]> = others
        .flat_map(|other| (0..=255).flat_map(move |code| [[other, code], [code, other]]))
        .collect();
    let mut codes = Vec::new();
    for (tile, pairs) in pairs.chunks(ROWS).enumerate() {
        codes.resize((tile + 1) * ROWS * COLS, 0);
        for (row, pair) in pairs.iter().enumerate() {
            codes[(tile * ROWS + row) * COLS + row % (COLS / 2) * 2..][..2].copy_from_slice(pair);
        }
    }
    for pairs in pairs.chunks(COLS) {
        let first = codes.len();
        codes.resize(first + ROWS * COLS, 0);
        for (col, pair) in pairs.iter().enumerate() {
            for (i, code) in pair.iter().enumerate() {
                codes[first + (col % (ROWS / 2) * 2 + i) * COLS + col] = *code;
            }
        }
    }
    codes
}

fn of_all(entry: &tessera_kernel_dsl::Entry) -> Vec<Kernel> {
    (entry.build)(Target::Sm90a).into_iter().map(|kernel| kernel.expect("it builds")).collect()
}

#[test]
fn every_pair_of_numbers_is_the_two_of_its_table() {
    for element in [Element::F8E4M3, Element::F8E5M2] {
        let codes = pairs_of_numbers(element);
        check(of_all(&shared_codes()), element, &codes);
        check(of_all(&loaded_codes()), element, &codes);
    }
}

#[test]
fn what_is_no_number_becomes_none() {
    for element in [Element::F8E4M3, Element::F8E5M2] {
        let codes = pairs_with_others(element);
        check(of_all(&shared_codes()), element, &codes);
        check(of_all(&loaded_codes()), element, &codes);
    }
}
