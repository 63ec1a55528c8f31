//! Reads and writes of views, inside and outside.

use crate::{filled, run, single};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Array, Data};

fn copy(body: &str) -> Kernel {
    let params = "param x: in f32[M, N] param y: inout f32[M, N]";
    single("M, N", params, &filled(body))
}

/// x = 1, 2, .. 12 as [3, 4]; y = zeros.
fn copied(body: &str) -> Vec<f32> {
    let x = (1..=12_u8).map(f32::from).collect();
    let args = vec![Arg::f32(x, &[3, 4]), Arg::f32(vec![0.0; 12], &[3, 4])];
    run(&copy(body), args)[1].as_f32().to_vec()
}

#[test]
fn a_window_reads_zeros_and_drops_writes_outside() {
    let body = "%1: i64 = const -1 %2: i64 = const 2 %3: f32[3, 3] = load x (%1, %2)
                %4: i64 = const 1 %5: i64 = const 2 store y (%4, %5, %3)";
    // The window's first row and last column lie outside of x.
    assert_eq!(copied(body), [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 3., 4.]);
    let body = "%1: i64 = const 1 %2: i64 = const -2 %3: f32[2, 4] = load x (%1, %2)
                %4: i64 = const -1 %5: i64 = const -1 store y (%4, %5, %3)";
    // Row 0 is row 2 of x moved right by two, then left by one.
    assert_eq!(copied(body), [0., 9., 10., 0., 0., 0., 0., 0., 0., 0., 0., 0.]);
}

#[test]
fn a_window_may_lie_far_outside() {
    let body = "%1: i64 = const 9223372036854775807 %2: i64 = const -9223372036854775808
                %3: f32[2, 2] = load x (%1, %1) %4: f32[2, 2] = load x (%2, %2)
                %5: f32[2, 2] = add (%3, %4) %6: i64 = const 0 store y (%6, %6, %5)
                store y (%1, %2, %5)";
    assert_eq!(copied(body), [0.0; 12]);
}

#[test]
fn a_view_that_ends_early_reads_zeros_and_drops_writes_from_there() {
    let read = |end: i64| {
        let body = format!(
            "%1: i64 = const 1 %2: i64 = const 0 %3: i64 = const {end}
             %4: f32[2, 4] = load_until x (%1, %2, %3) store y (%2, %2, %4)"
        );
        copied(&body)[..8].to_vec()
    };
    assert_eq!(read(2), [5., 6., 7., 8., 0., 0., 0., 0.]);
    assert_eq!(read(i64::MAX), [5., 6., 7., 8., 9., 10., 11., 12.]);
    assert_eq!(read(1), [0.0; 8]);
    assert_eq!(read(i64::MIN), [0.0; 8]);
    let written = |end: i64| {
        let body = format!(
            "%1: i64 = const 1 %2: i64 = const 0 %3: i64 = const {end} %4: f32 = load x (%2, %2)
             %5: f32[3, 4] = broadcast (%4) store_until y (%2, %2, %3, %5)"
        );
        copied(&body).iter().filter(|&&y| y == 1.0).count()
    };
    assert_eq!([-1, 0, 1, 2, 3, 9].map(written), [0, 0, 4, 8, 12, 12]);
}

#[test]
fn the_first_axis_ends_early_where_it_is_the_only_one_or_not_in_the_tile() {
    let vector = single(
        "N",
        "param x: in i64[N] param y: out i64[N]",
        "%1: i64 = const 1 %2: i64 = const 3 %3: i64[4] = load_until x (%1, %2)
         %4: i64 = const 0 store_until y (%4, %2, %3)",
    );
    let after = run(&vector, vec![Arg::i64(vec![1, 2, 3, 4], &[4]), Arg::i64(vec![9; 4], &[4])]);
    let Arg::Array(Array { data: Data::I64(y), .. }) = &after[1] else { panic!("i64 went in") };
    assert_eq!(y, &[2, 3, 0, 9]);
    // Rows 1 and 2 of x, one by one, of which an end of 2 leaves the first.
    let body = "%1: i64 = const 1 %2: i64 = const 2 %3: i64 = const 0
                %4: f32[4] = load_until x (%1, %3, %2) store_until y (%1, %3, %2, %4)
                %5: f32[4] = load_until x (%2, %3, %2) store y (%3, %3, %5)
                %6: f32[4] = load x (%2, %3) store_until y (%2, %3, %2, %6)";
    assert_eq!(copied(body), [0., 0., 0., 0., 5., 6., 7., 8., 0., 0., 0., 0.]);
}

#[test]
fn a_window_of_less_axes_lies_along_the_last() {
    let body = "%1: i64 = const 2 %2: i64 = const 1 %3: f32[2] = load x (%1, %2)
                %4: i64 = const 0 store y (%4, %4, %3) %5: f32 = load x (%2, %2)
                store y (%2, %1, %5)";
    assert_eq!(copied(body), [10., 11., 0., 0., 0., 0., 6., 0., 0., 0., 0., 0.]);
}

#[test]
fn rows_are_picked_and_placed() {
    let body = "%1: i64[2] = iota 2 %2: i64 = const 3 %3: i64[2] = broadcast (%2)
                %4: i64[2] = mul (%1, %3) %5: i64 = const 2 %6: i64[2] = broadcast (%5)
                %7: i64[2] = sub (%6, %4) %8: i64 = const 1 %9: f32[2, 2] = load_rows x (%7, %8)
                %10: i64 = const 3 store_rows y (%1, %10, %9)";
    // Rows 2 and -1: the second is outside; only one of two columns fits at 3.
    assert_eq!(copied(body), [0., 0., 0., 10., 0., 0., 0., 0., 0., 0., 0., 0.]);
}

#[test]
fn elements_are_gathered_and_scattered() {
    let body = "%1: i64[4] = iota 4 %2: f32[4] = gather x (%1, %1) scatter y (%1, %1, %2)";
    assert_eq!(copied(body), [1., 0., 0., 0., 0., 6., 0., 0., 0., 0., 11., 0.]);
}

#[test]
fn a_read_sees_what_the_same_program_wrote() {
    let body = "%1: i64 = const 0 %2: f32 = const 5.0 store y (%1, %1, %2)
                %3: f32 = load y (%1, %1) %4: f32 = add (%3, %2) %5: i64 = const 1
                store y (%1, %5, %4)";
    assert_eq!(copied(body)[..2], [5.0, 10.0]);
}

#[test]
fn views_of_three_axes() {
    let kernel = single(
        "A, B, C",
        "param x: in i32[A, B, C] param y: out i32[A, B, C]",
        "%1: i64 = const 1 %2: i64 = const 0 %3: i32[2, 2] = load x (%1, %2, %1)
         store y (%2, %2, %2, %3)",
    );
    let x = Arg::array(Data::I32((0..12).collect()), &[2, 2, 3]);
    let after = run(&kernel, vec![x, Arg::array(Data::I32(vec![-1; 12]), &[2, 2, 3])]);
    let Arg::Array(Array { data: Data::I32(y), .. }) = &after[1] else { panic!("i32 went in") };
    assert_eq!(y, &[7, 8, -1, 10, 11, -1, -1, -1, -1, -1, -1, -1]);
}

#[test]
fn atomics_combine() {
    let kernel = crate::kernel(
        "kernel count dims(N) { param y: inout u32[N]
           grid { %0: i64 = const 3 yield (%0) }
           body {
             %1: i64 = program_id 0 %2: u32 = cast u32 (%1) %3: u32 = const 1
             %4: i64 = const 0 atomic add y (%4, %3) %5: i64 = const 1 atomic max y (%5, %2)
             %6: i64 = const 2 atomic min y (%6, %2) %7: i64 = const 3
             %8: u32 = shl (%3, %2) atomic or y (%7, %8) %9: i64 = const -1
             atomic add y (%9, %3) yield
           } }",
    );
    let after = run(&kernel, vec![Arg::array(Data::U32(vec![10, 1, 5, 8]), &[4])]);
    let Arg::Array(Array { data: Data::U32(y), .. }) = &after[0] else { panic!("u32 went in") };
    assert_eq!(y, &[13, 2, 0, 15]);
}
