//! Ops that move elements or combine them along an axis.

use crate::floats;

/// 0, 1, .. 5 as f32[2, 3].
const GRID: &str = "%1: i64[6] = iota 6 %2: f32[6] = cast f32 (%1) %3: f32[2, 3] = reshape (%2)";

fn check(ops: &str, expect: &[f32]) {
    let n = expect.len();
    let body = format!("{GRID} {ops} %9: f32[{n}] = reshape (%8)");
    assert_eq!(floats(&body, n), expect, "{ops}");
}

#[test]
fn broadcasts_repeat() {
    check("%8: f32[2, 6] = broadcast (%2)", &[0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5.]);
    check("%4: f32[2, 1] = reduce max 1 (%3) %8: f32[2, 2] = broadcast (%4)", &[2., 2., 5., 5.]);
    check(
        "%4: f32[1, 3] = reduce max 0 (%3) %8: f32[2, 3] = broadcast (%4)",
        &[3., 4., 5., 3., 4., 5.],
    );
    check("%4: f32 = const 7.0 %8: f32[1, 3] = broadcast (%4)", &[7.0; 3]);
}

#[test]
fn transposes_swap() {
    check("%8: f32[3, 2] = transpose (%3)", &[0., 3., 1., 4., 2., 5.]);
}

#[test]
fn slices_and_joins() {
    check("%8: f32[2, 2] = slice 1 1 (%3)", &[1., 2., 4., 5.]);
    check("%8: f32[1, 3] = slice 0 1 (%3)", &[3., 4., 5.]);
    check("%8: f32[2] = slice 0 3 (%2)", &[3., 4.]);
    check(
        "%4: f32[2, 1] = slice 1 2 (%3) %8: f32[2, 4] = concat 1 (%3, %4)",
        &[0., 1., 2., 2., 3., 4., 5., 5.],
    );
    check(
        "%4: f32[1, 3] = slice 0 1 (%3) %8: f32[3, 3] = concat 0 (%4, %3)",
        &[3., 4., 5., 0., 1., 2., 3., 4., 5.],
    );
    check(
        "%4: f32[1] = slice 0 5 (%2) %8: f32[7] = concat 0 (%2, %4)",
        &[0., 1., 2., 3., 4., 5., 5.],
    );
}

#[test]
fn reductions() {
    check("%8: f32[2, 1] = reduce sum 1 (%3)", &[3., 12.]);
    check("%8: f32[1, 3] = reduce sum 0 (%3)", &[3., 5., 7.]);
    check("%8: f32[2, 1] = reduce min 1 (%3)", &[0., 3.]);
    check("%8: f32[1] = reduce max 0 (%2)", &[5.]);
    let ints = "%4: i64[1] = reduce xor 0 (%1) %8: f32[1] = cast f32 (%4)";
    check(ints, &[1.]);
    let ints = "%4: i64[1] = reduce or 0 (%1) %8: f32[1] = cast f32 (%4)";
    check(ints, &[7.]);
    let truths = "%4: f32 = const 2.0 %5: f32[2, 3] = broadcast (%4) %6: bool[2, 3] = gt (%3, %5)
                  %7: bool[2, 1] = reduce and 1 (%6) %10: f32 = const 1.0 %11: f32 = const 0.0
                  %12: f32[2, 1] = broadcast (%10) %13: f32[2, 1] = broadcast (%11)
                  %8: f32[2, 1] = select (%7, %12, %13)";
    check(truths, &[0., 1.]);
}

#[test]
fn one_nan_is_the_largest_and_the_smallest() {
    let body = "%1: i64[3] = iota 3 %2: f32[3] = cast f32 (%1) %3: f32 = const 1.0
                %4: f32[3] = broadcast (%3) %5: bool[3] = eq (%2, %4) %6: f32 = const NaN
                %7: f32[3] = broadcast (%6) %8: f32[3] = select (%5, %7, %2)";
    for op in ["reduce max 0", "reduce min 0"] {
        let nan = floats(&format!("{body} %9: f32[1] = {op} (%8)"), 1);
        assert!(nan[0].is_nan(), "{op}");
    }
    let argmax = format!("{body} %10: i64[1] = argmax 0 (%8) %9: f32[1] = cast f32 (%10)");
    assert_eq!(floats(&argmax, 1), [1.0]);
}

#[test]
fn argmax_takes_the_first() {
    check("%4: i64[2, 1] = argmax 1 (%3) %8: f32[2, 1] = cast f32 (%4)", &[2., 2.]);
    let ties = "%4: f32 = const 1.0 %5: f32[2, 3] = broadcast (%4) %6: f32[2, 3] = min (%3, %5)
                %7: i64[2, 1] = argmax 1 (%6) %8: f32[2, 1] = cast f32 (%7)";
    check(ties, &[1., 0.]);
}

#[test]
fn scans() {
    check("%8: f32[6] = scan sum 0 (%2)", &[0., 1., 3., 6., 10., 15.]);
    check("%8: f32[2, 3] = scan sum 1 (%3)", &[0., 1., 3., 3., 7., 12.]);
    check("%8: f32[2, 3] = scan sum 0 (%3)", &[0., 1., 2., 3., 5., 7.]);
    check("%4: f32[6] = neg (%2) %8: f32[6] = scan max 0 (%4)", &[0.0; 6]);
}

#[test]
fn products() {
    // [0 1 2; 3 4 5] * its transpose, plus 1.
    let ops = "%4: f32[3, 2] = transpose (%3) %5: f32 = const 1.0 %6: f32[2, 2] = broadcast (%5)
               %8: f32[2, 2] = dot (%3, %4, %6)";
    check(ops, &[6., 15., 15., 51.]);
}
