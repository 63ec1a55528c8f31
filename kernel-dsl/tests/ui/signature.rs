//! Signatures that are no kernel's.
use tessera_kernel_dsl::prelude::*;

#[kernel(grid = (M))]
async fn signature<'a, const N: usize, W: Packed>(
    (a, b): &In<f32, {[M]}>,
    mut c: &In<f32, {[M]}>,
    d: &mut In<f32, {[M]}>,
    e: &Out<f32, {[M]}>,
    f: &In<f32, {[M * 2]}>,
    g: &In<f32, M>,
    h: usize,
    i: &In<dyn Float, {[M]}>,
) -> f32 {
}

#[kernel(grid = (1))]
struct NoFunction;

fn main() {}
