//! Mistakes that only building a kernel finds: their code, text and place.
//!
//! A place is found in this file by the comment above its line, so lines may move.

use tessera_kernel_dsl::ir::BuildError;
use tessera_kernel_dsl::prelude::*;
use tessera_kernel_dsl::{Entry, Target, block_format, number_format};

number_format! { I4 = Element::I4 }
block_format! { Fours = "fours" {
    element = I4, scale = none, tol = (0.1, 0.1), activation = self,
} }

macro_rules! weight_formats {
    (|$name:ident| $body:expr) => {{
        type $name = Fours;
        $body;
    }};
}

#[kernel(grid = (M), targets(cpu))]
fn shapes(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let a = x.tile([0, 0], [16, 64]);
    let b = x.tile([0, 0], [16, 32]);
    // K001 add
    let c = a + b;
    // K001 sub
    let d = a.cols(0, 8) * a.max(1) - b;
    y.store([0, 0], c);
    y.store([0, 0], d);
}

#[kernel(grid = (M), targets(cpu))]
fn dots(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let a = x.tile([0, 0], [16, 64]);
    let acc = zeros([16, 16]);
    // K004 dot
    y.store([0, 0], dot(a, a, acc));
}

#[kernel(grid = (M), targets(cpu))]
fn ranks(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let m = program_id(0);
    // K008 tile
    y.store([m, 0], x.tile([m], [16]));
}

#[kernel(grid = (M), formats(W = weight_formats), targets(cpu))]
fn packed<W: Packed>(w: &In<W, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let m = program_id(0);
    // K017 until
    let w = w.until(m + 1).tile([m, 0], [1, 16]);
    y.store([m, 0], w.decode());
}

#[kernel(grid = (M), targets(cpu))]
fn carried(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let mut acc = zeros([1, 16]);
    // K007 for
    for k in range(0, K, 16) {
        acc = acc.t() * x.at([0, k]);
    }
    // K007 if
    if x.at([0, 0]) > 0.0 {
        acc = acc.sum(1);
    }
    y.store([0, 0], acc);
}

#[kernel(grid = (M), targets(cpu))]
fn compared(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    let (a, b) = (x.tile([0, 0], [4, 8]), x.tile([0, 0], [8, 4]));
    // K001 <
    let less = a < b;
    // K006 if
    if less {
        y.store([0, 0], a);
    }
}

#[tile_fn]
fn halves(x: Tile<f32>) -> Tile<f32> {
    x.cols(0, 8) + x.cols(8, 4)
}

#[kernel(grid = (M), targets(cpu))]
fn called(x: &In<f32, { [M, K] }>, y: &mut Out<f32, { [M, K] }>) {
    // K001 halves
    y.store([0, 0], halves(x.tile([0, 0], [1, 16])));
}

/// Builds, and checks code, message and place of every mistake. The place is a token of the line
/// below a comment with the code and that token.
fn check(entry: Entry, want: &[(&str, &str, &str)]) {
    let errors: Vec<BuildError> =
        (entry.build)(Target::Cpu).into_iter().filter_map(Result::err).flatten().collect();
    let found: Vec<(&str, &str, u32, u32)> = errors
        .iter()
        .map(|error| (error.code, error.message.as_str(), error.loc.line, error.loc.column))
        .collect();
    let want: Vec<(&str, &str, u32, u32)> = want
        .iter()
        .map(|&(code, token, message)| {
            let (line, column) = place(entry.name, code, token);
            (code, message, line, column)
        })
        .collect();
    assert_eq!(found, want);
    assert!(errors.iter().all(|error| error.loc.file.ends_with("tests/build.rs")));
}

fn place(kernel: &str, code: &str, token: &str) -> (u32, u32) {
    let source = include_str!("build.rs");
    let start = ["(", "<"].iter().find_map(|next| source.find(&format!("fn {kernel}{next}")));
    let start = start.expect("the kernel");
    let marker = format!("// {code} {token}\n");
    let end = start + source[start..].find(&marker).expect("the marker") + marker.len();
    let line = source[..end].lines().count() + 1;
    let text = source[end..].lines().next().expect("a line");
    // Methods and operators by the last one of that name, which is the outermost.
    let spaced = format!(" {token} ");
    let sign = match token {
        "add" => " + ",
        "sub" => " - ",
        "<" => " < ",
        _ => &spaced,
    };
    let column = text.rfind(sign).map(|at| at + 1);
    let column = column.or_else(|| text.rfind(&format!("{token}("))).or_else(|| text.find(token));
    let number = |n: usize| u32::try_from(n).expect("a short file");
    (number(line), number(column.expect("the token") + 1))
}

#[test]
fn shapes_that_differ_point_at_the_operator() {
    check(
        shapes(),
        &[
            ("K001", "add", "tile shapes differ: add of f32[16, 64] and f32[16, 32]"),
            ("K001", "sub", "tile shapes differ: sub of f32[16, 8] and f32[16, 32]"),
        ],
    );
    let notes = (shapes().build)(Target::Cpu).remove(0).expect_err("two mistakes");
    assert_eq!(notes[0].notes.len(), 2);
    assert!(notes[0].notes[0].starts_with("f32[16, 64] made at "), "{:?}", notes[0].notes);
}

#[test]
fn a_dot_points_at_its_name() {
    let message = "dot of f32[16, 64] and f32[16, 64] onto f32[16, 16]";
    check(dots(), &[("K004", "dot", message)]);
}

#[test]
fn a_wrong_number_of_indices_points_at_the_method() {
    check(ranks(), &[("K008", "tile", "`x` has 2 axes, not 1")]);
}

#[test]
fn packed_views_do_not_end_early() {
    check(packed(), &[("K017", "until", "`w` holds fours: it cannot end early")]);
}

#[test]
fn a_carried_tile_keeps_its_type() {
    check(
        carried(),
        &[
            ("K007", "for", "a carried tile is f32[1, 16] and becomes f32[16, 1]"),
            ("K007", "if", "one side of a branch leaves f32[1, 1], the other f32[1, 16]"),
        ],
    );
}

#[test]
fn comparisons_and_branches_point_at_their_tokens() {
    check(
        compared(),
        &[
            ("K001", "<", "tile shapes differ: comparison of f32[4, 8] and f32[8, 4]"),
            ("K006", "if", "a branch takes one truth, not bool[4, 8]"),
        ],
    );
}

#[test]
fn a_mistake_in_a_tile_fn_points_at_its_call() {
    let message = "tile shapes differ: add of f32[1, 8] and f32[1, 4]";
    check(called(), &[("K001", "halves", message)]);
}
