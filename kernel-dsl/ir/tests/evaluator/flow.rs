//! Loops and branches.

use crate::{floats, kernel, run};
use tessera_tile_ir::eval::Arg;

/// The last index, the number of rounds and the sum of the indices of a loop.
fn looped(start: i64, end: i64, step: usize) -> Vec<f32> {
    let body = format!(
        "%1: i64 = const {start} %2: i64 = const {end} %3: i64 = const -1 %4: i64 = const 0
         %5: i64, %6: i64, %7: i64 = for {step} (%1, %2, %3, %4, %4)
         {{|%10: i64, %11: i64, %12: i64, %13: i64|
           %14: i64 = const 1 %15: i64 = add (%12, %14) %16: i64 = add (%13, %10)
           yield (%10, %15, %16)
         }}
         %17: i64[1] = broadcast (%5) %18: i64[1] = broadcast (%6) %19: i64[1] = broadcast (%7)
         %20: i64[2] = concat 0 (%17, %18) %21: i64[3] = concat 0 (%20, %19)
         %9: f32[3] = cast f32 (%21)"
    );
    floats(&body, 3)
}

#[test]
fn loops_carry_values() {
    assert_eq!(looped(0, 4, 1), [3.0, 4.0, 6.0]);
    assert_eq!(looped(1, 8, 3), [7.0, 3.0, 12.0]);
    assert_eq!(looped(5, 5, 1), [-1.0, 0.0, 0.0]);
    assert_eq!(looped(5, -5, 1), [-1.0, 0.0, 0.0]);
    assert_eq!(looped(i64::MAX - 1, i64::MAX, 4)[1], 1.0);
}

#[test]
fn a_branch_runs_one_side() {
    let branch = kernel(
        "kernel sides dims(N) { param y: out f32[N]
           grid { %0: i64 = dim N yield (%0) }
           body {
             %1: i64 = program_id 0 %2: i64 = const 1 %3: bool = lt (%1, %2)
             %4: f32 = if (%3) {
               %5: f32 = const 3.0 yield (%5)
             } {
               %6: i64 = const 2 %7: bool = eq (%1, %6)
               if (%7) { %8: f32 = const 9.0 store y (%2, %8) yield } { yield }
               %9: f32 = const 4.0 yield (%9)
             }
             %10: bool = ne (%1, %2)
             if (%10) { store y (%1, %4) yield } { yield }
             yield
           } }",
    );
    let after = run(&branch, vec![Arg::f32(vec![0.0; 3], &[3])]);
    assert_eq!(after[0].as_f32(), [3.0, 9.0, 4.0]);
}

#[test]
fn a_value_of_a_loop_is_made_anew_each_round() {
    // Fibonacci: both carried values change in one round.
    let body = "%1: i64 = const 0 %2: i64 = const 10 %3: f32 = const 0.0 %4: f32 = const 1.0
                %5: f32, %6: f32 = for 1 (%1, %2, %3, %4) {|%7: i64, %8: f32, %10: f32|
                  %11: f32 = add (%8, %10) yield (%10, %11)
                }
                %9: f32[1] = broadcast (%5)";
    assert_eq!(floats(body, 1), [55.0]);
}
