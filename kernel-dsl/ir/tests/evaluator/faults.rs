//! What the evaluator reports, and where.

use crate::{fault, kernel, run};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Args, Data, Evaluator};

/// `programs` programs that each run `body`, with `%1` the program's index.
fn many(programs: usize, elem: &str, body: &str) -> Kernel {
    kernel(&format!(
        "kernel k dims(N) {{ param y: inout {elem}[N]
           grid {{ %0: i64 = const {programs} yield (%0) }}
           body {{ %1: i64 = program_id 0 %2: i64 = const 0 {body} yield }} }}"
    ))
}

fn four(elem: &str) -> Vec<Arg> {
    let data = match elem {
        "f32" => Data::F32(vec![0.0; 4]),
        "u32" => Data::U32(vec![0; 4]),
        _ => Data::Stored(vec![0; 2]),
    };
    vec![Arg::array(data, &[4])]
}

fn race(elem: &str, body: &str) -> String {
    fault(&many(3, elem, body), four(elem)).fault.to_string()
}

#[test]
fn two_programs_write_one_element() {
    let body = "%3: f32[2] = load y (%1) store y (%1, %3)";
    assert_eq!(race("f32", body), "race: it reads `y`[1], which program #0 wrote");
    let body = "%3: f32 = const 1.0 %4: f32[2] = broadcast (%3) store y (%1, %4)";
    assert_eq!(race("f32", body), "race: it writes `y`[1], which program #0 wrote");
}

#[test]
fn a_program_writes_what_another_read() {
    let body = "%3: i64 = const 2 %4: bool = lt (%1, %3)
                if (%4) { %5: f32 = load y (%2) yield }
                        { %6: f32 = const 1.0 store y (%2, %6) yield }";
    assert_eq!(race("f32", body), "race: it writes `y`[0], which other programs read");
}

#[test]
fn a_program_reads_what_another_updates() {
    let body = "%3: u32 = const 1 atomic add y (%2, %3) %4: u32 = load y (%2)";
    assert_eq!(race("u32", body), "race: it updates `y`[0], which program #0 read");
}

#[test]
fn codes_of_one_byte_are_written_by_one_program() {
    let body = "%3: f32 = const 1.0 %4: stored<e2m1> = encode e2m1 (%3) store y (%1, %4)";
    assert_eq!(race("stored<e2m1>", body), "race: it writes `y`[1], which program #0 wrote");
}

#[test]
fn what_lies_past_an_early_end_is_not_touched() {
    let two = |end: &str| {
        format!(
            "%3: i64 = const 1 %4: i64 = add (%1, %3) %5: i64 = add (%4, %3)
             %6: f32[2] = load_until y (%1, {end}) store_until y (%1, {end}, %6)"
        )
    };
    let kernel = many(4, "f32", &two("%4"));
    let mut args = Args(four("f32"));
    let counts = Evaluator::new(&kernel).run(&mut args).expect("programs touch one element each");
    assert_eq!((counts.loaded[0], counts.stored[0]), (16.0, 16.0));
    assert_eq!(race("f32", &two("%5")), "race: it reads `y`[1], which program #0 wrote");
}

#[test]
fn programs_of_their_own_elements_do_not_race() {
    let body = "%3: f32 = load y (%1) %4: f32 = const 1.0 %5: f32 = add (%3, %4)
                store y (%1, %5) store y (%1, %5)";
    let after = run(&many(4, "f32", body), four("f32"));
    assert_eq!(after[0].as_f32(), [1.0; 4]);
}

#[test]
fn one_op_writes_an_element_once() {
    let body = "%3: i64[2] = broadcast (%2) %4: f32 = const 1.0 %5: f32[2] = broadcast (%4)
                scatter y (%3, %5)";
    let error = fault(&many(1, "f32", body), four("f32"));
    assert_eq!(error.fault.to_string(), "one op writes `y`[0] more than once");
}

#[test]
fn assertions_say_who_and_where() {
    let body =
        "\n%3: i64 = const 2\n%4: bool = lt (%1, %3)\n  assert \"page is out of range\" (%4)";
    let error = fault(&many(3, "f32", body), four("f32"));
    assert_eq!(error.at.as_ref().map(|(loc, _)| (loc.line, loc.column)), Some((6, 3)));
    let expect = "k: program [2]: assertion failed: page is out of range\n  --> test.tile:6:3";
    assert_eq!(error.to_string(), expect);
}

#[test]
fn a_grid_is_not_negative() {
    let kernel = kernel(
        "kernel k dims(N) { param y: in f32[N]
           grid { %0: i64 = const 1 %1: i64 = const -2 yield (%0, %1) }
           body { yield } }",
    );
    let error = fault(&kernel, four("f32"));
    assert_eq!(error.to_string(), "k: the grid has -2 programs along axis 1");
}
