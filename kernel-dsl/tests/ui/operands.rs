//! Operands of the wrong kind.
use tessera_kernel_dsl::prelude::*;

#[kernel(grid = (M))]
fn number(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    y.store([0], x.tile([0], [16]) + "one");
}

#[kernel(grid = (M))]
fn index(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    y.store([0], x.tile([x.at([0])], [16]));
}

#[kernel(grid = (M))]
fn stored(x: &In<f32, {[M]}>, y: &mut Out<i32, {[M]}>) {
    y.store([0], x.tile([0], [16]));
}

#[kernel(grid = (M))]
fn condition(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    if x.at([0]) {
        y.store([0], 1.0);
    }
}

#[kernel(grid = (M))]
fn decoded(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    y.store([0], x.tile([0], [16]).decode());
}

fn main() {}
