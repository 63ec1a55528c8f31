//! What a loop or branch of the kernel cannot change.
use tessera_kernel_dsl::prelude::*;

struct State {
    sum: Tile<f32>,
}

#[kernel(grid = (M))]
fn count(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let mut n = 0;
    for k in range(0, M, 4) {
        n += 1;
        y.store([k], x.at([k]));
    }
    y.store([n], 0.0);
}

#[kernel(grid = (M))]
fn state(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let mut state = State { sum: zeros([]) };
    if x.at([0]) > 0.0 {
        state.sum = x.at([0]);
    }
    y.store([0], state.sum);
}

#[kernel(grid = (M))]
fn fixed(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let sum = zeros([]);
    for k in range(0, M, 1) {
        sum += x.at([k]);
    }
    y.store([0], sum);
}

#[kernel(grid = (M))]
fn over(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    for k in x {
        y.store([0], k);
    }
}

#[tile_fn]
fn through(sum: &mut Tile<f32>, x: In<f32>) {
    for k in range(0, 8, 1) {
        *sum = *sum + x.at([k]);
    }
}

#[tile_fn]
fn captured(x: Tile<f32>) -> Tile<f32> {
    let mut sum = x;
    let mut add = |y| sum += y;
    for _ in range(0, 8, 1) {
        add(x);
    }
    sum
}

#[derive(Carry)]
struct Mixed {
    sum: Tile<f32>,
    count: usize,
}

#[derive(Carry)]
enum Either {
    One(Tile<f32>),
}

fn main() {}
