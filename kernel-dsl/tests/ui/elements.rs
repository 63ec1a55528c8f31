//! Stored codes have no arithmetic, and elements do not mix.
use tessera_kernel_dsl::prelude::*;

macro_rules! none {
    (|$name:ident| $body:expr) => {};
}

#[kernel(grid = (M), formats(KV = none))]
fn stored<KV: Stored>(kv: &In<KV, {[M, 16]}>, y: &mut Out<f32, {[M, 16]}>) {
    let tile = kv.tile([0, 0], [1, 16]);
    y.store([0, 0], tile + tile);
}

#[kernel(grid = (M))]
fn mixed(x: &In<f32, {[M]}>, i: &In<i32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let (x, i) = (x.tile([0], [16]), i.tile([0], [16]));
    y.store([0], x * i);
}

fn main() {}
