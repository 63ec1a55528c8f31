//! Comparisons of things that do not compare.
use tessera_kernel_dsl::prelude::*;

#[kernel(grid = (M))]
fn compare(x: &In<f32, {[M]}>, i: &In<i64, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let (x, i) = (x.tile([0], [16]), i.tile([0], [16]));
    let elements = x < i;
    let text = x == "one";
    let truths = (x < 1.0) >= (x < 2.0);
    let both = x > 0.0 && 4 > 3;
    y.store([0], select(elements, x, 0.0));
}

fn main() {}
